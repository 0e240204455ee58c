"""The former ids of a log: how far each one still names its records, against all records one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.event_log.lineage import OFFSET_END, PARENTS_MAX, Lineage, Parent, lineage_of


def test_a_log_knows_its_id_and_no_other() -> None:
    assert Lineage("a").shared_end("a") == OFFSET_END
    assert Lineage("a").shared_end("b") is None


def test_the_parent_and_the_first_offset_that_may_differ_are_named() -> None:
    assert Lineage("a").child("b", 10) == Lineage("b", (Parent("a", 10),))
    assert Lineage("a").child("b", 10).child("c", 4).parents == (Parent("a", 4), Parent("b", 4))
    assert Lineage("a").child("b", 4).child("c", 10).parents == (Parent("a", 4), Parent("b", 10))
    assert lineage_of("c", [["a", 4], ["b", 10]]) == Lineage("a").child("b", 4).child("c", 10)  # type: ignore[list-item]


def test_the_oldest_ids_are_forgotten() -> None:
    lineage = Lineage("0")
    for number in range(1, PARENTS_MAX + 3):
        lineage = lineage.child(str(number), number)
    assert (len(lineage.parents), lineage.shared_end("1"), lineage.shared_end("2")) == (PARENTS_MAX, None, 3)


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
