"""The exchange of definitions between two nodes, without I/O: after it both have the entries of both.

The asking node sends the digests of its parts. The other node answers with its own and with its entries in parts that
differ, in as many messages as they need. Then the asking node sends its entries in parts that still differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from federation.definitions.entry import BUCKETS, Entry, Key
from federation.definitions.pb.definitions_pb2 import ExchangeAnswer, ExchangeRequest, VersionedDefinition
from federation.definitions.versions import Versions

MESSAGE_BYTES_MAX: Final = 256 * 1024
"""Bytes of entries in one message; one entry more than that is possible, and no more."""
MESSAGES_MAX: Final = 4096  # of one exchange: enough for the largest definitions on both sides


class ExchangeError(Exception):
    """The other node answered with something that is no answer of this exchange."""


def answer(definitions: Versions, request: ExchangeRequest, now: float) -> ExchangeAnswer:
    """The answering node's side. Raises ExchangeError for a request that no node makes."""
    definitions.merge(read_entries(request.definitions), now)
    if not request.digests:
        return ExchangeAnswer()
    _check_digests(len(request.digests))
    after = (request.after_component, request.after_name)
    found = [entry for entry in definitions.differing(tuple(request.digests)) if entry.key > after]
    entries, more = _fitting(found)
    return ExchangeAnswer(digests=definitions.buckets(), definitions=write_entries(entries), more=more)


class Exchange:
    """The asking node's side: `request`, then `receive` with its answer, until `request` gives None."""

    def __init__(self, definitions: Versions) -> None:
        self._definitions = definitions
        self._theirs: dict[Key, Entry] = {}
        self._to_send: deque[Entry] = deque()
        self._messages = 0
        self._next: ExchangeRequest | None = ExchangeRequest(digests=definitions.buckets())

    def request(self) -> ExchangeRequest | None:
        """The next message; None when the exchange is over."""
        return self._next

    def receive(self, found: ExchangeAnswer, now: float) -> int:
        """The answer to the last request; the number of entries that were new here. Raises ExchangeError."""
        asked = self._next
        assert asked is not None
        self._next = None
        self._messages += 1
        if not asked.digests:
            self._send()
            return 0
        _check_digests(len(found.digests))
        entries = read_entries(found.definitions)
        taken = self._definitions.merge(entries, now)
        for entry in entries:
            self._theirs[entry.key] = entry
        if found.more and self._messages < MESSAGES_MAX:
            component, name = entries[-1].key if entries else ("", "")
            if (component, name) <= (asked.after_component, asked.after_name):
                raise ExchangeError("an answer that has more goes no further")
            self._next = ExchangeRequest(digests=asked.digests, after_component=component, after_name=name)
            return taken
        # What the other node has sent is known there; of the rest it gets all where the parts differ.
        own = self._definitions.differing(tuple(found.digests))
        self._to_send.extend(entry for entry in own if self._theirs.get(entry.key) != entry)
        self._send()
        return taken

    def _send(self) -> None:
        if self._to_send and self._messages < MESSAGES_MAX:
            entries, _ = _fitting(self._to_send)
            for _ in entries:
                self._to_send.popleft()
            self._next = ExchangeRequest(definitions=write_entries(entries))


def write_entries(entries: Iterable[Entry]) -> list[VersionedDefinition]:
    return [
        VersionedDefinition(
            component=entry.component, name=entry.name, clock=entry.clock, node=entry.node, value=entry.value
        )
        for entry in entries
    ]


def read_entries(found: Iterable[VersionedDefinition]) -> list[Entry]:
    return [
        Entry(item.component, item.name, item.clock, item.node, item.value if item.HasField("value") else None)
        for item in found
    ]


def _check_digests(count: int) -> None:
    if count != BUCKETS:
        raise ExchangeError(f"{count} digests, not {BUCKETS}")


def _fitting(entries: Iterable[Entry]) -> tuple[list[Entry], bool]:
    """As many entries as one message takes, at least one; whether some are left."""
    found: list[Entry] = []
    size = 0
    for entry in entries:
        if size >= MESSAGE_BYTES_MAX:
            return found, True
        found.append(entry)
        size += entry.size()
    return found, False
