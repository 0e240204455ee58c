"""Partitions are nodes: all nodes find the same, whatever comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.partitions import (
    PARTITIONS_MAX,
    Entry,
    KnownNodes,
    coordinator_of,
    decode_entries,
    decode_entry,
    encode_entries,
    encode_entry,
    partitions_of,
)

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
entries = st.dictionaries(names, st.builds(Entry, st.integers(0, 9), st.just("10.0.0.1:9092"), st.integers(0, 3)))


@given(entries, names)
def test_a_node_that_joins_changes_no_other_number(known: dict[str, Entry], name: str) -> None:
    before = {each.node: each.number for each in partitions_of(known, known)}
    later = Entry(10, "10.0.0.2:9092", 0)
    after = {each.node: each.number for each in partitions_of(known | {name: known.get(name, later)}, known)}
    assert {node: after[node] for node in before} == before
    assert sorted(after.values()) == list(range(len(after)))


@given(entries, st.text(max_size=5), st.data())
def test_a_group_moves_only_from_a_node_that_is_gone(known: dict[str, Entry], group: str, data: st.DataObject) -> None:
    alive = data.draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
    found = coordinator_of(partitions_of(known, alive), group)
    assert (found is None) == (not alive)
    for gone in alive:
        other = coordinator_of(partitions_of(known, alive - {gone}), group)
        assert found is not None
        if gone != found.node:
            assert other is not None
            assert other.node == found.node


@given(st.builds(Entry, st.integers(0, 2**62), st.sampled_from(("h:1", "[::1]:9")), st.integers(0, 100)))
def test_entries_come_back(entry: Entry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"since": "1", "address": "h:1", "epoch": 0}',
        b'{"since": 1, "address": 5, "epoch": 0}',
        b'{"since": 1, "address": "h", "epoch": 0}',
        b'{"since": 1, "address": "h:1", "epoch": -1}',
        b"\xff",
        b"[" * 1_000,
        b'{"since": 1e999, "address": "h:1", "epoch": 0}',
        b'{"since": 1, "address": "\\ud800:1", "epoch": 0}',
        b'{"since": 1, "address": "%s:1", "epoch": 0}' % (b"h" * 40_000),
    ],
)
def test_what_somebody_else_wrote_is_no_entry(data: bytes) -> None:
    assert decode_entry(data) is None


@given(entries)
def test_the_entries_of_all_nodes_come_back(known: dict[str, Entry]) -> None:
    data = encode_entries(known)
    assert decode_entries(data) == known
    assert decode_entries(b"nonsense\n\xff {}\n" + data) == known


def test_the_entries_that_are_known_have_a_bound() -> None:
    known = KnownNodes({f"n{number}": Entry(number, "h:1", 0) for number in range(PARTITIONS_MAX)})
    found = known.hear({"early": Entry(0, "h:2", 0), "late": Entry(2**60, "h:3", 0)})
    assert len(found) == PARTITIONS_MAX
    assert ("early" in found, "late" in found, "n999" in found) == (True, False, False)
    assert known.hear({}).keys() == found.keys() - {"early"}
