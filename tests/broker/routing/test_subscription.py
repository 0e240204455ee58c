"""Entries of the local tree: which subscription of a filter and share name is the first, and which the last."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from broker.routing.subscriber import Subscriber
from broker.routing.subscription import FilterEntry, Subscription, add_subscription, interest, remove_subscription
from broker.routing.trie import Trie

FILTERS = [b"a", b"a/+", b"#"]
SHARES = [b"", b"g", b"h"]


def subscription(session: Subscriber, share_name: bytes, topic_filter: bytes) -> Subscription:
    return Subscription(session, share_name, topic_filter, 1, False, False, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(SHARES), st.sampled_from(FILTERS)), max_size=40),
    st.integers(0, 1_000),
)
def test_first_and_last(keys: list[tuple[int, bytes, bytes]], seed: int) -> None:
    """Subscriptions come and go in any order; the tree agrees with a set."""
    sessions = [Subscriber(f"c{number}") for number in range(4)]
    made = {key: subscription(sessions[key[0]], key[1], key[2]) for key in keys}
    tree = Trie()
    present: list[tuple[bytes, bytes]] = []
    for (_, share_name, topic_filter), each in made.items():
        assert add_subscription(tree, each) is ((share_name, topic_filter) not in present)
        present.append((share_name, topic_filter))
    assert sorted(interest(tree)) == sorted(set(present))
    order = list(made.items())
    random.Random(seed).shuffle(order)
    for (_, share_name, topic_filter), each in order:
        present.remove((share_name, topic_filter))
        assert remove_subscription(tree, each) is ((share_name, topic_filter) not in present)
        assert sorted(interest(tree)) == sorted(set(present))
    assert len(tree) == 0


def test_one_entry_holds_all_kinds() -> None:
    tree = Trie()
    session = Subscriber("c")
    for name in SHARES:
        add_subscription(tree, subscription(session, name, b"a"))
    entry = tree.get(b"a")
    assert isinstance(entry, FilterEntry)
    assert list(entry.subscriptions) == [session]
    assert entry.groups is not None
    assert list(entry.groups) == [b"g", b"h"]
