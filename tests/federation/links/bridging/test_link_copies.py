"""Copies of a message that come to a domain on several ways: over its links, and from other nodes of it."""

from __future__ import annotations

import pytest

from broker.message import Message
from broker.origin import decode_origin
from broker.routing.retained import RetainedMessage
from broker_world import START, Client, World
from federation.hybrid_clock import COUNTER_BITS, seconds_of
from federation.links.bridging.bridging import bridging_of
from federation.stream.retained_versions import PROCESS_BITS, RetainedVersions
from link_clients import headers, linked, named_world, with_header
from link_ends import own_end
from origins import origin
from topic_rights import TopicRights

LONG = b"1 node=n~1 seq=4 path=root,oslo,lima"
SHORT = b"1 node=n~1 seq=4 path=root,rome"


class Ways:
    """The domain berlin: a link of its own to each of lima and rome, a reader, and links of two domains behind it."""

    def __init__(self, max_hops: int = 9) -> None:
        self.world = named_world()
        self.ends = {name: own_end(self.world.broker, name.encode(), max_hops) for name in ("lima", "rome")}
        self.links = {domain: self._own_link(domain) for domain in self.ends}
        self.reader = self.world.connect("reader")
        self.far = linked(self.world, "far", 9)
        self.near = linked(self.world, "near", 3)
        for client in (self.reader, self.far, self.near):
            client.subscribe(b"#")

    def _own_link(self, domain: str) -> Client:
        client = self.world.open()
        client.connection.bridge_end = self.ends[domain]
        client.connect(f"link-{domain}", username=domain)
        return client

    def bring(self, link: bytes, dup: bool = False, retain: bool = False) -> int | None:
        """A copy comes over the link to the last domain of its path. The reason code of its PUBACK."""
        client = self.links[link.decode().replace("=", ",").rpartition(",")[2]]
        client.publish(b"t", b"x", 1, dup=dup, retain=retain, properties=with_header(link.decode()))
        return getattr(client.take_packets()[-1], "reason_code", None)

    def bring_event(self, link: bytes, groups: tuple[tuple[bytes, bytes], ...] = (), retain: bool = False) -> None:
        """Another node of the domain has published a copy."""
        self.world.broker.router.publish_remote(
            Message(b"t", b"x", 1, retain, origin=origin(link)), groups, None, START
        )
        self.world.flush()

    def got(self) -> dict[str, int]:
        clients = {"reader": self.reader, "far": self.far, "near": self.near}
        counts = {name: len(client.take_publishes()) for name, client in clients.items()}
        return {name: count for name, count in counts.items() if count}


def test_a_shorter_copy_goes_on_to_links_only() -> None:
    ways = Ways()
    assert ways.bring(LONG) == 0
    assert ways.got() == {"reader": 1, "far": 1}
    assert ways.bring(SHORT) == 0
    assert [headers(publish) for publish in ways.far.take_publishes()] == [[SHORT.decode() + ",berlin"]]
    assert ways.got() == {"near": 1}
    assert ways.bring(LONG) == ways.bring(SHORT) == 0x83
    assert ways.got() == {}
    assert ways.ends["lima"].dropped == ways.ends["rome"].dropped == {"link_duplicate": 1}


def test_links_that_subscribe_later_get_the_shortest_copy_of_a_retained_message() -> None:
    ways = Ways()
    ways.bring(LONG, retain=True)
    ways.got()
    ways.bring(SHORT, retain=True)
    assert ways.got() == {"far": 1, "near": 1}
    late = linked(ways.world, "late", 3)
    late.subscribe(b"t")
    assert [decode_origin(headers(publish)[0].encode()).path for publish in late.take_publishes()] == [
        (b"root", b"rome", b"berlin")
    ]


def test_a_shorter_copy_replaces_no_other_retained_message() -> None:
    ways = Ways()
    ways.bring(LONG, retain=True)
    ways.world.publish(b"t", b"newer", qos=1, retain=True)
    assert ways.bring(SHORT, retain=True) == 0
    assert retained(ways.world) == b"newer"


def test_a_longer_copy_is_dropped() -> None:
    ways = Ways()
    ways.bring(SHORT)
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}
    assert ways.bring(LONG) == 0x83
    assert ways.got() == {}


def test_a_copy_that_is_refused_does_not_count() -> None:
    ways = Ways()
    TopicRights(ways.world, rome="T", **{"": "t"})
    assert ways.bring(SHORT.replace(b"rome", b"lima")) == 0x87
    assert ways.bring(SHORT) == 0
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}


def test_a_copy_that_has_passed_too_many_links_does_not_count() -> None:
    ways = Ways(max_hops=2)
    assert ways.bring(LONG) == 0x83
    assert ways.ends["lima"].dropped == {"link_hops": 1}
    assert ways.bring(SHORT) == 0
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}


def test_a_broker_of_another_kind_gets_a_shorter_copy_only_where_the_first_one_went_too_far() -> None:
    ways = Ways()
    found = []
    for max_hops in (3, 9):
        client = ways.world.open()
        client.connection.bridge_end = own_end(ways.world.broker, b"-", max_hops, is_explicit=True)
        client.connect(f"link-out-{max_hops}")
        client.subscribe(b"#")
        found.append(client)
    ways.bring(LONG)
    assert [len(client.take_publishes()) for client in found] == [0, 1]
    ways.bring(SHORT)
    assert [len(client.take_publishes()) for client in found] == [1, 0]


def test_two_domains_that_push_a_message_bring_it_once() -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"#")
    for domain in ("lima", "rome"):
        pushing = linked(world, domain)
        pushing.publish(b"t", properties=with_header(f"1 node=n~1 seq=4 path=root,{domain}"))
    assert len(reader.take_publishes()) == 1
    assert world.drops() == {"link_duplicate": 1}


def test_a_copy_that_another_node_has_published_is_not_published_again() -> None:
    ways = Ways()
    ways.bring_event(LONG)
    assert ways.got() == {"reader": 1, "far": 1}
    assert ways.bring(LONG) == 0x83
    assert ways.bring(SHORT) == 0
    assert ways.got() == {"far": 1, "near": 1}


def test_a_message_of_a_node_that_may_have_died_is_published_when_its_upstream_sends_it_again() -> None:
    ways = Ways()
    ways.bring_event(SHORT)
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}
    assert ways.bring(SHORT, dup=True) == 0
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}
    assert ways.bring(SHORT, dup=True) == 0x83


def test_a_copy_of_another_node_is_judged_as_one_of_a_link() -> None:
    ways = Ways()
    ways.bring(LONG)
    ways.got()
    ways.bring_event(LONG)
    assert ways.got() == {}
    ways.bring_event(SHORT, retain=True)
    assert ways.got() == {"far": 1, "near": 1}
    assert len(ways.world.broker.retained) == 0
    assert ways.world.drops() == {"link_duplicate": 1}


def test_a_group_whose_node_was_chosen_gets_the_copy_of_that_choice() -> None:
    ways = Ways()
    member = ways.world.connect("member")
    member.subscribe(b"$share/g/t")
    ways.bring_event(SHORT)
    assert member.take_payloads() == []
    ways.bring_event(SHORT, ((b"g", b"t"),))
    assert member.take_payloads() == [b"x"]
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}


@pytest.mark.parametrize(
    ("waited", "kept"),
    [
        ("1 time=999999 path=lima", b"here"),
        ("1 time=1000000 path=lima", b"x"),
        ("1 path=lima", b"x"),  # nobody knows
    ],
)
def test_an_older_retained_message_does_not_replace_a_newer_one(waited: str, kept: bytes) -> None:
    ways = Ways()
    ways.world.publish(b"t", b"here", qos=1, retain=True)
    ways.got()
    assert ways.bring(waited.encode(), retain=True) == 0
    assert ways.got() == {"reader": 1, "far": 1, "near": 1}
    assert retained(ways.world) == kept


def test_an_older_deletion_does_not_delete_a_newer_value() -> None:
    ways = Ways()
    ways.world.publish(b"t", b"here", qos=1, retain=True)
    for time in (999_000, 1_000_000, 1_000_001):
        value = with_header(f"1 time={time} path=lima")
        ways.links["lima"].publish(b"t", b"", 1, retain=True, properties=value)
        assert retained(ways.world) == (b"here" if time <= 1_000_000 else b"")


def test_an_older_message_does_not_bring_back_deleted_values() -> None:
    ways = Ways()
    ways.world.publish(b"t", b"here", qos=1, retain=True)
    ways.world.publish(b"t", b"", qos=1, retain=True)
    for time, kept in ((1_000_000, b""), (1_000_001, b"x")):  # the deletion is newer than the value
        ways.bring(f"1 time={time} path=lima".encode(), retain=True)
        assert retained(ways.world) == kept


def test_an_older_retained_message_of_another_node_does_not_replace_a_newer_one() -> None:
    ways = Ways()
    ways.world.publish(b"t", b"here", qos=1, retain=True)
    ways.bring_event(b"1 time=999000 path=lima", retain=True)
    assert retained(ways.world) == b"here"
    ways.bring_event(b"1 time=999000 path=", retain=True)
    assert retained(ways.world) == b"here"
    ways.bring_event(b"1 time=1000000 path=", retain=True)
    assert retained(ways.world) == b"x"


def test_a_message_of_a_client_is_newer_than_the_one_that_is_held() -> None:
    ways = Ways()
    ways.bring(b"1 time=1030000 path=lima", retain=True)
    ways.world.publish(b"t", b"here", qos=1, retain=True)
    assert retained(ways.world) == b"here"
    assert [headers(publish) for publish in ways.far.take_publishes()] == [
        ["1 time=1030000 path=lima,berlin"],
        ["1 time=1030001 path=berlin"],
    ]


def test_a_time_that_is_far_from_coming_is_now() -> None:
    """A domain whose clock is fast does not keep the messages of others out."""
    ways = Ways()
    ways.bring(b"1 time=0999999999999 path=lima", retain=True)
    assert [headers(publish) for publish in ways.far.take_publishes()] == [["1 time=1000000 path=lima,berlin"]]
    ways.links["rome"].publish(b"t", b"y", 1, retain=True, properties=with_header("1 time=1000000 path=rome"))
    assert retained(ways.world) == b"y"


def retained(world: World) -> bytes:
    message = world.broker.retained.get(b"t")
    return b"" if message is None else message.payload


@pytest.mark.parametrize("first", [b"older", b"newer"])
def test_two_changes_of_one_millisecond_end_alike_in_any_order(first: bytes) -> None:
    """A deletion is less than each value."""
    for one, other in ((b"a", b"b"), (b"a", b"")):
        ways = Ways()
        for payload in (one, other) if first == b"older" else (other, one):
            value = with_header("1 time=1000005 path=lima")
            ways.links["lima"].publish(b"t", payload, 1, retain=True, properties=value)
        assert retained(ways.world) == max(one, other)


def test_the_time_of_a_retained_message_is_that_of_its_stamp() -> None:
    """Other domains order it by its time, and other nodes by its stamp."""
    ways = Ways()
    versions = RetainedVersions(ways.world.broker, 60.0)
    ahead = 2_000_000
    versions.clock.saw(ahead << COUNTER_BITS)
    for payload in (b"x", b"y"):
        ways.world.publish(b"t", payload, qos=1, retain=True)
        message = ways.world.broker.retained.get(b"t")
        assert isinstance(message, RetainedMessage)
        assert message.origin is not None
        assert message.origin.published_at_ms >= ahead
        assert int(seconds_of(message.stamp >> PROCESS_BITS) * 1000) == message.origin.published_at_ms


def test_retained_messages_have_no_time_where_no_domains_are_linked() -> None:
    world = World()
    bridging_of(world.broker)
    world.publish(b"t", b"x", retain=True)
    message = world.broker.retained.get(b"t")
    assert message is not None
    assert message.origin is None
