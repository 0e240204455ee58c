"""The retained store by example."""

from broker.message import NEVER, Message
from broker.routing.retained import RetainedStore, RetainedWalk, retained_bytes
from retained_search import matching


def message(topic: bytes, payload: bytes = b"x", expires_at: float = NEVER) -> Message:
    return Message(topic, payload, 1, True, b"", expires_at)


def test_bytes_are_bounded() -> None:
    """A message that is too large deletes the older one of its topic."""
    store = RetainedStore(bytes_max=2 * retained_bytes(message(b"a", bytes(100))))
    assert store.put(message(b"a", bytes(100)))
    assert store.put(message(b"b", bytes(100)))
    assert not store.put(message(b"c", b"x"))
    assert store.put(message(b"a", bytes(50)))
    assert store.put(message(b"a", bytes(100)))
    assert store.put(message(b"a", bytes(101)))
    assert [found.topic for found in store.messages()] == [b"b"]
    assert store.put(message(b"b", b""))
    assert store.bytes == 0


def test_expiry() -> None:
    store = RetainedStore()
    store.put(message(b"a", expires_at=10.0))
    store.put(message(b"b", expires_at=20.0))
    assert [found.topic for found in matching(store, b"#", 10.0)] == [b"b"]
    assert matching(store, b"a", 10.0) == []
    assert store.expire(9.9) == 0
    assert store.expire(20.0, 1) == 1
    assert store.expire(20.0, 10) == 1
    assert store.messages() == []


def test_replaced_deadlines_stay_bounded() -> None:
    store = RetainedStore()
    for count in range(10_000):
        store.put(message(b"a", expires_at=1_000.0 + count))
    assert store.expire(10_000.0, 5_000) == 0  # only the last deadline counts
    assert store.expire(1e9, 5_000) == 1
    assert store.messages() == []


def test_a_walk_stops_at_its_limit_and_continues() -> None:
    """The search for a filter without a match is sliced too."""
    store = RetainedStore()
    for number in range(100):
        store.put(message(b"a/%d/x" % number))
    for topic_filter in (b"a/+/y", b"a/+/x/z/#"):
        walk = RetainedWalk(store, topic_filter)
        assert walk.advance(1) == 1
        assert not walk.is_done()
        assert walk.advance(1) == 100  # all below one level
        while not walk.is_done():
            assert walk.advance(10) <= 10
            assert walk.found is None


def test_a_walk_continues_below_a_deleted_node() -> None:
    store = RetainedStore()
    for topic in (b"a/b", b"a/b/c/d", b"x"):
        store.put(message(topic))
    walk = RetainedWalk(store, b"#")
    walk.advance(1)  # the root: a/b and x are next
    store.put(message(b"a/b", b""))  # what is below it moves up
    store.put(message(b"a/b/c", b"2"))  # and is parted again
    found = []
    while not walk.is_done():
        walk.advance(1)
        if walk.found is not None:
            found.append(walk.found.topic)
    assert found == [b"a/b/c/d", b"x"]


def test_the_bytes_of_a_message() -> None:
    """Topic, payload, properties and client id count."""
    small = Message(b"a", b"x", 1, True)
    for large in (
        Message(b"a" * 101, b"x", 1, True),
        Message(b"a", b"x" * 101, 1, True),
        Message(b"a", b"x", 1, True, b"x" * 100),
        Message(b"a", b"x", 1, True, b"", NEVER, "x" * 100),
    ):
        assert retained_bytes(large) >= retained_bytes(small) + 100
