"""Sessions of links: their limits, what waits for them, and their interest."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from broker.codec.packets import Disconnect, UnsubAck, Unsubscribe
from federation.links.bridging.ends import RemoteEnd
from federation.links.bridging.headers import ONLY_ASKED
from link_clients import NAME, headers, link_options, linked, named_world, with_header
from link_ends import remote_end


def test_the_limits_of_link_sessions_are_their_own() -> None:
    world = named_world(
        max_queued_messages=3, max_inflight=2, message_expiry=5, link_max_queued_messages=6, link_max_inflight=4
    )
    for name, options in (("client", {}), ("link", link_options())):
        client = world.connect(name, expiry=100, **options)
        client.subscribe(b"#", qos=1)
        client.cut()
    publisher = world.connect("publisher")
    for number in range(10):
        publisher.publish(b"t", b"%d" % number, qos=1)
    assert world.broker.sessions["client"].queue_length() == 3
    assert world.broker.sessions["link"].queue_length() == 6
    world.advance(10)
    client = world.connect("client", clean_start=False, auto=False)
    assert client.take_payloads() == []
    link = world.connect("link", clean_start=False, auto=False, **link_options())
    assert link.take_payloads() == [b"4", b"5", b"6", b"7"]
    world.check()


def test_the_local_session_of_a_link_of_this_node_may_be_kept_as_long_as_that_of_another_domain() -> None:
    world = named_world(session_expiry=60, link_session_expiry=6000)
    client = world.open()
    client.connection.bridge_end = remote_end(world.broker, b"paris", 1)
    client.connect("link-out", expiry=5000)
    assert world.broker.sessions["link-out"].expiry_interval == 5000


def test_waiting_messages_expire_after_the_message_ttl_of_a_link() -> None:
    world = named_world()
    options = link_options(ttl=2.5)
    link = world.connect("link", expiry=100, **options)
    link.subscribe(b"#", qos=1)
    link.cut()
    world.publish(b"t", b"old", qos=1)
    world.advance(2)
    world.publish(b"t", b"new", qos=1)
    world.advance(1)
    link = world.connect("link", clean_start=False, **options)
    assert link.take_payloads() == [b"new"]
    assert world.drops() == {"expired": 1}


def test_a_reconnect_begins_no_new_count_of_the_message_ttl() -> None:
    world = named_world()
    options = link_options(ttl=2.5)
    options["properties"] = {**options["properties"], props.RECEIVE_MAXIMUM: 1}
    link = world.connect("link", expiry=100, auto=False, **options)
    link.subscribe(b"#", qos=1)
    link.cut()
    world.publish(b"t", b"sent before", qos=1)
    world.publish(b"t", b"old", qos=1)
    world.advance(2)
    link = world.connect("link", clean_start=False, auto=False, expiry=100, **options)
    assert link.take_payloads() == [b"sent before"]
    link.cut()
    world.advance(1)
    link = world.connect("link", clean_start=False, **options)
    assert link.take_payloads() == [b"sent before"]  # it was on its way
    assert world.drops() == {"expired": 1}


def test_messages_that_wait_for_a_link_keep_their_headers() -> None:
    world = named_world()
    receiver = world.connect("link-rome", expiry=100, **link_options("rome", 9))
    receiver.subscribe(b"#", qos=1)
    receiver.cut()
    publisher = linked(world)
    publisher.publish(b"t", qos=1, properties=with_header("1 path=oslo,paris"))
    publisher.publish(b"t", qos=1, properties=with_header("1 path=rome,paris"))
    again = world.connect("link-rome", clean_start=False, **link_options("rome", 9))
    assert [headers(publish) for publish in again.take_publishes()] == [["1 path=oslo,paris,berlin"]]


def test_a_session_that_is_no_link_any_more_is_served_as_one_of_a_client() -> None:
    world = named_world()
    link = world.connect("c", expiry=100, **link_options("rome", 1))
    link.subscribe(b"#", qos=1)
    link.cut()
    client = world.connect("c", clean_start=False, expiry=100)
    linked(world).publish(b"t", qos=1, properties=with_header("1 path=rome,paris"))
    assert [publish.properties for publish in client.take_publishes()] == [b""]


@pytest.mark.parametrize(
    "values",
    [
        ["nonsense"],
        ["1 path=rome hops=1"],
        ["1 path=paris,rome hops=1"],
        [f"1 hops=1 path=d{i},paris" for i in range(33)],
    ],
)
def test_forged_interest_of_a_link_ends_its_connection(values: list[str]) -> None:
    world = named_world()
    link = linked(world)
    with pytest.raises(AssertionError, match="no SUBACK"):
        link.subscribe(b"#", pairs=[(NAME, value) for value in values])
    assert [packet.reason_code for packet in link.packets if isinstance(packet, Disconnect)] == [0x82]
    assert world.broker.sessions == {}


def test_interest_of_an_ordinary_client_has_no_headers() -> None:
    world = named_world()
    client = world.connect("c")
    assert client.subscribe(b"#", pairs=[(NAME, "nonsense")]) == [2]
    assert world.broker.sessions["c"].subscriptions[b"#"].along == ()


@pytest.mark.parametrize(
    ("is_link", "header", "left"),
    [
        (True, ONLY_ASKED, [b"b"]),
        (True, b"1 only-asked=0", [b"a", b"b"]),
        (True, b"1 new=1", [b"a", b"b"]),
        (False, ONLY_ASKED, [b"a", b"b"]),
    ],
)
def test_a_link_ends_the_subscriptions_that_it_has_not_asked_for(
    is_link: bool, header: bytes, left: list[bytes]
) -> None:
    world = named_world()
    options = link_options() if is_link else {}
    link = world.connect("link", expiry=100, **options)
    link.subscribe(b"a", b"b", qos=1)
    link.cut()
    link = world.connect("link", clean_start=False, **options)
    link.subscribe(b"b", qos=1)
    link.send(Unsubscribe(7, [b"none"], {props.USER_PROPERTY: [(NAME, header.decode())]}))
    assert link.take_packets() == [UnsubAck(7, [0x11])]
    assert list(world.broker.sessions["link"].subscriptions) == left
    world.check()


def test_filters_that_come_and_go_leave_nothing() -> None:
    """A link stays connected for months."""
    world = named_world()
    link = world.connect("link", **link_options())
    for number in range(5):
        link.subscribe(b"t/%d" % number, qos=1)
        link.send(Unsubscribe(7, [b"t/%d" % number]))
    end = world.broker.sessions["link"].bridge_end
    assert isinstance(end, RemoteEnd)
    assert end.asked == set()


def test_a_link_with_an_unreadable_header_of_unsubscribe_is_closed() -> None:
    world = named_world()
    link = world.connect("link", **link_options())
    link.send(Unsubscribe(7, [b"none"], {props.USER_PROPERTY: [(NAME, "1 only-asked=yes")]}))
    assert [packet.reason_code for packet in link.take_packets() if isinstance(packet, Disconnect)] == [0x82]
