"""Two sessions of one client become one: what the former homes have sent goes on where the client has answered it."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from broker.codec.packets import PubComp, PubRec, PubRel
from broker.session.outgoing import AWAIT_PUBCOMP
from broker_world import START, Client, World
from federation.sessions.content import head_records, outgoing_record, take_head
from federation.sessions.relayed import Relayed
from federation.sessions.wire import Record
from numbered_feeds import NumberedFeeds
from restarts import kept, restored


def client_of(world: World, receive_maximum: int = 10) -> Client:
    """A durable client with a subscription of QoS 2, which answers nothing by itself."""
    properties = {props.RECEIVE_MAXIMUM: receive_maximum}
    client = world.connect("c", clean_start=False, expiry=3600, auto=False, properties=properties)
    client.subscribe(b"t")
    return client


def session_elsewhere(is_received: bool) -> list[Record]:
    """The session on another node, which has sent a message with the packet identifier 1; is_received: PUBREC came."""
    world = World()
    client = client_of(world)
    world.publish(b"t", b"from there", qos=2)
    if is_received:
        client.send(PubRec(1))
    session = world.broker.sessions["c"]
    assert session.inflight is not None
    assert (session.inflight.messages()[0].state == AWAIT_PUBCOMP) is is_received
    outgoings = session.inflight.messages()
    return [*head_records(session, 0.0, (0, 0)), *[outgoing_record(outgoing, 0.0) for outgoing in outgoings]]


@pytest.mark.parametrize("is_connected", [True, False])
@pytest.mark.parametrize(("there", "here", "first"), [(7, 3, 7), (3, 7, 7)])
def test_a_feed_that_was_begun_anew_goes_on_behind_what_both_have_had(
    is_connected: bool, there: int, here: int, first: int
) -> None:
    def subscribed(end: int) -> tuple[World, Client, NumberedFeeds]:
        world = World()
        feeds = NumberedFeeds()
        feeds.end = end
        world.broker.feeds = feeds
        client = world.connect("c", clean_start=False, expiry=3600)
        client.subscribe(b"$stream/0/#", qos=1)
        world.flush()
        assert len(client.take_payloads()) == end
        return world, client, feeds

    former, _, _ = subscribed(there)
    records = head_records(former.broker.sessions["c"], 0.0, (0, 0))
    world, client, feeds = subscribed(here)
    if not is_connected:
        client.cut()
    session, _ = take_head(world.broker, "c", records, False, Relayed(), START)
    session.pump(world.now)  # as the caller does
    feeds.grow(9, world.now)
    world.flush()
    if not is_connected:
        client = world.connect("c", clean_start=False, expiry=3600)
    assert client.take_payloads() == [b"%d" % number for number in range(first, 9)]
    world.check()


@pytest.mark.parametrize("is_connected", [True, False])
def test_what_the_client_has_received_is_released(is_connected: bool) -> None:
    world = World()
    client = client_of(world)
    if not is_connected:
        client.cut()
    client.take_packets()
    take_head(world.broker, "c", session_elsewhere(True), False, Relayed(), START)
    world.flush()
    if not is_connected:
        client = client_of(world)
    assert [packet for packet in client.packets if isinstance(packet, PubRel)] == [PubRel(1)]
    client.send(PubComp(1))
    session = world.broker.sessions["c"]
    assert session.inflight_length() == 0
    world.publish(b"t", b"the next", qos=2)
    assert client.take_payloads() == [b"the next"]
    world.check()


def test_a_packet_identifier_that_is_in_use_here_stays_that_of_its_message() -> None:
    world = World()
    client = client_of(world)
    world.publish(b"t", b"from here", qos=2)
    take_head(world.broker, "c", session_elsewhere(True), False, Relayed(), START)
    world.flush()
    assert not [packet for packet in client.packets if isinstance(packet, PubRel)]
    client.send(PubRec(1))
    client.send(PubComp(1))
    assert world.broker.sessions["c"].inflight_length() == 0


def test_of_two_messages_with_one_packet_identifier_in_a_head_none_is_lost() -> None:
    """No node hands over such; the first one keeps it."""
    *head, sent = session_elsewhere(False)
    message = sent[2]
    assert isinstance(message, tuple)
    second = (*sent[:2], (*message[:2], b"second", *message[3:]), *sent[3:])
    world = World()
    take_head(world.broker, "c", [*head, sent, second], True, Relayed(), START)
    client = client_of(world)
    found = client.take_publishes()
    assert [(packet.payload, packet.packet_id) for packet in found] == [(b"from there", 1), (b"second", 2)]
    world.check()


@pytest.mark.parametrize("is_connected", [True, False])
def test_what_was_sent_is_sent_again_with_its_packet_identifier(is_connected: bool) -> None:
    """The client may have it, and sent a PUBREC that was lost: under another identifier it would be another message."""
    world = World()
    client = client_of(world)
    if not is_connected:
        client.cut()
    take_head(world.broker, "c", session_elsewhere(False), False, Relayed(), START)
    world.flush()
    if not is_connected:
        client = client_of(world)
    (packet,) = client.take_publishes()
    assert (packet.payload, packet.packet_id, packet.dup) == (b"from there", 1, True)
    world.publish(b"t", b"the next", qos=2)
    assert [(packet.payload, packet.packet_id) for packet in client.take_publishes()] == [(b"the next", 2)]
    world.check()


@pytest.mark.parametrize("why", ["in use", "no room"])
def test_what_cannot_go_on_is_sent_anew(why: str) -> None:
    """With another packet identifier, and not beyond the client's Receive Maximum."""
    world = World()
    client = client_of(world, 1 if why == "no room" else 10)
    session = world.broker.sessions["c"]
    if why == "no room":
        session.begin_packet_ids(7)
    world.publish(b"t", b"from here", qos=2)
    take_head(world.broker, "c", session_elsewhere(False), False, Relayed(), START)
    world.flush()
    packet_id = 7 if why == "no room" else 1
    assert client.take_payloads() == ([b"from here"] if why == "no room" else [b"from here", b"from there"])
    client.send(PubRec(packet_id))
    client.send(PubComp(packet_id))
    assert client.take_payloads() == ([b"from there"] if why == "no room" else [])
    assert session.inflight_length() == 1
    world.check()


@pytest.mark.parametrize("clock", [0.0, -5000.0, 5000.0])
def test_a_session_that_moves_without_its_client_tells_when_that_went(clock: float) -> None:
    """By the clock of the node that it left, on which no session ends: the client has all its time from the move on, also
    behind a restart and another move."""
    former = World()
    client_of(former).cut()
    went = former.now
    world = kept(World)
    world.advance(2000.0)
    offset = world.wall_offset + clock  # both began at START
    records = head_records(former.broker.sessions["c"], offset, (0, 0))
    session, _ = take_head(world.broker, "c", records, False, Relayed(), world.now)
    shown = min(went + clock, world.now)
    assert session.disconnected_at == shown
    world.advance(1000.0)
    after = restored(World, world)
    again = after.broker.sessions["c"]
    assert again.disconnected_at + after.wall_offset == shown + world.wall_offset
    after.advance(2599.0)
    assert list(after.broker.sessions) == ["c"]
    third = kept(World)
    third.now = after.now + after.wall_offset - third.wall_offset
    records = head_records(again, after.wall_offset, (0, 0))
    moved, _ = take_head(third.broker, "c", records, False, Relayed(), third.now)
    assert moved.disconnected_at + third.wall_offset == shown + world.wall_offset
    third.advance(3599.0)
    assert list(third.broker.sessions) == ["c"]
    for each in (after, third):
        each.advance(2.0)
        assert each.broker.sessions == {}
