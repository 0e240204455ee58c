"""One link against scripted answers of an upstream: states, sessions, addresses, limits."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PingResp,
    Properties,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
)
from broker.codec.reader import PacketReader
from broker.origin import NAME
from broker.session.session import Session
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import TlsOptions, UpstreamSet, parse_upstream
from federation.links.bridging.headers import LinkWelcome, encode_welcome, parse_connect
from federation.links.covering_set import CLIENTS
from federation.links.handshake import local_client_id
from federation.links.interest import LinkInterest
from federation.links.link import BLOCKED_SECONDS, CONNECT_SECONDS_MAX, IDLE_SECONDS
from federation.links.reconnecting import CUT_SHORT_MAX
from federation.links.status import ROUND_TRIP_SECONDS_MAX, LinkState
from federation.links.topic_link import TopicLink
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope
from link_world import Shell, World
from wording import check_named


def test_a_link_connects_with_the_first_interest_and_is_idle_without() -> None:
    world = World()
    assert (world.state(), world.link.wants_connection) == (LinkState.IDLE, False)
    world.want(b"other/a")
    assert world.state() is LinkState.IDLE
    world.want()
    assert (world.state(), world.link.wants_connection) == (LinkState.STARTING, True)
    world.run()
    assert world.state() is LinkState.RUNNING
    world.want_no_more()
    assert [type(packet) for packet in world.answer(world.sent())] == [Unsubscribe]
    world.advance(IDLE_SECONDS)
    assert (world.state(), world.link.wants_connection) == (LinkState.IDLE, False)
    (goodbye,) = world.sent()
    assert goodbye == Disconnect(0, {props.SESSION_EXPIRY_INTERVAL: 0})
    assert world.broker.sessions == {}


def test_interest_that_changes_all_the_time_keeps_no_link_from_running() -> None:
    world = World()
    world.want(b"s/0")
    waiting = [packet for packet in world.connect() if isinstance(packet, Subscribe)]
    world.receive(PingResp())
    for number in range(1, 3):
        world.want(b"s/%d" % number)
        waiting += [packet for packet in world.sent() if isinstance(packet, Subscribe)]
        assert world.state() is (LinkState.STARTING if number == 1 else LinkState.RUNNING)
        world.receive(SubAck(waiting.pop(0).packet_id, [1]))
    assert len(waiting) == 1


def test_interest_that_comes_back_soon_finds_the_session() -> None:
    world = World()
    world.want()
    world.run()
    world.want_no_more()
    world.advance(IDLE_SECONDS / 2)
    world.want(b"s/b")
    world.advance(IDLE_SECONDS)
    assert world.link.wants_connection


def test_connect_asks_for_a_session_that_lasts() -> None:
    world = World({"prefetch-count": 7, "expires": 60_000, "uri": "mqtt://u:p@north.example.com?heartbeat=9"})
    world.want()
    connect = world.connect()[0]
    assert isinstance(connect, Connect)
    assert not connect.clean_start
    assert (connect.username, connect.password, connect.keep_alive) == ("u", b"p", 9)
    assert connect.properties[props.RECEIVE_MAXIMUM] == 7
    assert connect.properties[props.SESSION_EXPIRY_INTERVAL] == 60
    assert connect.client_id.startswith("federation-link-berlin-north-")


def test_messages_are_published_here_and_acknowledged_there() -> None:
    world = World()
    world.want()
    world.run()
    world.receive(Publish(b"s/a", b"x", 1, True, packet_id=9), Publish(b"s/a", b"y"))
    assert world.sent() == [PubAck(9, 0x10)]  # no client here subscribes
    found = world.broker.retained.get(b"s/a")
    assert found is not None
    assert found.payload == b"x"
    status = world.link.status(world.now)
    assert (status.received, status.in_flight, status.subscriptions) == (2, 0, 1)


def test_the_delay_grows_and_a_restart_begins_anew() -> None:
    world = World()
    world.want()
    delays = []
    for _ in range(5):
        world.lose()
        assert world.state() is LinkState.ERROR
        delays.append(world.until_next_try())
    assert delays == sorted(delays)
    world.lose()
    world.link.restart(world.now)
    assert (world.state(), world.link.wants_connection) == (LinkState.STARTING, True)
    world.lose()
    assert world.until_next_try() <= 1.0


def test_an_upstream_without_version_5_is_asked_in_version_4() -> None:
    for refusal in (ConnAck(False, 0x84), None):
        world = World()
        world.want()
        world.link.connected(world.link.attempt, world.now)
        if refusal is None:
            world.lose("closed")
            assert version_of_next_try(world) == 4
            world.receive(ConnAck(False), version=4)
            assert (world.state(), world.link.wants_connection) == (LinkState.STARTING, True)
            world.link.connected(world.link.attempt, world.now)  # with MQTT 5, once more
            world.lose("closed")
            world.until_next_try()
        else:
            world.receive(refusal, version=4)
            assert world.link.wants_connection
        world.shell.out = b""
        world.version = 4
        connect = world.connect()[0]
        assert isinstance(connect, Connect)
        assert connect.protocol_version == 4
        assert "3.1.1" in world.link.notes[0].text


def version_of_next_try(world: World) -> int:
    world.until_next_try()
    world.shell.out = b""
    world.link.connected(world.link.attempt, world.now)
    (connect,) = PacketReader(5).receive_data(world.shell.out)
    assert isinstance(connect, Connect)
    return connect.protocol_version


def test_a_connection_that_was_closed_with_a_reason_is_no_matter_of_the_version() -> None:
    world = World()
    world.want()
    world.link.connected(world.link.attempt, world.now)
    world.lose("TLS: certificate expired", says_why=True)
    assert version_of_next_try(world) == 5


def test_an_upstream_that_refuses_both_versions_is_not_asked_again_at_once() -> None:
    world = World()
    world.want()
    world.link.connected(world.link.attempt, world.now)
    world.receive(ConnAck(False, 0x84), version=4)
    assert (world.state(), world.link.wants_connection) == (LinkState.STARTING, True)
    world.link.connected(world.link.attempt, world.now)
    world.receive(ConnAck(False, 0x84), version=4)
    assert (world.state(), world.link.wants_connection) == (LinkState.ERROR, False)
    assert version_of_next_try(world) == 5


def test_connection_timeout_bounds_the_wait_for_connack() -> None:
    world = World({"uri": "mqtt://north.example.com?connection_timeout=2000"})
    world.want()
    world.advance(0.5)
    world.link.connected(world.link.attempt, world.now)
    world.advance(1.4)
    assert world.state() is LinkState.STARTING
    world.advance(0.1)
    assert world.state() is LinkState.ERROR
    assert world.link.last_error == "no CONNACK for 1.5 s"


@pytest.mark.parametrize(
    ("pushed", "relays"), [("s/#", True), ("+/a", True), ("#", True), ("t/#", False), ("$share/g/s/#", False)]
)
def test_connect_says_whether_messages_are_pushed_on(pushed: str, relays: bool) -> None:
    world = World()
    north = world.link.plan.upstream
    south = parse_upstream("south", {"uri": "mqtt://south.example.com", "direction": "out"})
    policies = [
        parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream": "north"}}),
        parse_policy("q", {"pattern": pushed, "definition": {"federation-upstream": "south"}, **queue_keys(pushed)}),
    ]
    world.links.resolve(Resolution([north, south], [], policies), world.now)
    world.link = world.links.by_id[world.link.plan.link_id]
    world.shell = Shell(world.link)
    world.want()
    connect = world.connect()[0]
    assert isinstance(connect, Connect)
    [(_, header)] = props.get_user_properties(connect.properties)
    assert parse_connect(header.encode()).relays == relays


def queue_keys(pattern: str) -> dict[str, str]:
    return {"apply-to": "queues"} if pattern.startswith("$share/") else {}


def test_a_link_that_pushes_asks_an_upstream_of_ours_for_nothing() -> None:
    world = World({"direction": "out"})
    welcome = encode_welcome(LinkWelcome(b"paris", 1, "", 1000, 1000)).decode()
    world.want()
    assert world.run(properties={props.USER_PROPERTY: [(NAME.decode(), welcome)]}) == []
    assert world.state() is LinkState.RUNNING


def test_a_link_without_answers_fails() -> None:
    world = World()
    world.want()
    world.advance(CONNECT_SECONDS_MAX)
    assert world.state() is LinkState.ERROR
    world = World()
    world.want()
    world.run()
    world.advance(ROUND_TRIP_SECONDS_MAX + 1)
    assert world.state() in (LinkState.ERROR, LinkState.STARTING)
    assert "no answer" in world.link.last_error


def test_a_taken_session_blocks_the_link() -> None:
    world = World()
    world.want()
    world.run()
    world.receive(Disconnect(0x8E))
    assert (world.state(), world.link.wants_connection) == (LinkState.BLOCKED, False)
    assert world.until_next_try() >= BLOCKED_SECONDS


def test_connections_that_another_broker_cuts_short_block_the_link() -> None:
    world = World()
    world.want()
    world.run()
    for _ in range(CUT_SHORT_MAX):
        world.lose()
        assert world.state() is LinkState.ERROR
        world.until_next_try()
        world.run(session_present=True)
    world.lose("closed")
    assert world.state() is LinkState.BLOCKED
    assert world.link.last_error.startswith(f"closed; {CUT_SHORT_MAX} connections in a row")
    assert world.until_next_try() >= BLOCKED_SECONDS


@pytest.mark.parametrize(
    ("properties", "note"),
    [
        ({props.SESSION_EXPIRY_INTERVAL: 30}, "wait at the upstream for at most 30 s"),
        ({props.MAXIMUM_QOS: 0}, "QoS 0 only"),
        ({props.RETAIN_AVAILABLE: 0}, "no retained messages"),
        (
            {props.USER_PROPERTY: [(NAME.decode(), encode_welcome(LinkWelcome(b"-", 1, "role", -1, -1)).decode())]},
            "no role `link`",
        ),
    ],
)
def test_the_status_notes_a_smaller_grant(properties: Properties, note: str) -> None:
    world = World()
    world.want()
    world.run(properties=properties)
    assert note in " ".join(note.text for note in world.link.status(world.now).notes)


def test_the_status_notes_filters_that_the_upstream_refuses() -> None:
    world = World()
    world.want(b"s/a")
    world.want(b"s/b")
    (subscribe,) = [packet for packet in world.connect() if isinstance(packet, Subscribe)]
    world.receive(PingResp(), SubAck(subscribe.packet_id, [0x87, 0x80]))
    assert world.state() is LinkState.RUNNING
    (note,) = world.link.status(world.now).notes
    check_named(note.text, [" 2 ", "s/a", "Not authorized"])
    world.want_no_more(b"s/a")
    (unsubscribe,) = world.sent()
    assert isinstance(unsubscribe, Unsubscribe)
    world.receive(UnsubAck(unsubscribe.packet_id, [0x11]))
    (note,) = world.link.status(world.now).notes
    check_named(note.text, ["s/b", "Unspecified error"])


def test_the_status_notes_filters_beyond_the_bound_of_a_link() -> None:
    world = World()
    assert isinstance(world.link, TopicLink)
    found = LinkInterest(Scope([(b"#", True)]), TopicMapping(), b"berlin", 1, filters_max=1)
    for topic_filter in (b"s/a", b"s/b", b"s/c"):
        found.change(topic_filter, CLIENTS)
    world.link.interest = found
    (note,) = world.link.status(world.now).notes
    check_named(note.text, ["2 filters", "not subscribed", "200000"])


def test_subscribe_tells_an_upstream_of_ours_the_domains_behind_a_filter() -> None:
    world = World()
    world.want()
    welcome = encode_welcome(LinkWelcome(b"paris", 1, "", 1000, 1000)).decode()
    sent = world.connect(properties={props.USER_PROPERTY: [(NAME.decode(), welcome)]})
    (subscribe,) = [packet for packet in sent if isinstance(packet, Subscribe)]
    assert props.get_user_properties(subscribe.properties) == [("gmqttd-link", "1 hops=1 path=berlin")]
    world.receive(Publish(b"s/a", b"far", 1, packet_id=1, properties=header(b"1 path=oslo,paris")))
    assert world.link.status(world.now).dropped["link_hops"] == 1


def header(value: bytes) -> bytes:
    return b"\x26\x00\x0bgmqttd-link" + len(value).to_bytes(2, "big") + value


def test_a_stop_keeps_the_session_and_the_end_of_a_link_does_not() -> None:
    for ends_link, expected in ((False, Disconnect()), (True, Disconnect(0, {props.SESSION_EXPIRY_INTERVAL: 0}))):
        world = World()
        world.want()
        world.run()
        world.link.stop("test", ends_link, world.now)
        assert world.sent() == [expected]
        assert (world.state(), world.link.wants_connection) == (LinkState.SHUTDOWN, False)
        world.link.restart(world.now)
        assert (world.state(), world.link.wants_connection) == (LinkState.STARTING, True)
    world = World({"resource-cleanup-mode": "never"})
    world.want()
    world.run()
    world.link.stop("test", True, world.now)
    assert world.sent() == [Disconnect()]


def test_a_message_that_the_broker_does_not_take_is_dropped_when_it_comes_again() -> None:
    world = World(max_topic_levels=3)
    world.want(b"s/#")
    world.run()
    poison = Publish(b"s/a/b/c/d", b"x", 1, packet_id=1)
    world.receive(poison)
    assert world.state() is LinkState.ERROR
    assert "topic name has more than 3 levels" in world.link.last_error
    world.until_next_try()
    world.run(session_present=True)
    poison.dup = True
    world.receive(poison, Publish(b"s/a", b"y", 1, packet_id=2))
    assert {packet.packet_id for packet in world.sent() if isinstance(packet, PubAck)} == {1, 2}
    assert world.state() is LinkState.RUNNING
    assert world.link.status(world.now).dropped == {"surplus": 1}


def test_a_broker_without_retained_messages_asks_for_none() -> None:
    world = World(retain_available=False, maximum_qos=0)
    world.want()
    (entry,) = world.run()
    assert isinstance(entry, SubscribeFilter)
    assert (entry.qos, entry.retain_as_published, entry.retain_handling) == (0, False, 2)


def test_retained_messages_of_an_upstream_that_sends_them_unasked_are_dropped() -> None:
    world = World(retain_available=False)
    world.version = 4
    world.want()
    world.link.connected(world.link.attempt, world.now)
    world.receive(ConnAck(False, 0x84), version=5)  # it has MQTT 3.1.1 only
    world.run()
    world.receive(Publish(b"s/a", b"0", 0, True), Publish(b"s/a", b"1", 1, True, packet_id=1), Publish(b"s/a", b"live"))
    assert world.sent() == [PubAck(1)]
    assert world.state() is LinkState.RUNNING
    found = world.link.status(world.now)
    assert (found.received, found.dropped) == (3, {"link_retained": 2})


def test_a_broker_that_ends_the_local_connection_ends_the_other_one() -> None:
    world = World()
    world.want()
    world.run()
    (session,) = world.broker.sessions.values()
    world.broker.close_client(session.client_id, False, world.now)
    assert world.sent() == [Disconnect()]
    assert world.state() is LinkState.ERROR
    assert "disconnected by an administrator" in world.link.last_error


def test_a_link_that_is_drained_takes_nothing_new_and_is_not_connected_again() -> None:
    world = World()
    world.want()
    world.run()
    link = world.link
    world.links.drain(link.plan.link_id, world.now + 5.0, world.now)
    assert (world.state(), world.shell.is_held, link.is_drained()) == (LinkState.DRAINING, True, True)
    assert link.status(world.now).deadline == world.now + 5.0
    world.lose()
    assert (world.state(), link.wants_connection) == (LinkState.SHUTDOWN, False)
    world.links.end(link.plan.link_id, world.now)
    assert world.links.by_id == {}
    world.advance(100.0)
    assert not link.wants_connection


def test_another_node_finds_the_session_of_a_link_that_ended_here() -> None:
    world = World()
    world.want()
    world.run()
    link_id = world.link.plan.link_id
    world.links.drain(link_id, world.now + 5.0, world.now)
    world.links.end(link_id, world.now)
    assert world.sent() == [Disconnect()]
    assert world.broker.sessions == {}
    world.links.run(link_id, 7, world.now)
    world.links.pass_on(world.now)
    (link,) = world.links.by_id.values()
    assert (link.epoch, link.wants_connection) == (7, True)


def test_a_blocked_link_connects_at_once_when_its_rival_is_gone() -> None:
    world = World()
    world.want()
    world.run()
    world.receive(Disconnect(0x8E))
    assert world.state() is LinkState.BLOCKED
    world.links.run(world.link.plan.link_id, 8, world.now)
    assert world.state() is LinkState.STARTING
    connect = world.connect()[0]
    assert isinstance(connect, Connect)
    assert " epoch=8" in dict(props.get_user_properties(connect.properties))[NAME.decode()]


@pytest.mark.parametrize(("pattern", "is_kept"), [("t/#", True), ("s/b", False)])
def test_a_new_policy_for_other_topics_leaves_the_connection_alone(pattern: str, is_kept: bool) -> None:
    world = World()
    new = parse_policy("new", {"pattern": pattern, "priority": 1, "definition": {"federation-upstream": "south"}})
    south = parse_upstream("south", {"uri": "mqtt://south.example.com"})
    world.links.resolve(Resolution([world.link.plan.upstream, south], [], [*world.link.plan.policies, new]), world.now)
    assert (world.links.by_id[world.link.plan.link_id] is world.link) == is_kept


def test_an_invalid_link_opens_no_connection() -> None:
    world = World()
    world.want()
    plain = world.link.plan.upstream
    near = UpstreamSet("near", ((plain.name, (("tls", TlsOptions(verify=False)),)),))
    policy = parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream-set": "near"}})
    world.links.resolve(Resolution([plain], [near], [policy]), world.now)
    (link_id,) = world.links.plans()
    world.links.run(link_id, 1, world.now)
    world.link = world.links.by_id[link_id]
    assert (world.state(), world.link.wants_connection) == (LinkState.INVALID, False)
    world.want(b"s/b")
    world.link.restart(world.now)
    assert (world.state(), world.link.wants_connection) == (LinkState.INVALID, False)


def test_an_out_link_whose_definition_is_gone_leaves_no_queue_here() -> None:
    world = World({"direction": "out"})
    world.run()
    assert [session.client_id for session in world.broker.sessions.values()] == [
        world.link.status(world.now).local_connection
    ]
    world.links.resolve(Resolution([], [], []), world.now)
    assert world.broker.sessions == {}


def test_queues_that_a_store_has_kept_for_links_without_a_definition_end_with_the_start() -> None:
    world = World({"direction": "out"})
    kept = local_client_id(world.link.plan)
    for client_id in (kept, "link:gone:12345678", "a client"):
        world.broker.sessions[client_id] = Session(world.broker, client_id, world.now)
    world.links.drop_old_queues(world.now)
    assert list(world.broker.sessions) == [kept, "a client"]
