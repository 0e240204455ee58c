"""The copies of this node's store on other nodes.

Each batch that the store begins to write goes to the keepers at the same time. What waits for the store waits for those
keepers whose copy is whole, too. A keeper that does not answer within KEEPER_SECONDS is not waited for until it has caught up:
the store is short of copies then.
"""

# compiled with mypyc
from __future__ import annotations

import random
from collections import deque

from broker.broker import Broker
from broker.message import NEVER
from broker.session.refused import refuse_waiting
from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import KEEPERS
from broker.store.replicator import Replicator
from federation.replication.base import Base, copied
from federation.replication.keeper import Batch, Batches, Keeper
from federation.replication.placement import Candidate, choose_keepers
from federation.replication.wire import BATCHES_BYTES_MAX, STORED, Record, encode_batch, encode_frame
from federation.settings import ReplicationSettings


class KeeperList(Content):
    """version  rises with each change
    names    of the keepers
    """

    def __init__(self) -> None:
        self.version = 0
        self.names: list[str] = []
        self.number = 0

    def values(self, wall_offset: float) -> Record:
        """(KEEPERS, version, names)."""
        return KEEPERS, self.version, tuple(self.names)


class Kept(Batches):
    """The batches that the keepers may need.

    newest  number of the last one
    below   records with lower numbers are in the store
    """

    def __init__(self, node: str, broker: Broker, journal: Journal, listed: KeeperList) -> None:
        self.newest = 0
        self.below = journal.stored_below
        self.is_changed = False
        self._node = node
        self._broker = broker
        self._journal = journal
        self._listed = listed
        self._batches: deque[Batch] = deque()
        self._bytes = 0

    def add(self, records: dict[int, Record | None], now: float) -> None:
        self.newest += 1
        frames = [encode_frame(STORED, self.below), *encode_batch(self.newest, records)]
        batch = Batch(self.newest, frames, now)
        self._batches.append(batch)
        self._bytes += batch.size
        while self._bytes > BATCHES_BYTES_MAX:
            self._bytes -= self._batches.popleft().size

    def forget(self, number: int) -> None:
        """All keepers have this batch and those before it."""
        while self._batches and self._batches[0].number <= number:
            self._bytes -= self._batches.popleft().size

    def after(self, number: int) -> list[Batch] | None:
        behind = self.newest - number
        if behind < 0 or behind > len(self._batches):
            return None
        return [self._batches[index] for index in range(-behind, 0)]

    def begun_at(self, number: int) -> float:
        behind = self.newest - number
        if behind == 0:
            return NEVER
        return 0.0 if behind < 0 or behind > len(self._batches) else self._batches[-behind].at

    def base(self) -> Base:
        return Base(self._broker, self._journal, self.newest)

    def hello(self) -> tuple[str, str, int, int, tuple[str, ...]]:
        identity = self._broker.identity
        return self._node, identity.store_id, identity.starts, self._listed.version, tuple(self._listed.names)

    def stored_below(self) -> int:
        return self.below

    def keeper_changed(self) -> None:
        self.is_changed = True


class Replication(Replicator):
    """keepers  by name
    wanted   number of keepers that there should be
    """

    def __init__(
        self,
        node: str,
        broker: Broker,
        journal: Journal,
        settings: ReplicationSettings,
        zone: str,
        rng: random.Random,
    ) -> None:
        self.keepers: dict[str, Keeper] = {}
        self.wanted = 0
        self.listed = KeeperList()
        self.kept = Kept(node, broker, journal, self.listed)
        self._broker = broker
        self._journal = journal
        self._copies = settings.copies
        self._holds = settings.when_short == "hold"
        self._zone = zone
        self._rng = rng
        self._waiting: deque[tuple[int, int, list[int]]] = deque()  # (batch, records below, commits)

    def restore(self) -> None:
        """Take what the store keeps. Raises ValueError and TypeError for a record that no node has written."""
        for number, content in list(self._journal.kept.items()):
            if isinstance(content, StoredRecord) and content.stored[0] == KEEPERS:
                _, version, names = content.stored
                self.listed.version = checked(int, version)
                self.listed.names = [checked(str, name) for name in checked(tuple, names)]
                self.listed.number = number
                self._journal.kept[number] = self.listed

    def choose(self, living: dict[str, Candidate], awaited: list[str], with_stores: int, now: float) -> None:
        """living: the members that can keep a copy, by name; awaited: keepers that are missed, and not replaced yet;
        with_stores: the number of all that have a store."""
        self.wanted = min(self._copies - 1, with_stores)
        listed = self.listed
        present = [name for name in listed.names if name in living or name in awaited]
        chosen = choose_keepers(self._broker.identity.store_id, self._zone, present, living, self.wanted)
        for name in list(self.keepers):
            if name not in chosen:
                self.keepers.pop(name).stop("it is no keeper any more", now)
        is_changed = chosen != listed.names and bool(chosen)
        if is_changed:
            listed.version += 1
            listed.names = chosen
            if listed.number:
                self._journal.change(listed.number, listed)
            else:
                listed.number = self._journal.keep(listed)
            for keeper in self.keepers.values():
                keeper.renew(now)
        for name in chosen:
            if name not in self.keepers:
                self.keepers[name] = Keeper(name, self.kept, self._rng, now)
        self.settle()

    def stop(self, now: float) -> None:
        """This node stops: its last changes wait for its own store alone."""
        self.wanted = 0
        for keeper in self.keepers.values():
            keeper.stop("this node stops", now)
        self.settle()

    # --- the store's side ---

    def written(self, batch: dict[int, Record | None], now: float) -> None:
        if not self.keepers:
            self.kept.newest += 1  # one that is back lacks this batch, which nobody keeps for it
            return
        records = copied(batch)
        if records:
            self.kept.add(records, now)
            for keeper in self.keepers.values():
                keeper.batch_begun(now)

    def stored(self, below: int, numbers: list[int]) -> None:
        self.kept.below = below
        self._waiting.append((self.kept.newest, below, numbers))
        self.settle()

    def settle(self) -> bool:
        """Keepers have answered. True when acknowledgements leave."""
        self.kept.is_changed = False
        done = self.kept.newest
        forgotten = done
        for keeper in self.keepers.values():
            forgotten = min(forgotten, keeper.acked)
            if keeper.is_whole:
                done = min(done, keeper.acked)
        self.kept.forget(forgotten)
        is_settled = False
        if self._holds:
            self._hold()
            if self._journal.is_short:
                return False
        while self._waiting and self._waiting[0][0] <= done:
            _, below, numbers = self._waiting.popleft()
            self._broker.commits.settle(below, numbers)
            is_settled = True
        return is_settled

    def _hold(self) -> None:
        """Nothing durable is taken or acknowledged while the store is short of copies."""
        was_short = self._journal.is_short
        self._journal.is_short = self.whole() < self.wanted
        if self._journal.is_short and not was_short:
            refuse_waiting(self._broker, self._broker.now)

    # --- evidence ---

    def whole(self) -> int:
        """Number of keepers whose copies are whole."""
        count = 0
        for keeper in self.keepers.values():
            if keeper.is_whole:
                count += 1
        return count

    def short_since(self) -> float:
        """Return since when the store is short of copies; NEVER while it is not."""
        if self.whole() >= self.wanted:
            return NEVER
        since = NEVER
        for keeper in self.keepers.values():
            if not keeper.is_whole:
                since = min(since, keeper.short_since)
        return since

    # --- time ---

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        at = NEVER
        for keeper in self.keepers.values():
            at = min(at, keeper.next_timeout())
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        for keeper in self.keepers.values():
            keeper.handle_timeout(now)
            if keeper.outlet is not None:
                keeper.outlet.flush_at(now)
        if self.kept.is_changed:
            self.settle()
