"""Versioned entries that converge on all nodes of a cluster, whatever the order in which they arrive.

The last writer of an entry wins, by a hybrid clock and then by the node's name. Deleted entries stay as tombstones for
TOMBSTONE_SECONDS, so that a node that was away does not bring them back. Values are not looked into, secrets apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from federation.definitions.entry import (
    BUCKETS,
    WORDS,
    Entry,
    Key,
    bucket_of,
)
from federation.definitions.error import shown
from federation.definitions.secrets import has_secrets
from federation.hybrid_clock import AHEAD_MAX, CLOCK_LATEST, HybridClock

ENTRIES_MAX: Final = 4096  # that this node adds to; twice as many when nodes add at the same time
TOMBSTONES_MAX: Final = 8192  # the oldest are forgotten first, and counted
TOMBSTONE_SECONDS: Final = 90 * 86_400
REFUSED_NAMED_MAX: Final = 16  # between two calls of take_refused; counters.refused has all


class Counters:
    """refused  entries of other nodes that were not taken: see `_refusal`
    stamped_anew  entries whose clocks were too far ahead
    """

    def __init__(self) -> None:
        self.refused = 0
        self.stamped_anew = 0
        self.tombstones_dropped = 0


class Versions:
    """`node` is the name in the cluster. `shares_secrets`: whether other nodes get, and give, entries with secrets; else those
    stay at the node that has them."""

    def __init__(self, node: str, shares_secrets: bool) -> None:
        self.node = node
        self.shares_secrets = shares_secrets
        self.counters = Counters()
        self._entries: dict[Key, Entry] = {}
        self._kept_here: set[Key] = set()  # entries with secrets that are no part of an exchange
        self._buckets = [0] * BUCKETS
        self._live = 0
        self._clock = HybridClock()
        self._changes: dict[Key, Entry] = {}
        self._refused: list[str] = []

    def entries(self) -> list[Entry]:
        """All entries, tombstones too."""
        return list(self._entries.values())

    def _write(self, component: str, name: str, value: str | None, now: float) -> None:
        """A change on this node: its version is above everything that the node has seen."""
        self._keep(Entry(component, name, self._clock.next(now), self.node, value))

    # --- entries of other nodes and of the file

    def load(self, entries: Iterable[Entry], now: float) -> None:
        """Take the entries of this node's own file. Its clock may be the wrong one: entries ahead of it stay as they are, up to
        those that no clock can have made."""
        for entry in entries:
            self._take(entry, now)
        self._stamp_anew([entry for entry in self._entries.values() if entry.clock > CLOCK_LATEST], now)

    def correct(self, now: float) -> None:
        """Stamp entries anew whose clocks are too far ahead of the cluster's time: all other nodes would refuse them, and each
        change after them."""
        self._stamp_anew([entry for entry in self._entries.values() if entry.is_ahead(now)], now)

    def _stamp_anew(self, wrong: list[Entry], now: float) -> None:
        if not wrong:
            return
        keys = {entry.key for entry in wrong}
        self._clock.latest = max((entry.clock for key, entry in self._entries.items() if key not in keys), default=0)
        for entry in sorted(wrong, key=lambda entry: entry.order):
            self._keep(replace(entry, clock=self._clock.next(now), node=self.node))
        self.counters.stamped_anew += len(wrong)

    def merge(self, entries: Iterable[Entry], now: float) -> int:
        """Take entries of another node; the number of those that were new. `now` is Unix seconds. `take_refused` has those that
        are not taken."""
        taken = 0
        for entry in entries:
            if refusal := self._refusal(entry, now):
                self.counters.refused += 1
                if len(self._refused) < REFUSED_NAMED_MAX:
                    self._refused.append(f"{WORDS.get(entry.component, 'definition')} {shown(entry.name)}: {refusal}")
            else:
                taken += self._take(entry, now)
        return taken

    def _refusal(self, entry: Entry, now: float) -> str:
        """Return the reason why an entry of another node is not taken; "" for one that may be."""
        if fault := entry.fault():
            return fault
        if self._is_withheld(entry):
            return "it has secrets, which are not taken unencrypted: see plugins.federation.allow_plain_secrets"
        if entry.is_ahead(now):
            return f"the clock of node {shown(entry.node)}, which made it, was more than {AHEAD_MAX:g} s ahead"
        old = self._entries.get(entry.key)
        if entry.value is not None and (old is None or old.value is None) and self._live >= 2 * ENTRIES_MAX:
            return f"there are {self._live} definitions already"
        return ""

    def _take(self, entry: Entry, now: float) -> bool:
        old = self._entries.get(entry.key)
        if (old is None and self._is_expired(entry, now)) or (old is not None and old.order >= entry.order):
            return False
        self._keep(entry)
        return True

    def take_refused(self) -> list[str]:
        """Entries that were not taken since the last call, at most REFUSED_NAMED_MAX, with the reason."""
        found = self._refused
        self._refused = []
        return found

    def _keep(self, entry: Entry) -> None:
        old = self._entries.get(entry.key)
        if old is not None:
            self._remove(old)
        self._entries[entry.key] = entry
        self._live += entry.value is not None
        if self._is_withheld(entry):
            self._kept_here.add(entry.key)
        else:
            self._buckets[bucket_of(entry.key)] ^= entry.digest()
        self._clock.saw(entry.clock)
        self._changes[entry.key] = entry
        self._entry_changed(entry)
        if entry.value is None and len(self._entries) - self._live > TOMBSTONES_MAX:
            self._drop_oldest()

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._live -= entry.value is not None
        if entry.key in self._kept_here:
            self._kept_here.remove(entry.key)
        else:
            self._buckets[bucket_of(entry.key)] ^= entry.digest()

    def _entry_changed(self, entry: Entry) -> None:
        """There is another version of an entry."""
        raise AssertionError("a subclass implements this")

    def _is_withheld(self, entry: Entry) -> bool:
        return (
            not self.shares_secrets
            and entry.value is not None
            and has_secrets(entry.component, json.loads(entry.value))
        )

    def _drop_oldest(self) -> None:
        tombstones = (entry for entry in self._entries.values() if entry.value is None)
        self._forget(min(tombstones, key=lambda entry: entry.order))
        self.counters.tombstones_dropped += 1

    def expire(self, now: float) -> None:
        """Forget tombstones that are older than TOMBSTONE_SECONDS."""
        for entry in [entry for entry in self._entries.values() if self._is_expired(entry, now)]:
            self._forget(entry)

    def _is_expired(self, entry: Entry, now: float) -> bool:
        return entry.value is None and entry.time + TOMBSTONE_SECONDS < now

    def _forget(self, entry: Entry) -> None:
        self._remove(entry)
        self._changes.pop(entry.key, None)

    def take_changes(self) -> list[Entry]:
        """Entries that changed since the last call, each once."""
        found = list(self._changes.values())
        self._changes.clear()
        return found

    # --- comparing

    def digest(self) -> int:
        """64 bits that are the same on nodes with the same entries."""
        found = 0
        for bucket in self._buckets:
            found ^= bucket
        return found

    def buckets(self) -> tuple[int, ...]:
        """The digests of the BUCKETS parts."""
        return tuple(self._buckets)

    def differing(self, buckets: tuple[int, ...]) -> list[Entry]:
        """Own entries in the parts whose digests are others in `buckets`, sorted by key; never those that are kept here."""
        parts = {index for index, own in enumerate(self._buckets) if own != buckets[index]}
        found = [
            entry for key, entry in self._entries.items() if bucket_of(key) in parts and key not in self._kept_here
        ]
        return sorted(found, key=lambda entry: entry.key)
