"""Properties of the topic stores: they agree with naive matchers."""

from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.errors import MqttError
from broker.message import NEVER, Message
from broker.routing.names import check_topic_filter, check_topic_name, full_filter, has_wildcard, parse_filter
from broker.routing.retained import RetainedMessage, RetainedStore, RetainedWalk, retained_bytes
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.trie import Node, Trie
from effort import effort
from retained_search import matching

# Few names, so that filters match topics; the empty level and $ among them.
LEVELS = st.sampled_from([b"", b"a", b"b", b"$s", b"$"])


def runs_of(levels: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Levels, with repetitions, so that long chains split and merge."""
    run = st.tuples(levels, st.sampled_from([1, 2, 40])).map(lambda pair: [pair[0]] * pair[1])
    return st.lists(levels, max_size=4) | st.lists(run, max_size=3).map(lambda runs: list(chain(*runs)))


TOPICS = runs_of(LEVELS).map(b"/".join).filter(bool)
FILTERS = (
    st.tuples(runs_of(LEVELS | st.just(b"+")), st.booleans())
    .map(lambda pair: b"/".join(pair[0] + [b"#"] * pair[1]))
    .filter(bool)
)


def naive_match(topic_filter: bytes, topic: bytes) -> bool:
    """Topic names and filters [MQTT5 4.7], level by level."""
    pattern, levels = topic_filter.split(b"/"), topic.split(b"/")
    if levels[0].startswith(b"$") and pattern[0] in {b"+", b"#"}:
        return False
    if pattern[-1] == b"#":
        pattern = pattern[:-1]
        if len(levels) < len(pattern):
            return False
        levels = levels[: len(pattern)]
    return len(pattern) == len(levels) and all(
        want in {b"+", level} for want, level in zip(pattern, levels, strict=True)
    )


def branches(node: Node) -> list[Node]:
    found = [] if node.plus is None else [node.plus]
    return found + list((node.children or {}).values())


def check_nodes(trie: Trie) -> None:
    """A chain is one node: each node but the root has a value or two branches."""
    nodes = branches(trie.root)
    while nodes:
        node = nodes.pop()
        below = branches(node)
        assert node.value is not None or node.hash_value is not None or len(below) > 1
        assert node.depth == node.path.count(b"/") + 1
        assert node.children != {}
        for child in below:
            assert child.path.startswith(node.path + b"/")
        nodes += below


class TrieMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trie = Trie()
        self.model: dict[bytes, int] = {}
        self.count = 0

    @rule(topic_filter=FILTERS)
    def set(self, topic_filter: bytes) -> None:
        self.count += 1
        self.trie.set(topic_filter, self.count)
        self.model[topic_filter] = self.count

    @rule(topic_filter=FILTERS)
    def delete(self, topic_filter: bytes) -> None:
        assert self.trie.delete(topic_filter) == (self.model.pop(topic_filter, None) is not None)

    @rule(data=st.data())
    def delete_known(self, data: st.DataObject) -> None:
        if self.model:
            topic_filter = data.draw(st.sampled_from(sorted(self.model)))
            del self.model[topic_filter]
            assert self.trie.delete(topic_filter)

    @rule(topic_filter=FILTERS)
    def get(self, topic_filter: bytes) -> None:
        assert self.trie.get(topic_filter) == self.model.get(topic_filter)

    @rule(topic=TOPICS)
    def match(self, topic: bytes) -> None:
        found = self.trie.match(topic)
        assert sorted(map(str, found)) == sorted(
            str(value) for topic_filter, value in self.model.items() if naive_match(topic_filter, topic)
        )
        assert self.trie.visited <= sum(topic_filter.count(b"/") + 1 for topic_filter in self.model)

    @invariant()
    def same_items(self) -> None:
        assert len(self.trie) == len(self.model)
        assert sorted(self.trie.items()) == sorted(self.model.items())
        check_nodes(self.trie)

    def teardown(self) -> None:
        for topic_filter in list(self.model):
            assert self.trie.delete(topic_filter)
        assert len(self.trie) == 0
        assert self.trie.items() == []


TestTrie = TrieMachine.TestCase
TestTrie.settings = settings(max_examples=effort(120), stateful_step_count=40)


class RetainedMachine(RuleBasedStateMachine):
    LIMIT = 12

    def __init__(self) -> None:
        super().__init__()
        self.store = RetainedStore(self.LIMIT)
        self.model: dict[bytes, Message] = {}
        self.now = 100.0

    @rule(topic=TOPICS, lifetime=st.none() | st.integers(1, 20))
    def put(self, topic: bytes, lifetime: int | None) -> None:
        expires_at = NEVER if lifetime is None else self.now + lifetime
        message = RetainedMessage(Message(topic, b"x", 0, True, b"", expires_at), 0)
        fits = topic in self.model or len(self.model) < self.LIMIT
        assert self.store.put(message) == fits
        if fits:
            self.model[topic] = message

    @rule(topic=TOPICS)
    def delete(self, topic: bytes) -> None:
        assert self.store.put(Message(topic, b"", 0, True)) == (self.model.pop(topic, None) is not None)

    @rule(seconds=st.integers(0, 10))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @rule(limit=st.integers(0, 5))
    def expire(self, limit: int) -> None:
        deleted = self.store.expire(self.now, limit)
        assert deleted <= limit
        for topic, message in list(self.model.items()):
            if self.store.get(topic) is None:
                assert message.expires_at <= self.now
                del self.model[topic]
                deleted -= 1
        assert deleted == 0

    @rule()
    def expire_all(self) -> None:
        self.store.expire(self.now, 1_000)
        self.model = {topic: message for topic, message in self.model.items() if message.expires_at > self.now}
        assert self.store.expire(self.now, 1_000) == 0

    @rule(topic_filter=FILTERS)
    def match(self, topic_filter: bytes) -> None:
        found = matching(self.store, topic_filter, self.now)
        assert {message.topic: message for message in found} == {
            topic: message
            for topic, message in self.model.items()
            if naive_match(topic_filter, topic) and message.expires_at > self.now
        }
        assert len({message.topic for message in found}) == len(found)

    @invariant()
    def same_messages(self) -> None:
        assert len(self.store) == len(self.model)
        assert self.store.bytes == sum(map(retained_bytes, self.model.values()))
        check_nodes(self.store.topics)
        assert {message.topic: message for message in self.store.messages()} == self.model


TestRetained = RetainedMachine.TestCase
TestRetained.settings = settings(max_examples=effort(120), stateful_step_count=40)


# An existing topic, cut after some levels, gets a new message or loses its message. So nodes that a walk will visit are
# split, merged and removed.
CHANGES = st.tuples(st.integers(0, 7), st.sampled_from([1, 2, 3, 39, 999]), st.booleans())
CLOSE_TOPICS = st.lists(st.sampled_from([b"a", b"b"]), min_size=1, max_size=5).map(b"/".join)


@settings(max_examples=effort(400))
@given(
    st.sets(TOPICS, min_size=1, max_size=8) | st.sets(CLOSE_TOPICS, min_size=4, max_size=8),
    FILTERS | st.just(b"#"),
    st.lists(st.just(1) | CHANGES, max_size=16),
)
def test_a_walk_finds_the_messages_that_stay(
    topics: set[bytes], topic_filter: bytes, steps: list[int | tuple[int, int, bool]]
) -> None:
    """It finds each message once that is there from the begin to the end, and none that is stored later."""
    store = RetainedStore()
    stays: dict[bytes, Message] = {}
    known = sorted(topics)
    for topic in known:
        stays[topic] = RetainedMessage(Message(topic, b"x", 0, True), 0)
        store.put(stays[topic])
    walk = RetainedWalk(store, topic_filter)
    found: list[Message] = []
    for step in [*steps, 1_000_000]:
        if isinstance(step, tuple):
            index, levels, is_new = step
            topic = b"/".join(known[index % len(known)].split(b"/")[:levels])
            if topic:
                stays.pop(topic, None)
                store.put(Message(topic, b"new" if is_new else b"", 0, True))
            continue
        looked = 0
        while looked < step and not walk.is_done():
            looked += walk.advance(step - looked)
            if walk.found is not None:
                assert walk.found.payload == b"x"
                assert naive_match(topic_filter, walk.found.topic)
                found.append(walk.found)
    assert walk.is_done()
    kept = {message.topic for message in found if stays.get(message.topic) is message}
    assert kept == {topic for topic in stays if naive_match(topic_filter, topic)}
    assert len({message.topic for message in found}) == len(found)


@given(st.binary(max_size=12) | FILTERS | TOPICS.map(lambda topic: b"$share/" + topic))
def test_a_filter_that_passes_can_be_stored_and_one_without_wildcards_is_a_name(data: bytes) -> None:
    try:
        check_topic_filter(data)
    except MqttError:
        return
    share_name, topic_filter = parse_filter(data)
    assert full_filter(share_name, topic_filter) == data
    trie = Trie()
    trie.set(topic_filter, 1)
    assert trie.items() == [(topic_filter, 1)]
    if not has_wildcard(topic_filter):
        check_topic_name(topic_filter)
        assert trie.match(topic_filter) == [1]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 4))
def test_available_members_of_a_group_get_equal_shares(available: list[bool], rounds: int) -> None:
    group = SharedGroup(b"g", b"a")
    members = [GroupMember(flag) for flag in available]
    for member in members:
        group.add(member)
    takers = [member for member in members if member.is_available()] or members
    picked = [group.pick() for _ in range(rounds * len(takers))]
    assert picked == takers * rounds
