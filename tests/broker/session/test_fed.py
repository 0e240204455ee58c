"""Subscriptions that a plugin feeds: what a session sends of them, and when, and how it keeps their position."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import PubAck, Subscribe, SubscribeFilter
from broker.codec.runs import Run
from broker.codec.writer import encode_publish
from broker.feeds import Feed, FeedReader
from broker.hooks import ClientObserver
from broker.session.feeding import FEEDS_MAX
from broker.store.journal import Journal
from broker.store.kinds import SUBSCRIPTION
from broker.store.restoring import Restoring
from numbered_feeds import NumberedFeed, NumberedFeeds
from topic_rights import TopicRights

ALL = b"$stream/0/#"


def fed(world: Any, end: int = 0) -> NumberedFeeds:
    feeds = NumberedFeeds()
    feeds.end = end
    world.broker.feeds = feeds
    return feeds


def grow(world: Any, feeds: NumberedFeeds, end: int) -> None:
    feeds.grow(end, world.now)
    world.flush()


def numbers(*found: int) -> list[bytes]:
    return [b"%d" % number for number in found]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_history_comes_and_then_what_is_new(world: Any, version: int, qos: int) -> None:
    feeds = fed(world, 5)
    client = world.connect("c", version)
    assert client.subscribe(ALL, qos=qos) == [qos]
    grow(world, feeds, 7)
    found = client.take_publishes()
    assert [publish.payload for publish in found] == numbers(*range(7))
    assert {(publish.qos, publish.retain) for publish in found} == {(min(qos, 1), False)}
    assert [publish.topic for publish in found[:4]] == [b"t0", b"t1", b"t2", b"t0"]
    world.check()


def test_no_more_is_unacknowledged_than_the_client_allows(world: Any) -> None:
    feeds = fed(world, 10)
    client = world.connect("c", properties={props.RECEIVE_MAXIMUM: 3}, auto=False)
    client.subscribe(ALL, qos=1)
    (first, *_), asked = client.take_publishes(), feeds.open_feeds[0].asked
    assert (first.payload, asked) == (b"0", 4), "one is looked for, and waits"
    client.send(PubAck(first.packet_id))
    assert client.take_payloads() == numbers(3)
    world.check()


def test_messages_of_other_subscriptions_come_first(world: Any) -> None:
    fed(world, 10)
    client = world.connect("c", properties={props.RECEIVE_MAXIMUM: 1}, auto=False)
    client.subscribe(ALL, b"live", qos=1)
    world.publish(b"live", b"now", qos=1)
    (first,) = client.take_publishes()
    client.send(PubAck(first.packet_id))
    (second,) = client.take_publishes()
    client.send(PubAck(second.packet_id))
    assert (first.payload, second.payload, client.take_payloads()) == (b"0", b"now", [b"1"])


def test_a_client_that_does_not_read_is_not_read_for(world: Any) -> None:
    feeds = fed(world, 5)
    client = world.connect("c")
    client.stop_reading()
    client.subscribe(ALL)
    assert (client.take_payloads(), feeds.open_feeds) == ([], [])
    client.read_on()
    assert client.take_payloads() == numbers(*range(5))


def test_a_long_history_takes_turns_with_others(world: Any) -> None:
    """One slice has no more than its steps, and the rest follows in later turns."""
    feeds = fed(world, 2000)
    client = world.connect("c")
    client.send_bytes(b"")
    world.broker.slices.steps_max = 100
    client.subscribe(ALL)
    assert client.take_payloads() == numbers(*range(2000))
    feeds.open_feeds[0].rests = 3
    grow(world, feeds, 2001)
    assert client.take_payloads() == numbers(2000)
    asked = feeds.open_feeds[0].asked
    world.publish(b"other")
    assert feeds.open_feeds[0].asked == asked, "an idle feed is not asked"


def test_of_many_subscriptions_those_are_asked_that_were_woken(world: Any) -> None:
    feeds = fed(world, 0)
    client = world.connect("c")
    for number in range(50):
        client.subscribe(b"$stream/%d/#" % number)
    opened = feeds.open_feeds
    asked = [feed.asked for feed in opened]
    assert asked == [1] * 50
    feeds.end = 1
    opened[0].reader.wake(world.now)
    world.flush()
    assert client.take_payloads() == numbers(0)
    assert [feed.asked for feed in opened] == [3, *([1] * 49)], "the message, and then none"
    world.publish(b"other")
    assert sum(feed.asked for feed in opened) == 52


def test_feeds_that_have_nothing_end_a_slice_too(world: Any) -> None:
    feeds = fed(world, 0)
    client = world.connect("c")
    client.subscribe(*(b"$stream/%d/#" % number for number in range(20)))
    opened = feeds.open_feeds
    before = sum(feed.asked for feed in opened)
    world.broker.slices.steps_max = 10
    world.broker.slices.begin()
    for feed in opened:
        feed.reader.wake(world.now)
    assert sum(feed.asked for feed in opened) - before < 10
    world.flush()
    assert sum(feed.asked for feed in opened) - before == 20


def test_a_client_has_so_many_feeds_at_most(world: Any) -> None:
    fed(world, 0)
    client = world.connect("c")
    filters = [b"$stream/%d/#" % number for number in range(FEEDS_MAX + 1)]
    assert client.subscribe(*filters, qos=1) == [1] * FEEDS_MAX + [0x97]
    assert client.subscribe(b"a", filters[0], filters[-1], qos=1) == [1, 1, 0x97], "what it has may be asked for again"
    client.unsubscribe(filters[0])
    assert client.subscribe(filters[-1], qos=1) == [1]
    assert world.connect("d").subscribe(filters[0], qos=1) == [1]


class CountedFeeds(NumberedFeeds):
    """`steps`: of the slice, at each feed that is opened."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        self.slices = world.broker.slices
        self.steps: list[int] = []

    def open(self, reader: FeedReader, position: bytes) -> Feed:
        self.steps.append(self.slices.steps)
        return super().open(reader, position)


def test_to_open_a_feed_takes_steps(world: Any) -> None:
    """A client that comes back with many of them does not open all in one slice."""
    feeds = world.broker.feeds = CountedFeeds(world)
    client = world.connect("c", expiry=100)
    client.subscribe(*(b"$stream/%d/#" % number for number in range(20)))
    client.cut()
    feeds.steps.clear()
    world.broker.slices.steps_max = 150
    world.connect("c", clean_start=False, expiry=100)
    assert len(feeds.steps) == 20
    slices = 1 + sum(later < before for before, later in pairwise(feeds.steps))
    assert slices > 4


def test_several_subscriptions_take_turns(world: Any) -> None:
    fed(world, 4)
    client = world.connect("c")
    client.subscribe(SubscribeFilter(b"$stream/0/t0", 1), SubscribeFilter(b"$stream/1/#", 1), identifier=7)
    found = client.take_publishes()
    assert [publish.payload for publish in found] == numbers(0, 1, 3, 2, 3)
    assert {publish.subscription_identifiers for publish in found} == {(7,)}


class RunFeed(NumberedFeed):
    """Gives one run."""

    def next(self, now: float) -> Run | None:  # type: ignore[override]
        self.asked += 1
        if self.asked > 1:
            return None
        packets = [
            encode_publish(5, b"topic/of/run", b"%04d" % number * 500, 0, False, False, 0, b"") for number in range(100)
        ]
        size = len(packets[0])
        return Run(b"topic/of/run", b"".join(packets), 0, size, size - 2000, 5, "p", 100 * size)


class RunFeeds(NumberedFeeds):
    def open(self, reader: FeedReader, position: bytes) -> Feed:
        feed = RunFeed(self, reader, b"#", 0)
        self.open_feeds.append(feed)
        return feed


@pytest.mark.parametrize("properties", [{}, {props.TOPIC_ALIAS_MAXIMUM: 5}, {props.MAXIMUM_PACKET_SIZE: 2020}])
@pytest.mark.parametrize("identifier", [0, 7])
def test_nothing_of_a_run_goes_to_the_queue(make_world: Any, properties: dict[int, Any], identifier: int) -> None:
    """Whatever form the client gets it in: a queue may drop messages."""
    world = make_world(max_queued_messages=3, write_buffer_high=50_000)
    world.broker.feeds = RunFeeds()
    client = world.connect("c", properties=properties)
    client.subscribe(ALL, identifier=identifier)
    found = [publish.payload[:4] for publish in client.take_publishes()]
    assert found == [b"%04d" % number for number in range(100)]
    assert world.drops() == {}


def test_a_position_stays_with_the_session(world: Any) -> None:
    feeds = fed(world, 3)
    client = world.connect("c", expiry=100, properties={props.RECEIVE_MAXIMUM: 2}, auto=False)
    client.subscribe(ALL, qos=1)
    assert client.take_payloads() == numbers(0, 1)
    client.cut()
    assert feeds.open_feeds == []
    feeds.end = 5
    client = world.connect("c", clean_start=False, expiry=100)
    found = client.take_publishes()
    assert [(publish.payload, publish.dup) for publish in found] == [
        *((b"0", True), (b"1", True)),
        *((b"2", False), (b"3", False), (b"4", False)),
    ]
    world.check()


def test_a_position_is_in_the_store_with_its_messages(make_world: Any) -> None:
    """After a crash at any commit nothing is missed, and only what was not acknowledged comes again."""
    world = make_world()
    world.keep(Journal(), {}, 0.0)
    feeds = fed(world, 4)
    client = world.connect("c", expiry=100, properties={props.RECEIVE_MAXIMUM: 3}, auto=False)
    client.subscribe(ALL, qos=1)
    client.send(PubAck(client.take_publishes()[0].packet_id))
    other = make_world()
    other.now = world.now
    restoring = Restoring(other.broker, 0.0, other.now)
    for number, record in sorted(world.stored.items()):
        restoring.add(number, record)
    other.broker.set_journal(restoring.end())
    feeds = fed(other, 5)
    client = other.connect("c", clean_start=False, expiry=100)
    assert client.take_payloads() == numbers(1, 2, 3, 4)
    client.unsubscribe(ALL)
    assert feeds.open_feeds == []
    other.check()


def test_the_same_subscribe_goes_on_and_another_start_begins_anew(world: Any) -> None:
    feeds = fed(world, 3)
    client = world.connect("c")
    client.subscribe(ALL)
    client.subscribe(ALL)
    assert client.take_payloads() == numbers(0, 1, 2)
    client.subscribe(ALL, pairs=[("from", "anew")])
    assert client.take_payloads() == numbers(0, 1, 2)
    assert feeds.starts == ["", "", "anew"]
    client.unsubscribe(ALL)
    assert feeds.open_feeds == []
    client.subscribe(ALL)
    assert client.take_payloads() == numbers(0, 1, 2)
    world.check()


@pytest.mark.parametrize("end", ["unsubscribe", "cut", "clean start", "expiry"])
def test_a_feed_is_closed_with_its_subscription(world: Any, end: str) -> None:
    feeds = fed(world, 3)
    client = world.connect("c", expiry=10)
    client.subscribe(ALL)
    assert len(feeds.open_feeds) == 1
    if end == "unsubscribe":
        client.unsubscribe(ALL)
    elif end == "clean start":
        world.connect("c", clean_start=True)
    else:
        client.cut()
        if end == "expiry":
            world.advance(11.0)
    assert feeds.open_feeds == []
    world.check()


def test_what_a_client_may_not_read_does_not_come(world: Any) -> None:
    feeds = fed(world, 6)
    TopicRights(world, user="x")
    client = world.connect("c", username="user")
    assert client.subscribe(b"$stream/0/y", b"$stream/0/x", qos=1) == [0x87, 1]
    del world.broker.authorizers[:]
    world.broker.authorization_changed()
    client = world.connect("d", properties={props.RECEIVE_MAXIMUM: 1}, auto=False, username="user")
    client.subscribe(ALL, qos=1)
    (first,) = client.take_publishes()
    assert (first.payload, feeds.open_feeds[-1].asked) == (b"0", 2)
    TopicRights(world, user="")
    client.send(PubAck(first.packet_id))
    assert client.take_payloads() == [], "the one that waited is judged by the new rules"
    world.check()


class Refused(ClientObserver):
    def __init__(self) -> None:
        self.found: list[tuple[str, bytes, str]] = []

    def subscription_refused(self, client_id: str, full_filter: bytes, reason: str) -> None:
        self.found.append((client_id, full_filter, reason))


@pytest.mark.parametrize("version", [4, 5])
def test_a_refusal_says_why(world: Any, version: int) -> None:
    observer = Refused()
    world.broker.add_observer(observer)

    def answer(*filters: bytes, **properties: Any) -> tuple[list[int], str]:
        client = world.connect("c", version, properties=properties.get("properties") if version == 5 else None)
        client.send(Subscribe(1, [SubscribeFilter(text) for text in filters]))
        (suback,) = client.take_packets()
        return suback.reason_codes, str(suback.properties.get(props.REASON_STRING, ""))

    def code(number: int) -> int:
        return number if version == 5 else 0x80

    codes, text = answer(ALL)
    assert codes == [code(0x83)]
    assert ("event_log" in text) == (version == 5)
    fed(world)
    codes, text = answer(b"a", b"$stream/x/a", b"$stream/y/a")
    assert codes == [0, code(0x8F), code(0x8F)]
    assert ("x is no number" in text) == (version == 5)
    assert answer(b"$stream/1/$share/g/a")[0] == [code(0x8F)]
    assert answer(b"$share/g/$stream/1/a")[0] == [code(0x9E)]
    assert answer(b"$stream/x/a", properties={props.REQUEST_PROBLEM_INFORMATION: 0})[1] == ""
    assert [full for _, full, _ in observer.found[:3]] == [ALL, b"$stream/x/a", b"$stream/y/a"]
    assert all(client_id == "c" for client_id, _, _ in observer.found)
    assert "event_log" in observer.found[0][2]
    assert "x is no number" in observer.found[1][2]
    assert "Shared" in observer.found[4][2], "where nothing more is known, the name of the reason code"


def test_limits_are_those_of_other_subscriptions(make_world: Any) -> None:
    """The levels are those of the topics."""
    world = make_world(max_topic_levels=3, max_subscriptions_per_client=1, wildcard_subscription_available=False)
    fed(world)
    client = world.connect("c")
    filters = (b"$stream/1/a/b/c/d", b"$stream/1/+", b"$stream/1/a/b/c", b"$stream/1/a")
    assert client.subscribe(*filters, qos=1) == [0x8F, 0xA2, 1, 0x97]


def test_an_api_subscription_is_fed_too(world: Any) -> None:
    fed(world, 2)
    client = world.connect("c")
    assert world.broker.subscribe("c", [SubscribeFilter(ALL, 1)], 0, world.now) == [1]
    world.flush()
    assert client.take_payloads() == numbers(0, 1)
    assert world.broker.unsubscribe("c", [ALL], world.now) == [0]
    world.check()


def test_a_subscription_without_its_plugin_stays(make_world: Any) -> None:
    """A node that keeps no event log any more forgets no position."""
    world = make_world()
    world.keep(Journal(), {}, 0.0)
    fed(world, 1)
    client = world.connect("c", expiry=100)
    client.subscribe(ALL)
    client.cut()
    world.broker.feeds = None
    client = world.connect("c", clean_start=False, expiry=100)
    assert client.take_payloads() == []
    assert [record[-1] for record in world.stored.values() if record[0] == SUBSCRIPTION] == [b"# 1"]
