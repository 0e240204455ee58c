"""Each call to SQLite or Redis fails once while a node runs: its next start finds what it had at its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from broker.config.settings import PersistenceSettings, Settings
from broker.errors import NotCommitted
from broker.message import Message
from broker.server.committed import committed
from broker.server.host import Host
from broker.server.start_error import StartError
from broker.store import store_writer
from broker.store.durability import Durability
from broker.store.sqlite_store import SqliteStore
from broker.store.store import OwnerLost, StoreFault
from failing_stores import NthCall, fail_calls_of_redis, fail_calls_of_sqlite
from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer
from waiting import eventually

SEED = 1
STEPS = 8
REMEMBERED, LOST = 3, 6  # steps: a Redis that is restarted has the records of an earlier one
TOPICS = (b"a", b"b", b"c", b"d")


@pytest.fixture(autouse=True)
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "RETRY_SECONDS", 0.001)


class Runs:
    """Stores of runs, a new one for each, whose nth call fails."""

    def __init__(self, nth: NthCall) -> None:
        self.nth = nth
        self.run = 0

    def settings(self) -> Settings:
        raise AssertionError("a subclass has a store")

    def remember(self) -> None:
        """Remember the present records. SQLite loses no commits."""

    def lose_commits(self) -> None:
        """Lose all commits after `remember`."""


class SqliteRuns(Runs):
    def __init__(self, nth: NthCall, folder: Path) -> None:
        super().__init__(nth)
        self._folder = folder

    def settings(self) -> Settings:
        return Settings(data_dir=str(self._folder / str(self.run)))


class RedisRuns(Runs):
    def __init__(self, nth: NthCall, server: RedisServer) -> None:
        super().__init__(nth)
        self._server = server
        self._client: Any = redis.Redis(port=server.port)
        self._keys: dict[bytes, bytes] = {}

    def settings(self) -> Settings:
        return Settings(
            persistence=PersistenceSettings("redis", replace(self._server.settings, key_prefix=f"run{self.run}"))
        )

    def _names(self) -> list[bytes]:
        return [b"run%d:%s" % (self.run, name) for name in (b"records", b"commits")]

    def remember(self) -> None:
        with self.nth.paused():
            self._keys = {name: value for name in self._names() if (value := self._client.dump(name))}

    def lose_commits(self) -> None:
        with self.nth.paused():
            self._client.delete(*self._names())
            for name, value in self._keys.items():
                self._client.restore(name, 0, value)


@pytest.fixture(params=["sqlite", "redis"])
def runs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    if request.param == "sqlite":
        yield SqliteRuns(fail_calls_of_sqlite(monkeypatch), tmp_path)
        return
    if REDIS_SERVER is None:
        pytest.skip(REDIS_MISSING)
    server = RedisServer(tmp_path, "--appendfsync", "no")
    server.start()
    yield RedisRuns(fail_calls_of_redis(monkeypatch), server)
    server.kill()


async def started(settings: Settings) -> tuple[Host, Durability]:
    """A node with its store. One that cannot be opened is opened again."""
    made: list[tuple[Host, Durability]] = []

    async def start() -> bool:
        host = Host(settings)
        durability = Durability(host)
        try:
            await durability.open()
        except StartError:
            return False
        made.append((host, durability))
        return True

    await eventually(start, "the store is opened")
    return made[0]


async def stored(host: Host) -> bool:
    try:
        await committed(host)
    except NotCommitted:
        return False
    return True


async def run(runs: Runs) -> dict[bytes, bytes]:
    """What the node has at its end: topic -> payload of a retained message."""
    rng = random.Random(SEED)
    expected: dict[bytes, bytes] = {}
    host, durability = await started(runs.settings())

    def publish(topic: bytes, payload: bytes) -> None:
        host.broker.publish(Message(topic, payload, 1, True), host.now())
        expected[topic] = payload

    async def all_stored() -> None:
        await eventually(lambda: stored(host), "everything is stored")

    for step in range(STEPS):
        if step == REMEMBERED:
            publish(b"deleted", b"1")
            await all_stored()
            runs.remember()
            publish(b"deleted", b"")
        if step == LOST:
            await all_stored()
            runs.lose_commits()
        for topic in rng.sample(TOPICS, rng.choice((1, 2))):
            publish(topic, b"" if rng.random() < 0.4 else b"%d" % step)
        if rng.random() < 0.7:
            await stored(host)
    await all_stored()
    try:
        await durability.close()
    except StoreFault:
        pass  # of its last call
    host.turns.stop()
    return {topic: payload for topic, payload in expected.items() if payload}


async def found(runs: Runs) -> dict[bytes, bytes]:
    host, durability = await started(runs.settings())
    messages = {message.topic: message.payload for message in host.broker.retained.messages()}
    await durability.close()
    host.turns.stop()
    return messages


@pytest.mark.parametrize("is_after", [False, True], ids=["before its effect", "after its effect"])
async def test_a_call_that_fails_once_costs_no_record(runs: Runs, is_after: bool) -> None:
    for calls in range(1_000):
        runs.run = calls
        runs.nth.fail(calls, is_after)
        expected = await run(runs)
        is_over = runs.nth.calls >= 0
        runs.nth.fail(-1, False)
        assert await found(runs) == expected, f"call {calls} has failed"
        if is_over:
            break
    assert calls > 20, "the faults reach the calls of the store"


async def test_changes_that_cannot_be_encoded_are_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=str(tmp_path / "data"))
    host, durability = await started(settings)
    with monkeypatch.context() as patched:
        patched.setattr(store_writer, "encode_changes", lambda *_: 1 // 0)
        host.broker.publish(Message(b"a", b"1", 1, True), host.now())
        answer = asyncio.create_task(committed(host))
        await eventually(durability.not_ready, "the fault is named")
        assert not answer.done()
    await answer
    await durability.close()
    host.turns.stop()
    host, durability = await started(settings)
    assert [message.payload for message in host.broker.retained.messages()] == [b"1"]
    await durability.close()
    host.turns.stop()


async def test_a_node_whose_store_was_taken_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = SqliteStore.commit

    def commit(store: SqliteStore, batch: Sequence[tuple[int, bytes | None]]) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OwnerLost("another node has it")
        real(store, batch)  # of the start

    monkeypatch.setattr(SqliteStore, "commit", commit)
    host, durability = await started(Settings(data_dir=str(tmp_path / "data")))
    host.broker.publish(Message(b"a", b"1", 1, True), host.now())
    host.flush_soon()
    await eventually(lambda: host.stop_reason, "the node stops")
    host.broker.publish(Message(b"b", b"2", 1, True), host.now())
    with pytest.raises(NotCommitted, match="now"):
        await committed(host)
    await durability.close()
    host.turns.stop()
    assert (host.stop_reason, calls) == ("another node has it", 2)
