"""Which numbers of records a store may not have had: those that its starts have left out."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.store.identity import CLOCK_STARTS_MAX, UNSTORED_MAX, StoreIdentity, next_start
from broker.store.journal import Content, Journal
from broker.store.kinds import ENDED, STORE
from broker.store.records import encode_changes
from broker.store.restoring import NUMBERS_OF_A_BATCH, START_BITS, RecordFault, Restoring
from broker.store.store import pack_record, unpack_record
from federation.stream.direct_wire import PROMISED
from federation.stream.serials import Serials

ID = "0a" * 16
TODAY = 1_795_000_000.0
OLD: tuple[object, ...] = (STORE, ID, 1)


class Some(Content):
    def values(self, wall_offset: float) -> tuple[object, ...]:
        return ENDED, "c", 1


class Machine:
    """A disk, and the process that has its store open. had: numbers of all records that were on the disk; lost: of those that
    were in a batch, and never were."""

    def __init__(self, records: dict[int, tuple[object, ...]]) -> None:
        self.records = records
        self.had = set(records)
        self.lost: set[int] = set()
        self.start()

    def start(self, wall: float = 0.0) -> None:
        restoring = Restoring(Broker(MqttSettings(), random.Random(0), 0.0), wall, 0.0)
        for number, record in sorted(self.records.items()):
            restoring.add(number, unpack_record(number, pack_record(record)))
        self.journal: Journal = restoring.end()
        number, self.records[number] = restoring.identity()
        found = self.journal.kept[number]
        assert isinstance(found, StoreIdentity)
        self.identity = found

    def commit(self, is_written: bool = True) -> None:
        batch = encode_changes(self.journal.take(), 0.0)
        for number, record in batch.items():
            if not is_written:
                self.lost.add(number)
            elif record is None:
                self.records.pop(number, None)
            else:
                self.records[number] = record
        if is_written:
            self.had |= batch.keys()
        self.lost -= self.had


def test_a_second_start_knows_what_the_first_one_had_left_out() -> None:
    machine = Machine({1: OLD, 10: (ENDED, "c", 1)})
    assert machine.identity.unstored == ((11, 1 + max(11 + NUMBERS_OF_A_BATCH, 2 << START_BITS)),)
    first = machine.journal.keep(Some())
    machine.commit()
    machine.start()
    assert [machine.identity.is_unstored(number) for number in (10, 12, first, first + 1)] == [False, True, False, True]


def test_what_was_stored_and_deleted_was_stored() -> None:
    machine = Machine({1: OLD})
    numbers = [machine.journal.keep(Some()) for _ in range(10)]
    machine.commit()
    for number in numbers:
        machine.journal.drop(number)
    machine.commit()
    machine.start()
    assert [machine.identity.is_unstored(number) for number in numbers] == [False] * 10
    assert machine.identity.is_unstored(numbers[-1] + 1)


def test_a_start_that_stores_nothing_uses_no_number_that_the_next_one_uses() -> None:
    """A copy may have records of it."""
    machine = Machine({1: OLD})
    used = machine.journal.keep(Some())
    machine.commit(is_written=False)
    machine.start()
    assert machine.journal.next_number > used
    assert machine.identity.is_unstored(used)
    assert len(machine.identity.unstored) == 1


def test_the_oldest_ranges_become_one() -> None:
    identity = StoreIdentity(ID, 1, True)
    for at in range(UNSTORED_MAX + 2):
        identity.leaves_out(at * 10, at * 10 + 5)
    assert len(identity.unstored) == UNSTORED_MAX
    assert identity.unstored[:2] == ((0, 25), (30, 35))


@pytest.mark.parametrize("more", [((), 5, 7), ((), (), 5, 7), ((), (1,))])
def test_a_record_that_no_broker_has_written_is_refused(more: tuple[object, ...]) -> None:
    restoring = Restoring(Broker(MqttSettings(), random.Random(0), 0.0), 0.0, 0.0)
    with pytest.raises(RecordFault, match="record 1"):
        restoring.add(1, (*OLD, *more))


@given(
    st.lists(st.sampled_from(["add", "remove newest", "remove any", "commit", "fail", "start"]), max_size=30),
    st.randoms(),
)
def test_each_lost_number_is_known_and_none_that_was_stored(steps: list[str], rng: random.Random) -> None:
    """A batch that fails is the last one of its process. While no ranges were put together none of the stored ones counts as
    lost."""
    machine = Machine({1: OLD})
    for step in steps:
        own = [number for number in machine.journal.kept if number != machine.journal.own_number]
        if step == "add" or (step.startswith("remove") and not own):
            machine.journal.keep(Some())
        elif step.startswith("remove"):
            machine.commit()
            machine.journal.drop(max(own) if step == "remove newest" else rng.choice(own))
        elif step == "commit":
            machine.commit()
        else:
            if step == "fail":
                machine.journal.keep(Some())
                machine.commit(is_written=False)
            machine.start()
        assert machine.journal.next_number > max(machine.had | machine.lost)
    machine.commit()
    machine.start()
    assert all(machine.identity.is_unstored(number) for number in machine.lost)
    if len(machine.identity.unstored) < UNSTORED_MAX:
        assert not any(machine.identity.is_unstored(number) for number in machine.had)


def test_a_copy_that_is_put_back_starts_with_a_number_of_its_own() -> None:
    """Other nodes know the blocks of the starts that the copy does not know."""
    machine = Machine({})
    copy = dict(machine.records)
    machine.start(TODAY)
    known = machine.identity.starts
    newest = machine.journal.keep(Some())
    machine.records = copy
    machine.start(TODAY + 3600)
    assert machine.identity.starts > known
    assert machine.journal.keep(Some()) > newest


@pytest.mark.parametrize("wall", [-1e9, 0.0, TODAY - 1e8, TODAY, TODAY + 1e8, 1e12])
def test_the_number_of_a_start_rises_and_has_room(wall: float) -> None:
    first = next_start(1, TODAY)
    again = next_start(first, wall)
    assert first < again <= CLOCK_STARTS_MAX
    assert Serials(CLOCK_STARTS_MAX + 2**16).next() < PROMISED
