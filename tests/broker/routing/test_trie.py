"""The trie by the specification's own examples (section 4.7)."""

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


def test_delete_leaves_nothing_behind_and_takes_nothing_else() -> None:
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
