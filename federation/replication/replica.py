"""The copy of another node's store that this node keeps: its records, in the store of this node."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.store.journal import Content, Journal, checked
from broker.store.kinds import (
    COPY,
    DEPARTING,
    ENDED,
    HEAD,
    HOME,
    MESSAGE,
    OUTBOX,
    OUTGOING,
    POSITION,
    RECEIVED,
    REPLICA,
    SESSION,
    SUBSCRIPTION,
)

COPIED_KINDS: Final = (
    *(SESSION, SUBSCRIPTION, MESSAGE, OUTGOING, RECEIVED),
    *(OUTBOX, POSITION, HOME, DEPARTING, ENDED, HEAD),
)
"""What all nodes have is not copied, nor what belongs to a store alone: retained messages, interest, copies of others."""
OF_SESSION: Final = (
    SUBSCRIPTION,
    OUTGOING,
    RECEIVED,
    DEPARTING,
)  # their second value is the number of a session's record

Record = tuple[object, ...]


class Copy(Content):
    """One record of the other store.

    replica  number of the record of the replica
    number   of the record there
    own      of the record here
    """

    __slots__ = ("number", "own", "record", "replica")

    def __init__(self, replica: int, number: int, record: Record) -> None:
        self.replica = replica
        self.number = number
        self.record = record
        self.own = 0

    def values(self, wall_offset: float) -> Record:
        """(COPY, number of the replica's record, number there, record)."""
        return COPY, self.replica, self.number, self.record


class Replica(Content):
    """node        whose store it is, or was
    store_id
    starts      of the node when the base of the replica came; records of another start may have other contents
    version     of its list of keepers, which `names` is
    position    number of the last batch that is here
    is_complete  the whole store was here once; what has come since is `position`
    own         number of its record here
    copies      by the number of the record there
    sessions    by the number of a session's record there: the records that belong to it, by their numbers
    by_client   the number of a session's record there, by client id
    homes       the number of the record HOME there, by client id
    """

    def __init__(self, node: str, store_id: str, journal: Journal) -> None:
        self.node = node
        self.store_id = store_id
        self.starts = 0
        self.version = 0
        self.position = 0
        self.is_complete = False
        self.names: tuple[str, ...] = ()
        self.own = 0
        self.copies: dict[int, Copy] = {}
        self.sessions: dict[int, dict[int, Copy]] = {}
        self.by_client: dict[str, int] = {}
        self.homes: dict[str, int] = {}
        self._journal = journal
        self._fresh: dict[int, None] | None = None  # records that have come since the base began

    def values(self, wall_offset: float) -> Record:
        """(REPLICA, node, store id, starts, version, position, is_complete, names of the keepers)."""
        return (
            REPLICA,
            self.node,
            self.store_id,
            self.starts,
            self.version,
            self.position,
            self.is_complete,
            self.names,
        )

    def changed(self) -> None:
        if self.own:
            self._journal.change(self.own, self)
        else:
            self.own = self._journal.keep(self)

    def begin_stream(self, version: int, names: tuple[str, ...]) -> None:
        """Its node brings it up to date, or brings all of it."""
        self._fresh = None
        self.version = version
        self.names = names
        self.changed()

    def apply_base(self, records: dict[int, Record | None]) -> None:
        """A part of all that the other store has; what does not come before `end_base` is there no more."""
        if self._fresh is None:
            self._fresh = {}
        self.apply(records)

    def end_base(self, starts: int, position: int) -> None:
        fresh = self._fresh or {}
        for number in list(self.copies):
            if number not in fresh:
                self.remove(number)
        self._fresh = None
        self.starts = starts
        self.is_complete = True
        self.reached(position)

    def reached(self, position: int) -> None:
        """This batch is here as a whole."""
        self.position = position
        self.changed()

    def apply(self, records: dict[int, Record | None]) -> None:
        """Records as they are in the other store now."""
        fresh = self._fresh
        for number, record in records.items():
            if record is None:
                self.remove(number)
            elif record[0] in COPIED_KINDS:
                self.put(number, record)
                if fresh is not None:
                    fresh[number] = None

    def put(self, number: int, record: Record) -> None:
        copy = self.copies.get(number)
        if copy is not None and copy.record[:2] == record[:2]:
            copy.record = record
            self._journal.change(copy.own, copy)
            return
        if copy is not None:  # a number of a start that was lost
            self.remove(number)
        copy = Copy(self.own, number, record)
        copy.own = self._journal.keep(copy)
        self.restore(copy)

    def restore(self, copy: Copy) -> None:
        """Take the record, which the store here has."""
        record = copy.record
        self.copies[copy.number] = copy
        kind = record[0]
        if kind == SESSION:
            self.by_client[checked(str, record[1])] = copy.number
            self.sessions.setdefault(copy.number, {})
        elif kind == HOME:
            self.homes[checked(str, record[1])] = copy.number
        elif kind in OF_SESSION:
            self.sessions.setdefault(cast(int, record[1]), {})[copy.number] = copy

    def remove(self, number: int) -> None:
        copy = self.copies.pop(number, None)
        if copy is None:
            return
        self._journal.drop(copy.own)
        record = copy.record
        kind = record[0]
        if kind == SESSION:
            if self.by_client.get(cast(str, record[1])) == number:
                del self.by_client[cast(str, record[1])]
            if not self.sessions.get(number, True):
                del self.sessions[number]
        elif kind == HOME:
            if self.homes.get(cast(str, record[1])) == number:
                del self.homes[cast(str, record[1])]
        elif kind in OF_SESSION:
            session = cast(int, record[1])
            records = self.sessions.get(session)
            if records is not None:
                records.pop(number, None)
                if not records and session not in self.copies:
                    del self.sessions[session]

    def drop(self) -> None:
        """Forget all of it."""
        for number in list(self.copies):
            self.remove(number)
        if self.own:
            self._journal.drop(self.own)
            self.own = 0
