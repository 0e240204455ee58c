"""The replicas that this node keeps, and the nodes that bring them up to date."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.store.journal import Journal, StoredRecord, checked
from broker.store.kinds import COPY, REPLICA, RUN
from broker.store.shapes import count_of
from federation.replication.contents import Record
from federation.replication.replica import Replica
from federation.replication.wire import pack_records, unpack_records

DROPPED_OF_A_TURN: Final = 8_192  # runs and records
REPLICAS_MAX: Final = 64  # of a node; further homes are refused, and look for another keeper


class HomeStream:
    """The connection that brings a store here."""

    def end(self, text: str) -> None:
        """Close it, because of this."""
        raise AssertionError("a stream that cannot be ended")


class NoKeeper(Exception):
    """This node keeps no copy for the other one. The text says why."""


class Replicas:
    """by_store   by store id
    members    the store ids of living members, by name
    connections  that bring a store here, by its id
    dropped    those that are forgotten, some of each in a turn
    """

    def __init__(self) -> None:
        self.by_store: dict[str, Replica] = {}
        self.members: dict[str, str] = {}
        self.connections: dict[str, HomeStream] = {}
        self.dropped: deque[Replica] = deque()
        self.journal: Journal | None = None

    def restore(self, journal: Journal) -> None:
        """Take what the store keeps. Raises ValueError and TypeError for a record that no node has written."""
        self.journal = journal
        by_number: dict[int, Replica] = {}
        copies: dict[Replica, dict[int, Record | None]] = {}  # which an older version has written
        for number, content in list(journal.kept.items()):
            if not isinstance(content, StoredRecord):
                continue
            record = content.stored
            if record[0] == REPLICA:
                _, node, store_id, starts, version, position, is_complete, names, *more = record
                replica = Replica(checked(str, node), checked(str, store_id), journal)
                replica.starts = checked(int, starts)
                replica.version = checked(int, version)
                replica.position = checked(int, position)
                replica.is_complete = checked(bool, is_complete)
                replica.names = tuple([checked(str, name) for name in checked(tuple, names)])
                replica.stored_below = count_of(more[0]) if more else 0
                replica.own = number
                by_number[number] = self.by_store[replica.store_id] = replica
                journal.kept[number] = replica
            elif record[0] == RUN:
                _, own, packed = record
                found = self._of(by_number, number, own)
                journal.kept[number] = found.restore(number, checked(bytes, packed))
            elif record[0] == COPY:
                _, own, there, values = record
                found = self._of(by_number, number, own)
                copies.setdefault(found, {})[checked(int, there)] = checked(tuple, values)
                journal.drop(number)
        for found, records in copies.items():
            for packed in pack_records(records):
                found.apply(unpack_records(packed), packed)
        for found in by_number.values():
            if not found.is_complete:  # its node brings all of it once more, or it was being forgotten
                self.drop(found)

    def _of(self, by_number: dict[int, Replica], number: int, own: object) -> Replica:
        found = by_number.get(checked(int, own))
        if found is None:
            raise ValueError(f"record {number} is of a replica that is not there")
        return found

    def hello(
        self, node: str, store_id: str, starts: int, version: int, names: tuple[str, ...]
    ) -> tuple[Replica, bool]:
        """(the replica of this store, whether it goes on behind its position). Raises NoKeeper."""
        journal = self.journal
        if journal is None:
            raise NoKeeper("this node has no store")
        if self.members.get(node) != store_id:
            raise NoKeeper(f"{node} has not yet joined with this store")
        replica = self.by_store.get(store_id)
        if replica is None:
            if len(self.by_store) >= REPLICAS_MAX:
                raise NoKeeper(f"this node keeps {REPLICAS_MAX} copies already")
            replica = self.by_store[store_id] = Replica(node, store_id, journal)
        is_known = replica.is_complete and replica.node == node and replica.starts == starts
        replica.node = node
        replica.begin_stream(version, names)
        return replica, is_known

    def drop(self, replica: Replica) -> None:
        stream = self.connections.get(replica.store_id)
        if stream is not None:
            stream.end("this node keeps the copy no more")
        if self.by_store.get(replica.store_id) is replica:
            del self.by_store[replica.store_id]
        replica.end()
        self.dropped.append(replica)

    def turn_ended(self) -> None:
        """Forget more of what was dropped."""
        if self.dropped and self.dropped[0].drop_some(DROPPED_OF_A_TURN):
            self.dropped.popleft()
