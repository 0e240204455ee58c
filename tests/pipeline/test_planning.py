"""How far a batch goes: limits, shares, caps; and ranges that together are the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.offsets import LogOffset, NodeState, Offsets
from pipeline.planning import Range, plan_end, ranges, share, split

backlogs = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 10_000), min_size=1)


@given(backlogs, st.integers(1, 20_000))
def test_a_limit_is_shared_in_proportion(unread: dict[str, int], limit: int) -> None:
    found = share(limit, unread)
    total = sum(unread.values())
    assert found.keys() == unread.keys()
    for node, count in found.items():
        assert 1 <= count <= unread[node]
        assert total <= limit or abs(count - unread[node] * limit / total) <= 1
    assert sum(found.values()) <= limit + len(unread)


def test_bytes_are_shared_by_the_mean_of_each_node() -> None:
    assert share(3_000, {"a": 10, "b": 10}, {"a": 100.0, "b": 500.0}) == {"a": 5, "b": 5}
    assert share(6_000, {"a": 10, "b": 10}, {"a": 100.0, "b": 500.0}) == {"a": 10, "b": 10}


def state(node: str, first: int, following: int, record_bytes: float = 100.0) -> NodeState:
    return NodeState(node, f"{node}:1", f"L-{node}", first, following, record_bytes)


def at(**offsets: int) -> Offsets:
    return {node: LogOffset(f"L-{node}", offset) for node, offset in offsets.items()}


NODES = {"a": state("a", 0, 1000), "b": state("b", 0, 500)}


def test_a_batch_without_a_limit_takes_all() -> None:
    start = at(a=0, b=100)
    assert plan_end(start, start, NODES) == at(a=1000, b=500)


def test_limits_of_records_and_bytes() -> None:
    start = at(a=0, b=0)
    assert plan_end(start, start, NODES, max_offsets=300) == at(a=200, b=100)
    assert plan_end(start, start, NODES, max_bytes=30_000) == at(a=200, b=100)
    assert plan_end(start, start, NODES, max_offsets=300, max_bytes=15_000) == at(a=100, b=50)


def test_a_node_that_is_away_keeps_its_offset() -> None:
    start = at(a=10, b=20)
    assert plan_end(start, at(b=20), {"b": NODES["b"]}) == at(a=10, b=500)


def test_a_node_that_enters_gets_its_first_offset_and_then_its_records() -> None:
    nodes = {**NODES, "c": state("c", 7, 9)}
    first = plan_end(at(a=1000, b=500), at(a=1000, b=500, c=7), nodes)
    assert first == at(a=1000, b=500, c=7)
    assert ranges(at(a=1000, b=500), first, nodes) == []
    assert plan_end(first, first, nodes) == at(a=1000, b=500, c=9)


def test_another_log_enters_like_a_new_node() -> None:
    start = {"a": LogOffset("old", 77)}
    begin = at(a=0)
    assert plan_end(start, begin, NODES) == begin
    assert ranges(start, begin, NODES) == []


def test_caps_are_not_passed_and_a_node_without_one_stays() -> None:
    start = at(a=10, b=20)
    assert plan_end(start, start, NODES, caps={"a": 50}) == at(a=50, b=20)
    assert plan_end(start, start, NODES, caps={"a": 5, "b": 5000}) == at(a=10, b=500)


def test_reading_goes_on_behind_records_that_are_gone() -> None:
    assert plan_end(at(a=10), at(a=600), NODES, max_offsets=100) == at(a=700)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=4), st.integers(0, 40))
def test_parts_are_the_whole(spans: list[tuple[int, int]], partitions: int) -> None:
    whole = [Range(str(n), "address", "log", start, start + size) for n, (start, size) in enumerate(spans)]
    parts = split(whole, partitions)
    read = [(part.node, offset) for part in parts for offset in range(part.start, part.end)]
    assert read == [(each.node, offset) for each in whole for offset in range(each.start, each.end)]
    assert all(len(part) for part in parts)
    assert len(parts) >= min(partitions, sum(map(len, whole)))
    assert len(parts) <= max(partitions, 0) + len(whole)
