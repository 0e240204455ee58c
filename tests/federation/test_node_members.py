"""Nodes that go, come and change: what waits for them, and when they are given up."""

from __future__ import annotations

import pytest

from federation.node_events import SendsNothing
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberLeave, MemberReap, MemberStatus, MemberUpdate
from federation.stream import receiver
from federation.stream.counters import DropReason
from federation.stream.receivers import NotAMember
from federation.stream.state import State
from federation_world import LATENCY, World


def test_messages_for_a_node_that_is_down_reach_it_after_its_restart() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.crash("n2")
    world.nodes["n1"].member_events([MemberFailed(world.member("n2"))], world.now)
    publisher = world.client("n1", "p")
    publisher.publish("t", b"while away")
    world.run(5)
    world.start("n2")
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.introduce("n2")
    world.run(5)
    publisher.publish("t", b"after")
    world.run(5)
    assert subscriber.payloads == [b"while away", b"after"]


def test_a_node_that_stays_away_is_given_up_and_its_drops_are_counted() -> None:
    world = World(2, outbox_age_max=10.0)
    world.client("n2", "s").subscribe("t")
    world.run(1)
    world.crash("n2")
    node = world.nodes["n1"]
    node.member_events([MemberFailed(world.member("n2"))], world.now)
    publisher = world.client("n1", "p")
    publisher.publish("t", b"x")
    world.run(5)
    outbox = node.senders["n2"].outbox
    assert outbox.size > 0
    world.run(6)
    assert outbox.size == 0
    assert world.dropped(DropReason.PEER_GONE) + world.dropped(DropReason.OUTBOX_AGE) == 1
    publisher.publish("t", b"y", retain=True)
    assert outbox.size == 0
    assert not outbox.lost_topics
    assert world.dropped(DropReason.PEER_GONE) + world.dropped(DropReason.OUTBOX_AGE) == 2
    with pytest.raises(NotAMember):
        node.receivers.get("n2")
    node.member_events([MemberReap(world.member("n2"))], world.now)
    assert node.senders == {}
    assert node.broker.router.lookup(b"t").peers == []


def test_a_node_that_was_given_up_and_returns_gets_what_comes_before_its_interest_is_known_again() -> None:
    world = World(2, outbox_age_max=10.0)
    world.client("n2", "s").subscribe("t")
    world.run(1)
    world.crash("n2")
    node = world.nodes["n1"]
    node.member_events([MemberFailed(world.member("n2"))], world.now)
    world.run(11)
    world.start("n2")
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.introduce("n2")
    world.client("n1", "p").publish("t", b"back")
    world.run(5)
    assert subscriber.payloads == [b"back"]
    assert node.senders["n2"].state is State.STREAMING
    assert world.dropped(DropReason.PEER_GONE) == 0


def test_a_node_that_left_is_dropped_at_once_and_may_come_back() -> None:
    world = World(2)
    world.client("n2", "s").subscribe("t")
    world.run(1)
    node = world.nodes["n1"]
    node.member_events([MemberLeave(world.member("n2"))], world.now)
    assert node.broker.router.lookup(b"t").peers == []
    with pytest.raises(NotAMember, match="n2 has not yet joined"):
        node.receivers.get("n2")
    node.member_events([MemberJoin(world.member("n2"))], world.now)
    world.run(10)
    assert [peer.name for peer in node.broker.router.lookup(b"t").peers] == ["n2"]


def test_this_node_leaves_and_joins_again() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    node = world.nodes["n1"]
    node.left()
    assert node.senders == {}
    node.member_events([MemberJoin(world.member("n2"))], world.now)
    assert node.senders == {}, "not before it joins again"
    node.joined([world.member("n2"), world.member("n1")], world.now)
    world.run(10)
    world.client("n1", "p").publish("t", b"back")
    world.run(1)
    assert subscriber.payloads == [b"back"]


def test_a_member_with_another_address_is_connected_there() -> None:
    world = World(2)
    world.run(1)
    sender = world.nodes["n1"].senders["n2"]
    attempt = sender.attempt
    world.nodes["n1"].member_events([MemberUpdate(world.member("n2", 9999))], world.now)
    assert sender.addr == "n2:9999"
    assert sender.attempt == attempt + 1
    world.run(1)
    assert sender.state is State.STREAMING


def test_a_member_that_becomes_a_plain_one_gets_the_plain_stream() -> None:
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    world.go_only = ("n2",)
    node = world.nodes["n1"]
    node.member_events([MemberUpdate(world.member("n2"))], world.now)
    assert not node.senders["n2"].names_groups
    world.client("n1", "p").publish("t", b"x")
    world.run(2)
    assert subscriber.payloads == [b"x"]


@pytest.mark.parametrize("tags", [{}, {"role": "web"}, {"fed_addr": "no port here:x"}, {"fed_addr": "unix:///tmp/x"}])
def test_a_member_that_takes_no_streams_is_ignored(tags: dict[str, str]) -> None:
    world = World(1)
    node = world.nodes["n1"]
    node.member_events([MemberJoin(Member("agent", "127.0.0.1", 1, tags, MemberStatus.ALIVE))], world.now)
    assert node.senders == {}
    assert len(node.take_events()) == (1 if "fed_addr" in tags else 0)


def test_a_go_broker_without_a_stream_is_named_once() -> None:
    """Its own stream was there, ended, and does not come back, while it is reached."""
    world = World(2, go_only=("n2",))
    world.run(1)
    node = world.nodes["n1"]
    link = world.links[("n2", "n1")]
    node.take_events()
    assert node.receivers.get("n2").stream is link
    node.receivers.get("n2").close_stream(link)
    told = []
    for seconds in range(100):
        node.handle_timeout(world.now + seconds)
        told += [(seconds, event) for event in node.take_events()]
    assert told == [(30, SendsNothing("n2", receiver.MISSING_SECONDS_MAX))]


def test_messages_are_not_delivered_twice_after_a_node_gave_another_up() -> None:
    """Only one of them gave the other up, and its last acknowledgement was lost. A full state follows all the same."""
    world = World(2)
    subscriber = world.client("n2", "s")
    subscriber.subscribe("t")
    world.run(1)
    publisher = world.client("n1", "p")
    for number in range(5):
        publisher.publish("t", b"%d" % number)
    world.flush()
    world.run(LATENCY * 1.5)  # the messages are there, their acknowledgement is on its way
    assert len(subscriber.received) == 5
    world.break_links("n1", "n2")
    node = world.nodes["n2"]
    node.member_events([MemberLeave(world.member("n1"))], world.now)
    publisher.publish("t", b"5")
    node.member_events([MemberJoin(world.member("n1"))], world.now)
    world.run(10)
    assert subscriber.payloads == [b"%d" % number for number in range(6)]
    assert world.nodes["n1"].counters["n2"].full_states_sent == 2


@pytest.mark.parametrize(
    ("tag", "is_extended"),
    [("", False), ("direct2", True), ("other,direct2", True), ("batch1,direct1", False), ("direct3", False)],
)
def test_the_tag_fed_ext_decides_the_kind_of_a_member(tag: str, is_extended: bool) -> None:
    """Also a node of an earlier build: it is served as a Go broker is."""
    world = World(1)
    node = world.nodes["n1"]
    tags = {"fed_addr": "127.0.0.1:1", "fed_ext": tag}
    node.member_events([MemberJoin(Member("n2", "127.0.0.1", 8902, tags, MemberStatus.ALIVE))], world.now)
    assert node.senders["n2"].extended is is_extended
    assert node.senders["n2"].names_groups is is_extended
    assert node.receivers.get("n2").extended is is_extended
