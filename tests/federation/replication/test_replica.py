"""The copy of a store in runs, beside a naive one: a dictionary."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import federation.replication.replica
from broker.store.journal import Journal, StoredRecord
from broker.store.kinds import (
    COPY,
    DEPARTING,
    HOME,
    MESSAGE,
    OUTGOING,
    RECEIVED,
    REPLICA,
    RUN,
    SESSION,
    SUBSCRIPTION,
    WILL,
)
from broker.store.records import encode_changes
from effort import effort
from federation.replication.contents import WITH_CLIENT, Contents
from federation.replication.replica import DEAD_BYTES_MAX, MOVED_BYTES_MAX, RUN_BYTES, Replica
from federation.replication.replicas import Replicas
from federation.replication.wire import FRAME_BYTES, FRAME_RECORDS, WireError, pack_records, unpack_records

STORE: Final = "a" * 32
Records = dict[int, "tuple[object, ...] | None"]
LARGE: Final = "x" * (DEAD_BYTES_MAX // 8)


class Disk:
    """A keeper's store; `commit` writes what the journal has."""

    def __init__(self, records: Records | None = None) -> None:
        self.records: dict[int, tuple[object, ...]] = {}
        for number, record in (records or {}).items():
            assert record is not None
            self.records[number] = record
        self.start()

    def start(self) -> None:
        self.journal = Journal()
        for number in sorted(self.records):
            self.journal.begin_behind(number)
            self.journal.kept[number] = StoredRecord(self.records[number])
        self.replicas = Replicas()
        self.replicas.restore(self.journal)
        self.replicas.members = {"n1": STORE}

    def commit(self) -> None:
        for number, record in encode_changes(self.journal.take(), 0.0).items():
            if record is None:
                self.records.pop(number, None)
            else:
                self.records[number] = record
        self.journal.taken_is_stored()

    def hello(self, starts: int = 1) -> tuple[Replica, bool]:
        return self.replicas.hello("n1", STORE, starts, 1, ("n2",))

    def rows(self) -> list[tuple[object, ...]]:
        return [record for record in self.records.values() if record[0] == RUN]


def apply(replica: Replica, records: Records) -> None:
    for packed in pack_records(records):
        replica.apply(unpack_records(packed), packed)


def apply_base(replica: Replica, records: Records) -> None:
    for packed in pack_records(records):
        replica.apply_base(unpack_records(packed), packed)


def with_copy(records: Records) -> tuple[Disk, Replica]:
    """A copy that is whole, and stored."""
    disk = Disk()
    replica, is_known = disk.hello()
    assert not is_known
    apply_base(replica, records)
    replica.end_base(1, 5, 1)
    disk.commit()
    return disk, replica


@pytest.mark.parametrize("has_started_again", [False, True])
def test_a_copy_that_is_forgotten_in_steps_does_not_come_back(has_started_again: bool) -> None:
    """A new one of the same store may be beside it."""
    disk, replica = with_copy({1: (SESSION, "one")})
    for number in range(2, 12):
        apply(replica, {number: (SUBSCRIPTION, 1)})
    replica.open_some(5)
    disk.replicas.drop(replica)
    assert not replica.drop_some(5)
    disk.commit()
    assert disk.rows()
    new, is_known = disk.hello()
    assert not is_known
    apply_base(new, {7: (SESSION, "seven")})
    new.end_base(1, 5, 1)
    disk.commit()
    if has_started_again:
        disk.start()
    while disk.replicas.dropped:
        disk.replicas.turn_ended()
    disk.commit()
    assert disk.replicas.by_store[STORE].records() == {7: (SESSION, "seven")}
    assert len(disk.rows()) == 1
    assert len(disk.records) == 2


def test_a_copy_that_is_not_whole_comes_anew_after_a_start() -> None:
    disk, replica = with_copy({1: (SESSION, "one")})
    replica.end()
    disk.commit()
    disk.start()
    assert disk.replicas.by_store == {}
    assert not disk.hello()[1]


def test_a_batch_is_one_row() -> None:
    disk, replica = with_copy({1: (SESSION, "one")})
    batch: Records = dict.fromkeys(range(2, 1000), (MESSAGE, b"t", b"x" * 100))
    apply(replica, batch)
    disk.commit()
    assert len(disk.rows()) == 2
    assert replica.records() == {1: (SESSION, "one"), **batch}


def test_a_base_leaves_nothing_that_is_there_no_more() -> None:
    disk, replica = with_copy({1: (SESSION, "one"), 2: (OUTGOING, 1, 0), 3: (RECEIVED, 1, 7)})
    assert replica.by_client == {"one": 1}
    apply(replica, {1: None, 2: None, 5: (SESSION, "one")})
    apply_base(replica, {5: (SESSION, "other")})
    replica.end_base(2, 9, 1)
    assert replica.records() == {5: (SESSION, "other")}
    assert replica.by_client == {"other": 5}
    replica.end()
    while not replica.drop_some(1):
        disk.commit()
    disk.commit()
    assert disk.records == {}
    assert disk.journal.kept == {}


def test_a_session_whose_record_was_lost_with_a_start_hides_no_other_one_of_its_client() -> None:
    _, replica = with_copy({1: (SESSION, "one")})
    apply(replica, {7: (SESSION, "one")})
    assert replica.by_client == {"one": 7}
    apply_base(replica, {1: (SESSION, "one")})
    replica.end_base(2, 9, 1)
    assert replica.by_client == {"one": 1}


def test_dead_bytes_are_bounded_and_the_living_record_in_front_of_them_stays() -> None:
    disk, replica = with_copy({1: (SESSION, "stays")})
    for number in range(2, 60):
        apply(replica, {number: (MESSAGE, LARGE), number - 1: None} if number > 2 else {2: (MESSAGE, LARGE)})
        assert replica.size - replica.living <= replica.living + DEAD_BYTES_MAX + RUN_BYTES
    assert replica.moved > 0
    assert replica.records() == {1: (SESSION, "stays"), 59: (MESSAGE, LARGE)}
    assert replica.by_client == {"stays": 1}
    disk.commit()
    assert len(disk.rows()) < 20
    disk.start()
    assert disk.replicas.by_store[STORE].records() == replica.records()


def test_many_living_records_are_moved_some_at_a_time() -> None:
    size = MOVED_BYTES_MAX // 4
    base: Records = dict.fromkeys(range(1, 41), (MESSAGE, "y" * size))
    _, replica = with_copy(base)
    for number in range(100, 160):  # a session that comes, and ends at once
        apply(replica, {number: (MESSAGE, "z" * size)})
    before = replica.moved
    apply(replica, dict.fromkeys(range(100, 160)))
    assert 0 < replica.moved - before <= 6
    for _ in range(20):
        apply(replica, {99: None})
    assert replica.size - replica.living <= replica.living + DEAD_BYTES_MAX + RUN_BYTES
    assert replica.records() == base


def test_a_copy_that_an_older_version_wrote_becomes_a_run() -> None:
    disk = Disk(
        {
            1: (REPLICA, "n1", STORE, 1, 1, 7, True, ("n2",)),
            2: (COPY, 1, 4, (SESSION, "one")),
            3: (COPY, 1, 9, (HOME, "one", 1_000, False, None)),
        }
    )
    for _ in range(2):
        replica = disk.replicas.by_store[STORE]
        assert replica.records() == {4: (SESSION, "one"), 9: (HOME, "one", 1_000, False, None)}
        assert replica.by_client == {"one": 4}
        assert disk.hello() == (replica, True)
        disk.commit()
        assert sorted([record[0] for record in disk.records.values()], key=str) == [REPLICA, RUN]
        disk.start()


@pytest.mark.parametrize(
    "record", [(SESSION,), (SESSION, 1), (HOME, b"c"), (SUBSCRIPTION, "1"), (OUTGOING,), (DEPARTING, None)]
)
def test_what_belongs_nowhere_changes_nothing(record: tuple[object, ...]) -> None:
    disk, replica = with_copy({1: (SESSION, "one")})
    with pytest.raises(TypeError):
        apply(replica, {2: (SESSION, "two"), 3: record})
    assert replica.records() == {1: (SESSION, "one")}
    assert not disk.journal.changes


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x81\xa1x\xc0", b"\x01", b"\x81\x01\x91\x01\x00"])
def test_a_run_that_no_node_has_sent_is_refused(packed: bytes) -> None:
    with pytest.raises(WireError):
        Disk({1: (REPLICA, "n1", STORE, 1, 1, 7, True, ("n2",)), 2: (RUN, 1, packed)})


def test_a_run_of_a_replica_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="record 2 is of a replica that is not there"):
        Disk({2: (RUN, 1, b"\x80")})


def test_pieces_of_records_are_small() -> None:
    many: Records = dict.fromkeys(range(FRAME_RECORDS * 2 + 1), (MESSAGE, b"x"))
    large: Records = dict.fromkeys(range(10), (MESSAGE, b"x" * (FRAME_BYTES // 3)))
    one: Records = {1: (MESSAGE, b"x" * FRAME_BYTES * 2)}
    for records in (many, large, one, {}):
        pieces = pack_records(records)
        found: Records = {}
        for packed in pieces:
            piece = unpack_records(packed)
            assert len(piece) <= FRAME_RECORDS
            assert len(packed) <= FRAME_BYTES or len(piece) == 1
            found.update(piece)
        assert found == records


NUMBERS: Final = st.integers(1, 40)
CLIENTS: Final = st.sampled_from(("a", "b", "c"))
RECORDS: Final = st.one_of(
    st.tuples(st.sampled_from((SESSION, WILL)), CLIENTS),
    st.tuples(st.just(HOME), st.integers(0, 9)),
    st.tuples(st.sampled_from((SUBSCRIPTION, OUTGOING, RECEIVED, DEPARTING)), NUMBERS),
    st.tuples(st.just(MESSAGE), st.integers(0, 2)),
)
BATCHES: Final = st.dictionaries(NUMBERS, st.none() | RECORDS, min_size=1, max_size=12)


def as_sent(batch: Records) -> Records:
    """Messages are large, and come as the numbers of their payloads: what a test prints is small. A client has one HOME."""
    found: Records = {}
    for number, record in batch.items():
        if record is not None and record[0] == MESSAGE:
            found[number] = MESSAGE, f"{record[1]}" * 500
        elif record is not None and record[0] == HOME:
            found[number] = HOME, f"client {number}", record[1]
        else:
            found[number] = record
    return found


class CopyMachine(RuleBasedStateMachine):
    """model   the records, as a naive keeper has them
    base    those that have come since a base began, None without one
    opened  the contents, once all runs were opened
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk, self.replica = with_copy({})
        self.model: dict[int, Any] = {}
        self.stored: dict[int, Any] = {}
        self.base: set[int] | None = None
        self.opened: Contents | None = None

    def _took(self, batch: Records) -> None:
        for number, record in batch.items():
            if record is None:
                self.model.pop(number, None)
            else:
                self.model[number] = record

    @rule(batch=BATCHES)
    def batch_comes(self, batch: Records) -> None:
        batch = as_sent(batch)
        apply(self.replica, batch)
        self._took(batch)

    @rule(batch=BATCHES)
    def base_comes(self, batch: Records) -> None:
        batch = as_sent(batch)
        apply_base(self.replica, batch)
        self._took(batch)
        self.base = (self.base or set()) | set(batch)

    @rule()
    def base_ends(self) -> None:
        self.replica.end_base(1, 9, 1)
        self.model = {number: record for number, record in self.model.items() if number in (self.base or ())}
        self.base = None

    @rule()
    def stream_begins(self) -> None:
        self.disk.hello()
        self.base = None

    @rule(numbers=st.lists(NUMBERS, max_size=5))
    def become_own(self, numbers: list[int]) -> None:
        self.replica.remove(numbers)
        for number in numbers:
            self.model.pop(number, None)

    @rule(count=st.integers(1, 10))
    def opens(self, count: int) -> None:
        if self.replica.open_some(count):
            self.opened = self.replica.contents

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def looks_at_one(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.model)))
        assert self.replica.record(number) == self.model[number]
        assert self.replica.record(1_000) is None

    @rule()
    def commits(self) -> None:
        self.disk.commit()
        self.stored = dict(self.model)

    @rule()
    def starts_again(self) -> None:
        """What was not committed is lost, as in a crash."""
        self.disk.start()
        self.replica = self.disk.replicas.by_store[STORE]
        self.model = dict(self.stored)
        self.base = self.opened = None

    @precondition(lambda self: self.opened is not None)
    @invariant()
    def contents_follow(self) -> None:
        assert self.opened is not None
        fresh = Contents()
        fresh.take(self.model)
        assert self.opened.records == fresh.records
        assert {number: set(found) for number, found in self.opened.sessions.items() if found} == {
            number: set(found) for number, found in fresh.sessions.items() if found
        }
        assert set(self.opened.homes) == set(fresh.homes)

    @invariant()
    def is_as_the_naive_copy(self) -> None:
        assert self.replica.records() == self.model
        assert list(self.replica.records()) == sorted(self.model)
        found = [record for record in self.model.values() if record[0] in WITH_CLIENT]
        clients = {record[1] for record in found}
        for client_id, number in self.replica.by_client.items():
            assert self.model[number] in [(kind, client_id) for kind in WITH_CLIENT]
        if len(clients) == len(found):
            assert set(self.replica.by_client) <= clients

    @invariant()
    def bytes_are_counted(self) -> None:
        runs = self.replica.runs
        assert self.replica.size == sum(run.size for run in runs)
        assert self.replica.living == sum(run.share * run.living for run in runs)
        for run in runs:
            assert run.living == sum(found is run for found in self.replica.where.values())


@pytest.mark.interpreted
def test_a_copy_is_as_a_naive_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation.replication.replica, "DEAD_BYTES_MAX", 2_000)
    monkeypatch.setattr(federation.replication.replica, "MOVED_BYTES_MAX", 1_000)
    run_state_machine_as_test(
        CopyMachine, settings=settings(max_examples=effort(160), stateful_step_count=40, deadline=None)
    )
