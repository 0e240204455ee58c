"""Stores whose nth call to SQLite or Redis fails: before it has an effect, or after it while its answer is lost."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.connection import Connection

FAULT = "failed by the test"


class NthCall:
    """calls     number of calls until one fails; below 0 none does any more
    is_after  it fails after its effect
    """

    def __init__(self) -> None:
        self.calls = -1
        self.is_after = False

    def fail(self, calls: int, is_after: bool) -> None:
        self.calls = calls
        self.is_after = is_after

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls of the test itself neither fail nor count."""
        calls, self.calls = self.calls, -1
        yield
        self.calls = calls

    def is_next(self) -> bool:
        self.calls -= 1
        return self.calls == -1


def fail_calls_of_sqlite(monkeypatch: pytest.MonkeyPatch) -> NthCall:
    nth = NthCall()

    class FailingConnection(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if not nth.is_next():
                return super().execute(*arguments)
            if nth.is_after:
                super().execute(*arguments)
            raise sqlite3.OperationalError(FAULT)

    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=FailingConnection))
    return nth


def fail_calls_of_redis(monkeypatch: pytest.MonkeyPatch) -> NthCall:
    """A call is what is sent at once: a command, or a whole transaction."""
    nth = NthCall()
    send: Any = Connection.send_packed_command

    def send_or_fail(self: Any, command: Any, *arguments: Any, **options: Any) -> None:
        if not nth.is_next():
            send(self, command, *arguments, **options)
            return
        if nth.is_after:
            send(self, command, *arguments, **options)
            send(self, self.pack_command("ECHO", FAULT), check_health=False)
            answer: Any = None
            while answer != FAULT.encode():
                try:
                    answer = self.read_response()
                except redis.ResponseError:
                    continue
        self.disconnect()
        raise redis.ConnectionError(FAULT)

    monkeypatch.setattr(Connection, "send_packed_command", send_or_fail)
    return nth
