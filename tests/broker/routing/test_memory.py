"""The memory of the trees for filters of any shape."""

import pytest

from broker.message import Message
from broker.routing.retained import RetainedStore
from broker.routing.trie import Trie
from filter_shapes import LEVELS, SHAPES, bound, memory_of


def trie_of(filters: list[bytes]) -> Trie:
    trie = Trie()
    for topic_filter in filters:
        trie.set(bytes(bytearray(topic_filter)), True)  # a copy, so that the filters themselves are measured too
    return trie


@pytest.mark.parametrize("shape", SHAPES)
def test_filters(shape: str) -> None:
    filters = SHAPES[shape]()
    taken = memory_of(lambda: trie_of(filters))
    assert taken <= bound(filters)
    # The rest of the bound is for subscriptions, nodes and groups of a filter.
    assert taken <= sum(600 + 3 * len(topic_filter) for topic_filter in filters)


def test_a_tree_frees_memory() -> None:
    """Of thousands of filters in each place all but two are deleted."""

    def make() -> Trie:
        trie = Trie()
        for place in range(5):
            filters = [b"place-%d/%d" % (place, number) for number in range(2_000)]
            for topic_filter in filters:
                trie.set(topic_filter, True)
            for topic_filter in filters[2:]:
                trie.delete(topic_filter)
        assert len(trie) == 10
        return trie

    assert memory_of(make) <= 10 * 1_000


def test_a_deep_filter_after_the_others_are_deleted() -> None:
    """Other filters ended at each of its levels."""

    def make() -> Trie:
        trie = Trie()
        filters = [b"ab/" * count + last for count in range(LEVELS) for last in (b"x", b"+", b"#")]
        for topic_filter in filters:
            trie.set(topic_filter, True)
        for topic_filter in filters[:-1]:
            assert trie.delete(topic_filter)
        assert trie.items() == [(filters[-1], True)]
        return trie

    assert memory_of(make) <= 1_000 + 6 * 3 * LEVELS


def store_of(filters: list[bytes], payload: bytes = b"xy") -> RetainedStore:
    """Each message with a topic, a payload, properties and a deadline of its own, replaced once."""
    store = RetainedStore()
    for count in (1, 2):
        for index, topic_filter in enumerate(filters):
            topic = topic_filter.replace(b"+", b"b").replace(b"#", b"h")
            properties = bytes(bytearray(count * 10))
            store.put(Message(topic, payload + b"%d" % index, 1, True, properties, 1e9 + index, f"client-{index}"))
    return store


@pytest.mark.parametrize("shape", SHAPES)
def test_max_retained_bytes_covers_the_memory_of_messages(shape: str) -> None:
    filters = SHAPES[shape]()
    counted = store_of(filters).bytes
    taken = memory_of(lambda: store_of(filters))
    assert taken <= counted
    assert counted <= bound(filters) + 100 * len(filters)  # 100: payload, properties and client id


def test_large_messages_count_their_size() -> None:
    filters = [b"topic-%d" % number for number in range(100)]
    payload = bytes(10_000)
    counted = store_of(filters, payload).bytes
    assert memory_of(lambda: store_of(filters, payload)) <= counted <= 100 * (10_000 + 2_000)


def test_deadlines_of_messages_that_are_gone() -> None:
    """Deadlines do not keep the long topics of deleted and replaced messages in memory."""
    counted = store_of([b"topic-%d" % number for number in range(500)]).bytes

    def make() -> RetainedStore:
        store = store_of([b"topic-%d" % number for number in range(500)])
        for number in range(500):
            topic = b"%d" % number + bytes(50_000)
            for payload in (b"1", b"2", b""):
                store.put(Message(bytes(bytearray(topic)), payload, 1, True, b"", 1e9))
        assert store.bytes == counted
        return store

    assert memory_of(make) <= counted + 300_000
