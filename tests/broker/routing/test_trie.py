"""The trie by the specification's own examples [MQTT5 4.7]."""

from itertools import product

import pytest

from broker.routing.names import TOPIC_LEVELS_MAX
from broker.routing.trie import Trie


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        (b"sport/tennis/player1/#", b"sport/tennis/player1", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking", True),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
        (b"sport/#", b"sport", True),
        (b"#", b"a/b/c", True),
        (b"sport/tennis/+", b"sport/tennis/player1", True),
        (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),
        (b"sport/+", b"sport", False),
        (b"sport/+", b"sport/", True),
        (b"+/+", b"/finance", True),
        (b"/+", b"/finance", True),
        (b"+", b"/finance", False),
        (b"#", b"$SYS/x", False),
        (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),
        (b"$SYS/#", b"$SYS/x", True),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
        (b"a/+", b"a/$b", True),
        (b"A", b"a", False),
        (b"/a", b"a", False),
    ],
)
def test_match(topic_filter: bytes, topic: bytes, matches: bool) -> None:
    trie = Trie()
    trie.set(topic_filter, "value")
    assert trie.match(topic) == (["value"] if matches else [])


def test_deepest_filters() -> None:
    trie = Trie()
    levels = TOPIC_LEVELS_MAX
    trie.set(b"/".join([b"+"] * levels), 1)
    trie.set(b"/".join([b"a"] * levels), 2)
    assert sorted(map(str, trie.match(b"/".join([b"a"] * levels)))) == ["1", "2"]
    assert trie.match(b"/".join([b"a"] * (levels + 1))) == []


def test_delete_removes_one_filter_and_its_nodes() -> None:
    trie = Trie()
    for topic_filter in (b"a", b"a/b/c", b"a/+/c", b"a/#"):
        trie.set(topic_filter, topic_filter)
    assert not trie.delete(b"a/b")
    assert not trie.delete(b"a/b/#")
    assert not trie.delete(b"x/#")
    assert trie.delete(b"a/b/c")
    assert not trie.delete(b"a/b/c")
    assert trie.get(b"a/+/c") == b"a/+/c"
    assert len(trie) == 3
    assert sorted(str(topic_filter) for topic_filter, _ in trie.items()) == ["b'a'", "b'a/#'", "b'a/+/c'"]


def test_visited_levels_of_a_match() -> None:
    """`visited` counts levels of filters, the steps of a match."""
    trie = Trie()
    assert trie.match(b"a/b") == []
    assert trie.visited == 0
    for topic_filter in (b"a/b", b"a/c", b"x/y/z", b"+/b", b"#"):
        trie.set(topic_filter, topic_filter)
    trie.match(b"q")
    assert trie.visited == 2  # the levels of +/b, which are one node
    trie.match(b"x/y/z")
    assert trie.visited == 5
    trie.match(b"a/b")
    assert trie.visited == 4


def test_the_work_of_a_match_is_counted_also_where_nothing_matches() -> None:
    trie = Trie()
    for levels in product([b"+", b"a"], repeat=10):
        trie.set(b"/".join(levels), levels)
    for last, found in ((b"a", 2**10), (b"b", 2**9)):
        assert len(trie.match(b"a/" * 9 + last)) == found
        assert trie.visited >= found
    trie.match(b"b/" * 9 + b"b")
    assert trie.visited == 10


def test_a_chain_splits_and_merges() -> None:
    trie = Trie()
    trie.set(b"a/b/c/d", 1)
    trie.set(b"a/b/+/d/#", 2)
    trie.set(b"a/b", 3)
    assert [sorted(map(str, trie.match(topic))) for topic in (b"a", b"a/b", b"a/b/c", b"a/b/c/d", b"a/b/c/d/e")] == [
        [],
        ["3"],
        [],
        ["1", "2"],
        ["2"],
    ]
    assert [trie.get(path) for path in (b"a", b"a/b/c", b"a/b/+/d", b"a/b/c/d/#")] == [None] * 4
    assert trie.delete(b"a/b")
    assert not trie.delete(b"a/b")
    assert trie.delete(b"a/b/+/d/#")
    assert trie.match(b"a/b/c/d") == [1]
    assert trie.visited == 4
    assert trie.items() == [(b"a/b/c/d", 1)]


def test_values_are_replaced() -> None:
    trie = Trie()
    for value in (1, 2):
        trie.set(b"a/#", value)
        trie.set(b"a", value)
    assert (len(trie), trie.changes) == (2, 4)
    assert trie.match(b"a") == [2, 2]
