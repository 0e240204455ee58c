"""The former ids of a log: how far each one still names its records, against all records one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.lineage import (
    CLOCK_BEGINS_NS,
    CLOCK_NUMBERS_MAX,
    OFFSET_END,
    PARENTS_MAX,
    Lineage,
    Parent,
    clock_number,
)


def test_a_log_knows_its_id_and_no_other() -> None:
    assert Lineage("a").shared_end("a") == OFFSET_END
    assert Lineage("a").shared_end("b") is None


def test_the_parent_and_the_first_offset_that_may_differ_are_named() -> None:
    assert Lineage("a").child("b", 10) == Lineage("b", (Parent("a", 10, 0),), 1)
    assert Lineage("a").child("b", 10).child("c", 4).parents == (Parent("a", 4, 0), Parent("b", 4, 1))
    assert Lineage("a").child("b", 4).child("c", 10).parents == (Parent("a", 4, 0), Parent("b", 10, 1))


def test_the_oldest_ids_are_forgotten() -> None:
    lineage = Lineage("0")
    for number in range(1, PARENTS_MAX + 3):
        lineage = lineage.child(str(number), number)
    assert (len(lineage.parents), lineage.shared_end("1"), lineage.shared_end("2")) == (PARENTS_MAX, None, 3)
    assert lineage.number == PARENTS_MAX + 2


def test_numbers_rise_with_the_clock() -> None:
    assert [clock_number(CLOCK_BEGINS_NS + seconds * 10**9) for seconds in (-5, 0, 7)] == [0, 0, 7]
    assert clock_number(2**64) == CLOCK_NUMBERS_MAX < 2**31 - 10**6
    assert Lineage("a", (), 5).child("b", 1, 9).number == 9
    assert Lineage("a", (), 9).child("b", 1, 5).number == 10, "the clock was ahead"


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), max_size=8))
def test_records_before_the_shared_end_are_the_same_and_the_one_at_it_may_differ(
    steps: list[tuple[int, int]],
) -> None:
    """Each step cuts the log and appends; every record has a number of its own."""
    lineage = Lineage("0")
    records = list(range(10))
    then = {"0": list(records)}  # what the log had under each id, at its end
    number = 10
    for step, (wanted, count) in enumerate(steps, 1):
        then[lineage.log_id] = list(records)
        end = min(wanted, len(records))
        lineage = lineage.child(str(step), end)
        records = records[:end] + list(range(number, number + count))
        number += count
    for log_id, known in then.items():
        shared_end = lineage.shared_end(log_id)
        assert shared_end is not None
        if log_id != lineage.log_id:
            assert known[:shared_end] == records[:shared_end]
            same = [one for one, other in zip(known, records, strict=False) if one == other]
            assert len(same) == min(shared_end, len(known), len(records))
