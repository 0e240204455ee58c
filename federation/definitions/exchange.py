"""The exchange of definitions between two nodes, without I/O: after it both have the entries of both.

The asking node sends the digests of its parts. The other node answers with its own and with its entries in parts that
differ, in as many messages as they need. Then the asking node sends its entries in parts that still differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from federation.definitions.entry import BUCKETS, Entry, Key
from federation.definitions.versions import Versions

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""Bytes of entries in one message; one entry more than that is possible, and no more."""
MESSAGES_MAX: Final = 4096  # of one exchange: enough for the largest definitions on both sides
NO_KEY: Final[Key] = ("", "")


@dataclass(frozen=True, slots=True)
class Request:
    """buckets  the asking node's digests when the exchange began; () when it sends entries only
    after       only entries behind this key are asked for
    entries     of the asking node
    """

    buckets: tuple[int, ...] = ()
    after: Key = NO_KEY
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """buckets  the answering node's digests; () for a request without
    entries     of the answering node, in the order of their keys
    more        there are further ones behind the last of them
    """

    buckets: tuple[int, ...] = ()
    entries: tuple[Entry, ...] = ()
    more: bool = False


class ExchangeError(Exception):
    """The other node answered with something that is no answer of this exchange."""


def answer(definitions: Versions, request: Request, now: float) -> Answer:
    """The answering node's side. Raises ExchangeError for a request that no node makes."""
    definitions.merge(request.entries, now)
    if not request.buckets:
        return Answer()
    if len(request.buckets) != BUCKETS:
        raise ExchangeError(f"{len(request.buckets)} digests, not {BUCKETS}")
    found = [entry for entry in definitions.differing(request.buckets) if entry.key > request.after]
    entries, more = _fitting(found)
    return Answer(definitions.buckets(), entries, more)


class Exchange:
    """The asking node's side: `request`, then `receive` with its answer, until `request` gives None."""

    def __init__(self, definitions: Versions) -> None:
        self._definitions = definitions
        self._theirs: dict[Key, Entry] = {}
        self._to_send: deque[Entry] = deque()
        self._messages = 0
        self._buckets = definitions.buckets()
        self._next: Request | None = Request(self._buckets)

    def request(self) -> Request | None:
        """The next message; None when the exchange is over."""
        return self._next

    def receive(self, found: Answer, now: float) -> int:
        """The answer to the last request; the number of entries that were new here. Raises ExchangeError."""
        asked = self._next
        assert asked is not None
        self._next = None
        self._messages += 1
        if not asked.buckets:
            self._send()
            return 0
        if len(found.buckets) != BUCKETS:
            raise ExchangeError(f"{len(found.buckets)} digests, not {BUCKETS}")
        taken = self._definitions.merge(found.entries, now)
        for entry in found.entries:
            self._theirs[entry.key] = entry
        if found.more and self._messages < MESSAGES_MAX:
            last = found.entries[-1].key if found.entries else NO_KEY
            if last <= asked.after:
                raise ExchangeError("an answer that has more goes no further")
            self._next = Request(self._buckets, last)
            return taken
        # What the other node has sent is known there; of the rest it gets all where the parts differ.
        own = self._definitions.differing(found.buckets)
        self._to_send.extend(entry for entry in own if self._theirs.get(entry.key) != entry)
        self._send()
        return taken

    def _send(self) -> None:
        if self._to_send and self._messages < MESSAGES_MAX:
            entries, _ = _fitting(self._to_send)
            for _ in entries:
                self._to_send.popleft()
            self._next = Request(entries=entries)


def _fitting(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], bool]:
    """As many entries as one message takes, at least one; whether some are left."""
    found: list[Entry] = []
    size = 0
    for entry in entries:
        if size >= MESSAGE_BYTES_MAX:
            return tuple(found), True
        found.append(entry)
        size += entry.size()
    return tuple(found), False
