"""Interest that nodes compare: a difference, however it came about, is mended within two digests."""

from __future__ import annotations

import random

import pytest

from federation.stream.counters import SkipReason
from federation.stream.full_state import DIGEST_SECONDS
from federation.stream.interest_digest import InterestDigest
from federation_world import World

FILTERS = [b"a", b"a/#", b"+/b", b"x/y/z"]


def test_a_digest_is_that_of_the_set() -> None:
    rng = random.Random(3)
    digest = InterestDigest()
    known: set[tuple[bytes, bytes]] = set()
    for _ in range(300):
        key = rng.choice([b"", b"g", b"ga"]), rng.choice(FILTERS)
        is_added = key not in known
        known ^= {key}
        digest.change(*key, is_added)
        other = InterestDigest()
        for each in sorted(known):
            other.change(*each, True)
        assert digest.encode() == other.encode()
    first, second = InterestDigest(), InterestDigest()
    first.change(b"ab", b"c", True)
    second.change(b"a", b"bc", True)
    assert first.encode() != second.encode()


@pytest.mark.parametrize("damage", ["missing", "surplus"])
def test_a_difference_is_mended(damage: str) -> None:
    world = World(2)
    reader = world.client("n2", "s")
    for topic_filter in ("a", "b/#"):
        reader.subscribe(topic_filter)
    world.run(2)
    node = world.nodes["n1"]
    if damage == "missing":
        node.tree.remove_interest("n2", b"", b"a")
    else:
        node.tree.add_interest("n2", b"", b"c")
    world.run(2 * DIGEST_SECONDS)
    assert sorted(node.tree.interest_of("n2")) == [(b"", b"a"), (b"", b"b/#")]
    assert node.counters["n2"].interest_mended == 1
    world.run(4 * DIGEST_SECONDS)
    assert node.counters["n2"].interest_mended == 1
    assert node.counters["n2"].dropped[SkipReason.UNKNOWN] == 0


def test_messages_go_on_over_a_mend_and_come_once() -> None:
    world = World(2)
    reader = world.client("n2", "s")
    reader.subscribe("t")
    publisher = world.client("n1", "p")
    world.run(2)
    world.nodes["n2"].tree.add_interest("n1", b"", b"nobody/wants/this")
    sent = []
    for number in range(300):
        sent.append(b"%d" % number)
        publisher.publish("t", sent[-1])
        world.run(0.25)
    assert reader.payloads == sent
    assert world.nodes["n2"].counters["n1"].interest_mended == 1


def test_filters_that_are_refused_are_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(2)
    node = world.nodes["n1"]
    node.tree._filters_max = 1
    reader = world.client("n2", "s")
    for topic_filter in ("a", "b"):
        reader.subscribe(topic_filter)
    world.run(4 * DIGEST_SECONDS)
    assert node.counters["n2"].interest_mended == 0
    assert node.counters["n2"].dropped[SkipReason.FILTERS_FULL] > 0
