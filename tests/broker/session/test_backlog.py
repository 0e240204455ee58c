"""Retained messages [MQTT5 3.3.1.3] and the subscription options that speak of them [MQTT5 3.8.3.1]."""

from __future__ import annotations

from typing import Any, Final

import pytest

from broker.codec import properties as props
from broker.codec.packets import PubAck, Publish, SubAck, Subscribe, SubscribeFilter
from broker.codec.writer import encode_packet
from broker.message import NEVER, Message
from broker.routing.retained import RetainedStore, RetainedWalk
from broker.routing.subscriber import Subscriber
from broker.session.backlog import Portion, RetainedBacklog
from broker.slices import SLICE_STEPS


def test_set_replace_delete(world: Any) -> None:
    """[MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-7]."""
    present = world.connect("present")
    present.subscribe(b"a/+")
    for payload, kept in ((b"1", [b"1"]), (b"2", [b"2"]), (b"", []), (b"", []), (b"3", [b"3"])):
        world.publish(b"a/b", payload, retain=True)
        client = world.connect("c")
        client.subscribe(b"a/#")
        publishes = client.take_publishes()
        assert [p.payload for p in publishes] == kept
        assert all(p.retain for p in publishes)
    assert [(p.payload, p.retain) for p in present.take_publishes()] == [
        (b"1", False),
        (b"2", False),
        (b"", False),
        (b"", False),
        (b"3", False),
    ]
    world.publish(b"a/b", b"not kept")  # [MQTT-3.3.1-8]
    client = world.connect("c")
    client.subscribe(b"a/b")
    assert client.take_payloads() == [b"3"]


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
def test_qos_of_a_retained_message(world: Any, version: int, published: int, subscribed: int) -> None:
    world.publish(b"a", b"x", qos=published, retain=True)
    client = world.connect("c", version)
    client.subscribe(b"a", qos=subscribed)
    (publish,) = client.take_publishes()
    assert (publish.qos, publish.retain) == (min(published, subscribed), True)


@pytest.mark.parametrize(
    ("retain_handling", "comes"), [(0, [True, True, True]), (1, [True, False, True]), (2, [False, False, False])]
)
def test_retain_handling(world: Any, retain_handling: int, comes: list[bool]) -> None:
    """[MQTT-3.3.1-9..11]: at each SUBSCRIBE, at a new subscription only, never."""
    world.publish(b"a", b"x", retain=True)
    client = world.connect("c")
    got = []
    for turn in range(3):
        if turn == 2:
            client.unsubscribe(b"a")
        client.subscribe(b"a", retain_handling=retain_handling)
        got.append(client.take_payloads() == [b"x"])
    assert got == comes


def test_retain_handling_within_one_subscribe(world: Any) -> None:
    """[MQTT-3.8.4-5]: as one SUBSCRIBE after the other."""
    world.publish(b"a", b"x", retain=True)
    client = world.connect("c")
    client.subscribe(b"a", b"a", retain_handling=1)
    assert client.take_payloads() == [b"x"]


def test_suback_comes_first(world: Any) -> None:
    world.publish(b"a", b"x", retain=True)
    client = world.connect("c")
    client.send(Subscribe(1, [SubscribeFilter(b"a"), SubscribeFilter(b"#")]))
    assert [type(p) for p in client.packets] == [SubAck, Publish, Publish]


@pytest.mark.parametrize(("retain_as_published", "retain"), [(True, [True, False]), (False, [False, False])])
def test_retain_as_published(world: Any, retain_as_published: bool, retain: list[bool]) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]; what comes because of the SUBSCRIBE always has RETAIN."""
    world.publish(b"a", b"0", retain=True)
    client = world.connect("c")
    client.subscribe(b"a", retain_as_published=retain_as_published)
    assert [p.retain for p in client.take_publishes()] == [True]
    for qos in (0, 1):
        world.publish(b"a", b"1", retain=True, qos=qos)
        world.publish(b"a", b"2", retain=False, qos=qos)
        assert [p.retain for p in client.take_publishes()] == retain


def test_shared_subscriptions_get_no_retained_messages(world: Any) -> None:
    """Shared subscriptions [MQTT5 4.8.2]."""
    world.publish(b"a", b"x", retain=True)
    client = world.connect("c")
    client.subscribe(b"$share/g/a")
    assert client.take_payloads() == []


def test_no_local_leaves_out_retained_messages_of_the_client_itself(world: Any) -> None:
    """[MQTT-3.8.3-3]."""
    client = world.connect("c")
    client.publish(b"a", b"mine", retain=True)
    world.publish(b"b", b"another's", retain=True)
    client.subscribe(b"#", no_local=True)
    assert client.take_payloads() == [b"another's"]


def test_expiry(world: Any) -> None:
    world.publish(b"a", b"x", retain=True, message_expiry_interval=10)
    world.advance(4.0)
    client = world.connect("c")
    client.subscribe(b"a")
    assert [p.message_expiry_interval for p in client.take_publishes()] == [6]
    world.advance(6.0)
    client.subscribe(b"a")
    assert client.take_publishes() == []
    world.advance(300.0)
    assert len(world.broker.retained) == 0


def test_wildcards_and_dollar_topics(world: Any) -> None:
    """[MQTT-4.7.2-1]."""
    for topic in (b"a", b"a/b", b"$own/x"):
        world.publish(topic, topic, retain=True)
    client = world.connect("c")
    for topic_filter, found in (
        (b"#", [b"a", b"a/b"]),
        (b"+/+", [b"a/b"]),
        (b"a/#", [b"a", b"a/b"]),
        (b"$own/#", [b"$own/x"]),
    ):
        client.subscribe(topic_filter)
        assert sorted(client.take_payloads()) == found


def test_the_number_of_retained_messages_is_bounded(make_world: Any) -> None:
    world = make_world(max_retained_messages=2)
    for topic in (b"a", b"b", b"c"):
        world.publish(topic, b"1", retain=True)
    world.publish(b"a", b"2", retain=True)
    client = world.connect("c")
    client.subscribe(b"#")
    assert sorted(client.take_payloads()) == [b"1", b"2"]
    assert world.drops() == {"retained_full": 1}
    world.publish(b"b", b"", retain=True)
    world.publish(b"c", b"3", retain=True)
    client.take_packets()
    client.subscribe(b"#")
    assert sorted(client.take_payloads()) == [b"2", b"3"]


def test_the_bytes_of_retained_messages_are_bounded(make_world: Any) -> None:
    world = make_world(max_retained_bytes=2048)
    world.publish(b"a", b"old", retain=True)
    world.publish(b"b", bytes(2000), retain=True)
    world.publish(b"a", bytes(2000), retain=True)
    assert world.drops() == {"retained_full": 2}
    late = world.connect("late")
    late.subscribe(b"#")
    assert late.take_payloads() == []  # an old value would be wrong for ever
    world.publish(b"a", b"new", retain=True)
    assert late.take_payloads() == [b"new"]


def test_expired_retained_messages_make_room(make_world: Any) -> None:
    world = make_world(max_retained_messages=1)
    world.publish(b"a", b"1", retain=True, message_expiry_interval=1)
    world.now += 2.0
    world.publish(b"b", b"2", retain=True)
    assert world.broker.retained.get(b"b") is not None
    assert world.drops() == {}


def test_encodings_are_not_kept(world: Any) -> None:
    """A retained message stays as large as it is, whoever was sent it."""
    for version in (4, 5):
        world.connect(f"c{version}", version).subscribe(b"a")
    world.publish(b"a", b"x", qos=1, retain=True)
    for version in (4, 5):
        world.connect(f"d{version}", version).subscribe(b"a")
    assert world.broker.retained.get(b"a").encoded is None


@pytest.mark.parametrize("qos", [0, 1])
def test_more_retained_messages_than_a_queue_holds(make_world: Any, qos: int) -> None:
    """A dashboard that subscribes to everything gets everything, however small its queue and window are."""
    world = make_world(max_queued_messages=10, max_inflight=8, write_buffer_high=4096)
    wanted = [b"%d" % number for number in range(400)]
    for number in wanted:
        world.publish(b"site/" + number, number, qos=1, retain=True)
    client = world.connect("dashboard")
    client.subscribe(b"#", qos=qos)
    assert sorted(client.take_payloads(), key=int) == wanted
    assert world.broker.counters.messages_dropped["queue_full"] == 0
    assert world.broker.sessions["dashboard"].backlog is None


def test_an_older_retained_value_never_follows_a_newer_one(make_world: Any) -> None:
    """While its retained messages wait, a topic is published anew: the subscriber gets the new value, once."""
    world = make_world(max_inflight=1)
    for topic in (b"a", b"b", b"c"):
        world.publish(topic, b"old", qos=1, retain=True)
    client = world.connect("c", auto=False)
    client.subscribe(b"+", qos=1)
    world.publish(b"c", b"new", qos=1, retain=True)
    assert world.broker.sessions["c"].backlog is not None
    got: list[tuple[bytes, bytes]] = []
    while publishes := client.take_publishes():
        for publish in publishes:
            got.append((publish.topic, publish.payload))
            client.send(PubAck(publish.packet_id))
    assert sorted(got) == [(b"a", b"old"), (b"b", b"old"), (b"c", b"new")]


def test_unsubscribing_ends_its_retained_messages(make_world: Any) -> None:
    world = make_world(max_inflight=1)
    for number in range(5):
        world.publish(b"t/%d" % number, b"x", qos=1, retain=True)
    client = world.connect("c", auto=False)
    client.subscribe(b"t/+", qos=1)
    client.unsubscribe(b"t/+")
    client.send(PubAck(client.take_publishes()[0].packet_id))
    assert client.take_publishes() == []
    assert world.broker.sessions["c"].backlog is None


def test_filters_that_match_nothing_are_searched_in_slices(world: Any) -> None:
    """Each would have to look at every retained topic: a slice of them in each turn."""
    for number in range(20_000):
        world.broker.publish(Message(b"a/%d/b" % number, b"x", 1, True), world.now)
    client = world.connect("c")
    filters = [SubscribeFilter(b"+/+/c%d" % number) for number in range(1000)] + [SubscribeFilter(b"#")] * 1000
    client.connection.receive_data(encode_packet(Subscribe(1, filters), 5), world.now)
    slices = world.broker.slices
    for _ in range(50):
        assert slices.steps <= SLICE_STEPS + 20_001, "a slice, and the topics of one level"
        assert slices.has_work()
        world.broker.go_on(world.now)
        world.broker.take_dirty()
        for publisher in world.broker.take_reading_changes():
            if not publisher.held:
                publisher.resume_receiving(world.now)
        client.take(client.connection.take_output())
    assert world.broker.sessions["c"].backlog is not None
    client.cut()
    assert world.broker.sessions == {}
    world.check()


@pytest.mark.parametrize("qos", [0, 1])
def test_a_match_among_many_is_found_in_the_end(world: Any, qos: int) -> None:
    for number in range(3 * SLICE_STEPS):
        world.broker.publish(Message(b"a/%d/b" % number, b"x", 1, True), world.now)
    world.broker.publish(Message(b"a/last/c", b"found", 1, True), world.now)
    client = world.connect("c")
    client.subscribe(b"+/+/c", b"a/+/c/#", b"nothing/+", qos=qos)
    assert client.take_payloads() == [b"found", b"found"]
    assert world.broker.sessions["c"].backlog is None


@pytest.mark.parametrize("hindered", ["transport is full", "window is full"])
def test_a_search_that_cannot_go_on_costs_nothing(world: Any, hindered: str) -> None:
    """It is taken up when the client takes more; nobody asks for it in vain until then (`flush` would not end)."""
    world.publish(b"first", b"1", qos=1)
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"first", qos=1)
    for _ in range(2):
        world.publish(b"first", b"1", qos=1)
    for number in range(2 * SLICE_STEPS):
        world.broker.publish(Message(b"a/%d/b" % number, b"x", 0, True), world.now)
    world.broker.publish(Message(b"a/last/c", b"found", 1, True), world.now)
    first = client.take_publishes()
    client.connection.receive_data(encode_packet(Subscribe(9, [SubscribeFilter(b"+/+/c", 1)]), 5), world.now)
    assert world.broker.sessions["c"].backlog.resting
    if hindered == "transport is full":
        client.stop_reading()
        world.flush()
        assert client.take_payloads() == []
        client.read_on()
    else:
        client.cut()
        client = world.connect("c", clean_start=False, auto=False, properties={props.RECEIVE_MAXIMUM: 1})
        assert client.take_payloads() == [b"1"]
        for publish in first:
            client.send(PubAck(publish.packet_id))
    assert client.take_payloads()[-1] == b"found"


def test_a_message_retained_after_the_subscription_comes_once(make_world: Any) -> None:
    """As the message that it is, while older retained ones are still being sent."""
    world = make_world(max_inflight=1)
    for number in range(5):
        world.publish(b"t/%d" % number, b"old", qos=1, retain=True)
    client = world.connect("c", auto=False)
    client.subscribe(b"t/#", qos=1)
    world.publish(b"t/new", b"new", qos=1, retain=True)
    got = []
    while publishes := client.take_publishes():
        for publish in publishes:
            got.append((publish.topic, publish.retain))
            client.send(PubAck(publish.packet_id))
    assert sorted(got) == [(b"t/%d" % number, True) for number in range(5)] + [(b"t/new", False)]


def test_retained_messages_that_wait_outlive_the_connection(make_world: Any) -> None:
    world = make_world(max_inflight=1)
    for number in range(3):
        world.publish(b"t/%d" % number, b"x", qos=1, retain=True)
    client = world.connect("c", expiry=100, auto=False)
    client.subscribe(b"t/#", qos=1)
    client.cut()
    again = world.connect("c", clean_start=False, expiry=100)
    assert [publish.topic for publish in again.take_publishes()] == [b"t/0", b"t/1", b"t/2"]


def test_a_subscription_from_outside_for_a_client_that_is_away(world: Any) -> None:
    world.connect("c", expiry=100).cut()
    world.publish(b"a", b"x", qos=1, retain=True)
    world.broker.subscribe("c", [SubscribeFilter(b"+", 1)], 0, world.now)
    again = world.connect("c", clean_start=False)
    assert [(publish.payload, publish.retain) for publish in again.take_publishes()] == [(b"x", True)]


# --- RetainedBacklog by itself ---

READER: Final = Subscriber("c")


def stored(*topics: bytes) -> RetainedStore:
    store = RetainedStore()
    for topic in topics:
        store.put(Message(topic, b"1", 1, True, b"", NEVER, "publisher"))
    return store


def add(backlog: RetainedBacklog, store: RetainedStore, topic_filter: bytes, without: str = "") -> None:
    backlog.add(Portion(topic_filter, RetainedWalk(store, topic_filter), 1, (), without))


def found(backlog: RetainedBacklog, store: RetainedStore, now: float = 0.0, look_at_most: int = 1000) -> list[bytes]:
    topics: list[bytes] = []
    while True:
        backlog.find(now, look_at_most, None, READER)
        if backlog.message is None:
            if backlog.is_resting():
                continue
            return topics
        topics.append(backlog.message.topic)
        backlog.message = None


def next_topic(backlog: RetainedBacklog, store: RetainedStore) -> bytes:
    backlog.find(0.0, 1000, None, READER)
    assert backlog.message is not None
    return backlog.message.topic


def test_portions_in_the_order_of_their_subscriptions() -> None:
    """A second subscription to a filter is the last one."""
    store = stored(b"a", b"b", b"c")
    backlog = RetainedBacklog()
    for topic_filter in (b"c", b"a", b"b", b"nothing", b"c"):
        add(backlog, store, topic_filter)
    assert found(backlog, store) == [b"a", b"b", b"c"]


def test_a_portion_is_given_up_also_in_its_middle() -> None:
    store = stored(b"a/1", b"a/2", b"b")
    backlog = RetainedBacklog()
    for topic_filter in (b"a/+", b"b"):
        add(backlog, store, topic_filter)
    assert next_topic(backlog, store) in (b"a/1", b"a/2")
    backlog.remove(b"a/+")
    backlog.remove(b"never subscribed")
    assert found(backlog, store) == [b"b"]


def test_messages_that_are_not_there_any_more_are_passed_over() -> None:
    store = stored(b"a/1", b"a/2", b"a/3", b"a/4")
    store.put(Message(b"a/5", b"1", 1, True, b"", 10.0))
    backlog = RetainedBacklog()
    add(backlog, store, b"a/+")
    first = next_topic(backlog, store)
    store.put(Message(first, b"2", 1, True))  # the subscriber gets this one as a publish
    store.put(Message(b"a/4", b"", 1, True))
    left = found(backlog, store, 10.0)
    assert set(left) | {first, b"a/4"} == {b"a/1", b"a/2", b"a/3", b"a/4"}
    assert not {first, b"a/4", b"a/5"} & set(left)


@pytest.mark.parametrize("look_at_most", [1, 7, 1000])
def test_any_slice_finds_the_same(look_at_most: int) -> None:
    store = stored(*[b"a/%d/%s" % (number, b"bc"[number % 2 : number % 2 + 1]) for number in range(50)])
    backlog = RetainedBacklog()
    for topic_filter in (b"+/+/b", b"+/+/nothing", b"#"):
        add(backlog, store, topic_filter)
    topics = found(backlog, store, 0.0, look_at_most)
    assert len(topics) == 25 + 50
    assert all(topic.endswith(b"b") for topic in topics[:25])
    assert len(set(topics[25:])) == 50
