"""The copy of another node's store that this node keeps: in runs, each of which is one record in the store of this node.

A run is what came in one frame, as it came: records of the other store by number, and the numbers of deleted ones. The newest
run with a number says what that record is. Runs go in their order, the oldest first: so what a run says of a deleted record is
needed no more when the run goes, since the record was in an older one. What still lives in the oldest run is written once more
then.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final, TypeVar, cast

from broker.store.journal import Content, Journal
from broker.store.kinds import (
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
    RUN,
    SESSION,
    SUBSCRIPTION,
    WILL,
)
from federation.replication.contents import WITH_CLIENT, Contents, Record, check_record
from federation.replication.wire import pack_records, unpack_records

Key = TypeVar("Key")
Value = TypeVar("Value")
COPIED_KINDS: Final = (
    *(SESSION, SUBSCRIPTION, MESSAGE, OUTGOING, RECEIVED),
    *(OUTBOX, POSITION, HOME, DEPARTING, ENDED, HEAD, WILL),
)
"""What all nodes have is not copied, nor what belongs to a store alone: retained messages, interest, copies of others."""
DEAD_BYTES_MAX: Final = 2**20  # in the runs of a replica, beside as many as live; policy: the oldest run goes
MOVED_BYTES_MAX: Final = (
    2**18
)  # about so many living bytes are written once more for one frame; the rest with the next ones
RUN_BYTES: Final = 128  # what a run takes beside what came


class Run(Content):
    """replica  number of the record of the replica
    own      of the run's record here
    packed   what came (wire)
    living   number of records in it that are so now
    share    bytes of each
    size     bytes of all
    """

    __slots__ = ("living", "own", "packed", "replica", "share", "size")

    def __init__(self, replica: int, packed: bytes) -> None:
        self.replica = replica
        self.own = 0
        self.packed = packed
        self.size = len(packed) + RUN_BYTES
        self.living = 0
        self.share = 0

    def values(self, wall_offset: float) -> Record:
        """(RUN, number of the replica's record, what came)."""
        return RUN, self.replica, self.packed


class Replica(Content):
    """node        whose store it is, or was
    store_id
    starts      of the node when the base of the replica came; records of another start may have other contents
    version     of its list of keepers, which `names` is
    position    number of the last batch that is here
    stored_below  records with lower numbers were on the disk of the node at that batch; 0 where it is not known
    is_complete  the whole store was here once; what has come since is `position`
    own         number of its record here
    runs        the oldest first
    where       the run that has a record, by the number of the record there
    by_client   the number of the record there of a session, or of a will that none has, by client id
    emptied     keepers that have lost their copies since the home was here
    contents    of the records, once `open_some` was called
    size        bytes of the runs
    living      of these, bytes of records that live
    moved       number of records that were written once more
    """

    def __init__(self, node: str, store_id: str, journal: Journal) -> None:
        self.node = node
        self.store_id = store_id
        self.starts = 0
        self.version = 0
        self.position = 0
        self.stored_below = 0
        self.is_complete = False
        self.names: tuple[str, ...] = ()
        self.own = 0
        self.runs: deque[Run] = deque()
        self.where: dict[int, Run] = {}
        self.by_client: dict[str, int] = {}
        self.emptied: dict[str, None] = {}
        self.contents: Contents | None = None
        self.size = 0
        self.living = 0
        self.moved = 0
        self._sessions: dict[int, str] = {}  # client ids, by the number of a session's record there
        self._fresh: dict[int, None] | None = None  # records that have come since the base began
        self._closed: deque[Run] = deque()  # whose records are not all in `contents` yet
        self._journal = journal

    def values(self, wall_offset: float) -> Record:
        """(REPLICA, node, store id, starts, version, position, is_complete, names of the keepers, stored_below); a store of an
        earlier build has one value less."""
        return (
            REPLICA,
            self.node,
            self.store_id,
            self.starts,
            self.version,
            self.position,
            self.is_complete,
            self.names,
            self.stored_below,
        )

    def changed(self) -> None:
        if self.own:
            self._journal.change(self.own, self)
        else:
            self.own = self._journal.keep(self)

    # --- what comes ---

    def begin_stream(self, version: int, names: tuple[str, ...]) -> None:
        """Its node brings it up to date, or brings all of it."""
        self._fresh = None
        self.emptied.clear()
        self.version = version
        self.names = names
        self.changed()

    def apply_base(self, records: dict[int, Record | None], packed: bytes) -> None:
        """A part of all that the other store has; what does not come before `end_base` is there no more."""
        if self._fresh is None:
            self._fresh = {}
        self._fresh.update(dict.fromkeys(records))
        self.apply(records, packed)

    def end_base(self, starts: int, position: int, stored_below: int) -> None:
        fresh = self._fresh or {}
        self._fresh = None
        self.remove([number for number in self.where if number not in fresh])
        for number, client_id in self._sessions.items():
            self.by_client.setdefault(client_id, number)
        self.starts = starts
        self.is_complete = True
        self.reached(position, stored_below)

    def reached(self, position: int, stored_below: int) -> None:
        """This batch is here as a whole."""
        self.position = position
        self.stored_below = stored_below
        self.changed()

    def apply(self, records: dict[int, Record | None], packed: bytes) -> None:
        """Records as they are in the other store now, None for a deleted one; packed: the same, as it came."""
        for record in records.values():
            if record is not None:
                check_record(record)
        run = Run(self.own, packed)
        run.own = self._journal.keep(run)
        self._take(run, records)
        self._clean()

    def remove(self, numbers: list[int]) -> None:
        """They are in the other store no more, or are this node's own."""
        for packed in pack_records(dict.fromkeys(numbers)) if numbers else ():
            self.apply(unpack_records(packed), packed)

    def restore(self, number: int, packed: bytes) -> Run:
        """Take a run, which the store here has, behind those before it. Raises WireError and TypeError for one that no node has
        sent."""
        run = Run(self.own, packed)
        run.own = number
        records = unpack_records(packed)
        for record in records.values():
            if record is not None:
                check_record(record)
        self._take(run, records)
        return run

    def _take(self, run: Run, records: dict[int, Record | None]) -> None:
        where = self.where
        living = 0
        for number, record in records.items():
            before = where.get(number)
            if before is not None:
                before.living -= 1
                self.living -= before.share
                if number in self._sessions and (
                    record is None or record[0] not in WITH_CLIENT or record[1] != self._sessions[number]
                ):
                    self._end_session(number)
            if record is None:
                where.pop(number, None)
                continue
            where[number] = run
            living += 1
            if record[0] in WITH_CLIENT:
                client_id = cast(str, record[1])
                self._sessions[number] = client_id
                if number > self.by_client.get(client_id, 0):  # another one of the client is leaving
                    self.by_client[client_id] = number
        self._append(run, living)
        if self.contents is not None:
            self.contents.take(records)

    def _append(self, run: Run, living: int) -> None:
        run.living = living
        run.share = run.size // max(living, 1)
        self.runs.append(run)
        if self._closed:  # what moved to it may have been in one of these
            self._closed.append(run)
        self.size += run.size
        self.living += run.share * living

    def _end_session(self, number: int) -> None:
        client_id = self._sessions.pop(number)
        if self.by_client.get(client_id) == number:
            del self.by_client[client_id]

    # --- what goes ---

    def _clean(self) -> None:
        """Let the oldest runs go until the others have no more dead bytes than they may."""
        moved: dict[int, Record | None] = {}
        moved_bytes = 0
        while self.size > 2 * self.living + moved_bytes + DEAD_BYTES_MAX and moved_bytes < MOVED_BYTES_MAX:
            run = self.runs[0]
            if run.living:
                moved_bytes += run.share * run.living
                moved.update(self._living(run))
            self._drop_oldest()
        self.moved += len(moved)
        for packed in pack_records(moved) if moved else ():
            run = Run(self.own, packed)
            run.own = self._journal.keep(run)
            numbers = list(unpack_records(packed))
            for number in numbers:
                self.where[number] = run
            self._append(run, len(numbers))

    def _drop_oldest(self) -> None:
        run = self.runs.popleft()
        self.size -= run.size
        self.living -= run.share * run.living
        self._journal.drop(run.own)

    def end(self) -> None:
        """It is needed no more, and does not come back with the next start: `drop_some` follows."""
        self.is_complete = False
        self.changed()

    def drop_some(self, count: int) -> bool:
        """Forget so many runs and records. True when all of it is forgotten."""
        while self.runs and count > 0:
            self._drop_oldest()
            count -= 1
        self._closed.clear()
        contents = self.contents
        if contents is not None:
            count = _pop(contents.records, _pop(contents.sessions, _pop(contents.homes, count)))
        count = _pop(self.where, _pop(self.by_client, _pop(self._sessions, count)))
        if count == 0:
            return False
        self.contents = None
        if self.own:
            self._journal.drop(self.own)
            self.own = 0
        return True

    # --- what is there ---

    def open_some(self, count: int) -> bool:
        """Sort more of its records by what they belong to: whole runs, until it were so many. True when `contents` has all."""
        if self.contents is None:
            self.contents = Contents()
            self._closed.extend(self.runs)
        while self._closed and count > 0:
            records = self._living(self._closed.popleft())
            self.contents.take(records)
            count -= 1 + len(records)
        return not self._closed

    def record(self, number: int) -> Record | None:
        """Return one record. Until all are sorted this reads its run."""
        if self.contents is not None and (number in self.contents.records or not self._closed):
            return self.contents.records.get(number)
        run = self.where.get(number)
        return None if run is None else self._living(run).get(number)

    def records(self) -> dict[int, Record]:
        """All records, by rising numbers."""
        found: dict[int, Record] = {}
        for run in self.runs:
            found.update(self._living(run))
        return {number: found[number] for number in sorted(found)}

    def _living(self, run: Run) -> dict[int, Record]:
        where = self.where
        records = unpack_records(run.packed)
        return {number: record for number, record in records.items() if record is not None and where.get(number) is run}


def _pop(table: dict[Key, Value], count: int) -> int:
    """Remove so many entries. Return how many more there may be."""
    while table and count > 0:
        table.popitem()
        count -= 1
    return count
