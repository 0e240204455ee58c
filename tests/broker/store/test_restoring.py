"""Durable state outlives its process: kept in records, and restored into another broker with another monotonic clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.authorization import ALLOW, DENY, Authorizer, ClientIdentity, TopicAccess, Verdict
from broker.codec import properties as props
from broker.codec.packets import PubAck, PubComp, Publish, PubRec, PubRel, SubscribeFilter, Will
from broker.codec.properties import encode_publish_properties
from broker.hooks import Forwarder
from broker.message import Message
from broker.session.durable import note_change
from broker.session.group_queues import GroupQueues
from broker.session.session import EXPIRY_NEVER
from broker.store.records import encode_session
from link_clients import link_options
from restarts import kept, member, restarted, restored


def test_nothing_changes_by_a_restart(make_world: Any) -> None:
    world = kept(make_world, max_inflight=1)
    client = member(world, will=Will(b"w", b"gone", 1, delay_interval=100))
    client.subscribe(b"a", b"$share/g/b/#")
    for qos in (1, 2):
        world.publish(b"a", b"%d" % qos, qos=qos, message_expiry_interval=500, retain=True)
    client.publish(b"x", qos=2, packet_id=9)
    client.cut()
    after = restored(make_world, world, max_inflight=1)
    assert after.stored == world.stored
    journal = after.broker.commits.journal
    assert journal.changes == {}
    assert journal.next_number > max(world.stored)
    for session in after.broker.sessions.values():
        assert encode_session(session, after.wall_offset) == world.stored[session.records.number]
    after.check()


def test_subscriptions_are_in_the_tree_and_told_to_other_nodes(make_world: Any) -> None:
    told: list[tuple[bytes, bytes]] = []

    class Told(Forwarder):
        def interest_added(self, share_name: bytes, topic_filter: bytes) -> None:
            told.append((share_name, topic_filter))

    world = kept(make_world)
    for name in ("c", "d"):
        world.connect(name, expiry=1000).subscribe(b"a/+", b"$share/g/b")
    after = restored(make_world, world, forwarder=Told())
    assert told == [(b"", b"a/+"), (b"g", b"b")]
    after.publish(b"a/x", b"1", qos=1)
    after.publish(b"b", b"2", qos=1)
    after.publish(b"b", b"3", qos=1)
    counts = [after.broker.sessions[name].queue_length() for name in ("c", "d")]
    assert counts == [2, 2]
    after.check()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_delivery_again(make_world: Any, version: int) -> None:
    """[MQTT-4.4.0-1] over a restart: DUP, the same packet identifiers, the same order; new identifiers are free ones."""
    world = kept(make_world, session_expiry=10_000.0)
    client = member(world, version)
    client.subscribe(b"a")
    for number, qos in enumerate((1, 2, 1, 2)):
        world.publish(b"a", b"%d" % number, qos=qos)
    sent = client.take_publishes()
    client.send(PubRec(sent[1].packet_id))
    client.send(PubAck(sent[2].packet_id))
    after = restarted(make_world, world, 5.0)
    after.publish(b"a", b"queued", qos=1)
    again = member(after, version)
    packets = again.take_packets()
    assert again.connack.session_present is (version > 3)
    assert [packet.packet_id for packet in packets] == [1, 2, 4, 5]
    assert isinstance(packets[1], PubRel)
    publishes = [packet for packet in packets if isinstance(packet, Publish)]
    assert [(p.payload, p.dup, p.qos) for p in publishes] == [
        (b"0", True, 1),
        (b"3", True, 2),
        (b"queued", False, 1),
    ]
    again.send(PubComp(2))
    again.send(PubAck(1))
    assert after.broker.sessions["c"].inflight_length() == 2


@pytest.mark.parametrize(("downtime", "there"), [(0.0, True), (80.0, True), (80.5, False), (100_000.0, False)])
def test_the_expiry_of_a_session_runs_on_while_the_node_is_down(make_world: Any, downtime: float, there: bool) -> None:
    world = kept(make_world)
    member(world, expiry=100).cut()
    world.advance(20.0)
    after = restarted(make_world, world, downtime)
    assert ("c" in after.broker.sessions) is there
    assert after.broker.counters.sessions_expired == (not there)
    after.advance(80.5)
    assert after.broker.sessions == {}
    assert len(after.broker.timers) == 0


def test_a_restart_begins_no_new_count_of_the_message_ttl_of_a_link(make_world: Any) -> None:
    world = kept(make_world)
    options = link_options(ttl=10.0)
    link = world.connect("link", expiry=1000, **options)
    link.subscribe(b"#", qos=1)
    link.cut()
    world.publish(b"t", b"old", qos=1)
    after = restarted(make_world, world, 11.0)
    assert after.connect("link", clean_start=False, **options).take_payloads() == []


def test_the_session_of_a_link_is_taken_up_by_its_own_user_only_after_a_restart_too(make_world: Any) -> None:
    world = kept(make_world)
    world.connect("link", expiry=1000, username="paris", **link_options()).cut()
    after = restarted(make_world, world, 1.0)
    for username, code in (("joe", 0x85), ("paris", 0)):
        connack = after.open().connect("link", clean_start=False, username=username, expiry=1000)
        assert connack is not None
        assert (connack.reason_code, connack.session_present) == (code, code == 0)


def test_a_session_without_end(make_world: Any) -> None:
    world = kept(make_world, session_expiry=float(EXPIRY_NEVER))
    member(world, expiry=EXPIRY_NEVER).cut()
    after = restarted(make_world, world, 1e9, session_expiry=float(EXPIRY_NEVER))
    assert list(after.broker.sessions) == ["c"]


def test_clients_that_were_connected_count_as_disconnected_at_the_restart(make_world: Any) -> None:
    world = kept(make_world)
    member(world, expiry=100)
    world.connect("gone", expiry=0)
    after = restarted(make_world, world, 5000.0)
    after.advance(0.5)
    assert list(after.broker.sessions) == ["c"]
    after.advance(99.0)
    assert list(after.broker.sessions) == ["c"]
    after.advance(1.0)
    assert after.broker.sessions == {}


@pytest.mark.parametrize("downtime", [0.0, 30.0, 59.0, 60.0])
def test_messages_expire_while_the_node_is_down(make_world: Any, downtime: float) -> None:
    world = kept(make_world)
    client = member(world)
    client.subscribe(b"a")
    client.cut()
    world.publish(b"a", b"old", qos=1, message_expiry_interval=60)
    world.publish(b"a", b"new", qos=1)
    again = member(restarted(make_world, world, downtime))
    publishes = again.take_publishes()
    assert [p.payload for p in publishes] == ([b"old", b"new"] if downtime < 60 else [b"new"])
    assert [p.message_expiry_interval for p in publishes[:-1]] == ([60 - downtime] if downtime < 60 else [])
    assert again.world.drops() == ({} if downtime < 60 else {"expired": 1})


@pytest.mark.parametrize("set_back", [1000.0, 1e9])
def test_a_wall_clock_that_was_set_back_makes_nothing_longer(make_world: Any, set_back: float) -> None:
    world = kept(make_world)
    member(world, will=Will(b"w", b"gone", delay_interval=10), expiry=100).cut()
    after = restored(make_world, world, set_back=set_back)
    after.advance(10.25)
    assert after.broker.counters.wills_published == 1
    after.advance(90.25)
    assert after.broker.sessions == {}


def test_lower_limits_cut_the_queue_with_its_next_message(make_world: Any) -> None:
    world = kept(make_world)
    client = member(world)
    client.subscribe(b"a")
    client.cut()
    for number in range(10):
        world.publish(b"a", b"%d" % number, qos=1)
    after = restarted(make_world, world, max_queued_messages=3)
    assert after.broker.sessions["c"].queue_length() == 10
    after.publish(b"a", b"last", qos=1)
    assert member(after).take_payloads() == [b"8", b"9", b"last"]
    assert after.drops() == {"queue_full": 8}


# --- any session goes on as if nothing had happened but the loss of its connection ---

NAMES = ("a", "b", "c", "d")
TOPICS = (b"t", b"t/1", b"u")
FILTERS = (b"t", b"t/#", b"+", b"u", b"t/+")


def live(rng: random.Random, world: Any, versions: dict[str, int], clients: dict[str, Any], steps: int) -> None:
    """What clients do, in any order."""
    for _ in range(steps):
        name = rng.choice(NAMES)
        client = clients.get(name)
        action = rng.randrange(12)
        if client is None or client.closed:
            options: dict[str, Any] = {"expiry": rng.choice([0, 20, 1000])} if versions[name] == 5 else {}
            if versions[name] == 5 and rng.random() < 0.3:
                options["properties"] = {props.RECEIVE_MAXIMUM: rng.randrange(1, 4)}
            if options.get("expiry") and rng.random() < 0.3:
                # With a delay: others are disconnected as well when it is published, in either world.
                options["will"] = Will(b"t/w", name.encode(), rng.randrange(1, 3), delay_interval=rng.choice([5, 50]))
            client = clients[name] = world.open(versions[name])
            client.connect(name, clean_start=rng.random() < 0.2, auto=False, **options)
        elif action < 2:
            requests = [SubscribeFilter(rng.choice(FILTERS), rng.randrange(1, 3)) for _ in range(2)]
            identifier = rng.choice([0, 7]) if versions[name] == 5 else 0
            client.subscribe(*requests, identifier=identifier)
        elif action == 2:
            client.cut()
        elif action == 3:
            world.advance(rng.randrange(8) * 0.25)
        elif action < 6:
            answer(rng, client)
        else:
            expiry = rng.choice([-1, 5, 50]) if versions[name] == 5 else -1
            payload = b"%d" % rng.getrandbits(30)
            packet_id = rng.randrange(1, 9)
            client.publish(
                rng.choice(TOPICS), payload, rng.randrange(1, 3), packet_id=packet_id, message_expiry_interval=expiry
            )


def answer(rng: random.Random, client: Any) -> None:
    """Some of the acknowledgements that a client owes."""
    for packet in client.take_packets():
        if client.closed or rng.random() < 0.5:
            continue
        if isinstance(packet, Publish) and packet.qos:
            client.send(PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id))
        elif isinstance(packet, PubRel):
            client.send(PubComp(packet.packet_id))


def goes_on(rng: random.Random, world: Any, versions: dict[str, int]) -> list[Any]:
    """All clients come back, acknowledge, and go; the bytes that each gets, and who is there in the end."""
    results: list[Any] = []
    clients = {}
    for name in sorted(world.broker.sessions):
        client = clients[name] = world.open(versions[name])
        options: dict[str, Any] = {"expiry": 100} if versions[name] == 5 else {}
        client.connect(name, clean_start=False, auto=False, **options)
        results.append((name, client.output))
    for _ in range(3):
        live(rng, world, versions, clients, 20)
        results += [(name, client.output) for name, client in clients.items()]
    for client in clients.values():
        client.cut()
    for _ in range(6):
        world.advance(30.0)
        results.append(sorted(world.broker.sessions))
    world.check()
    return results


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(40))
def test_any_session_goes_on_after_a_restart_as_after_a_lost_connection(
    make_world: Callable[..., Any], seed: int
) -> None:
    rng = random.Random(seed)
    limits: dict[str, Any] = {
        "max_inflight": 3,
        "max_queued_messages": 20,
        "session_expiry": 1000.0,
        "publisher_hold_max": 0.0,
    }
    versions = {name: rng.choice([3, 4, 5]) for name in NAMES}
    world = kept(make_world, **limits)
    clients: dict[str, Any] = {}
    live(rng, world, versions, clients, 120)
    after = restored(make_world, world, **limits)
    for client in clients.values():
        client.cut()
    for each in (world, after):
        each.advance(0.25)
    again = rng.getrandbits(32)
    expected = goes_on(random.Random(again), world, versions)
    assert goes_on(random.Random(again), after, versions) == expected


def test_the_access_of_a_token_outlives_a_restart(make_world: Any) -> None:
    """Messages for a client that is away are judged as its token said."""

    class OfTokens(Authorizer):
        def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
            allowed = client.access is not None and (topic.decode(), False, True) in client.access
            return ALLOW if allowed else DENY

    world = kept(make_world)
    client = member(world)
    client.subscribe(b"#", qos=1)
    client.connection.access = (TopicAccess("a", False, True), TopicAccess("b", True, False))
    world.broker.identify(world.broker.sessions["c"], client.connection)
    note_change(world.broker.sessions["c"])
    world.flush()
    after = restored(make_world, world)
    after.broker.add_authorizer(OfTokens())
    for topic in (b"a", b"b"):
        after.broker.publish(Message(topic, topic, 1, False), after.now)
    assert after.broker.sessions["c"].access == client.connection.access
    assert [outgoing.message.topic for outgoing in after.broker.sessions["c"].queued()] == [b"a"]


def link_properties(domain: str, max_hops: int) -> dict[str, Any]:
    return {"properties": {props.USER_PROPERTY: [("gmqttd-link", f"1 domain={domain} max-hops={max_hops} relays=0")]}}


def test_a_link_session_is_one_again_before_its_domain_comes_back(make_world: Any) -> None:
    world = kept(make_world, link_max_queued_messages=50)
    want = "1 hops=9 path=oslo,paris"
    link = world.connect("link", auto=False, expiry=1000, **link_properties("paris", 2))
    link.subscribe(b"#", qos=1, pairs=[("gmqttd-link", want)])
    rome = world.connect("rome", **link_properties("rome", 9))
    rome.publish(b"t", b"1", qos=1, retain=True)
    link.cut()
    after = restarted(make_world, world, link_max_queued_messages=50)
    session = after.broker.sessions["link"]
    assert session.queue_max == 50
    assert session.subscriptions[b"#"].along == (want.encode(),)
    back = after.connect("paris-2", **link_properties("paris", 1))
    back.publish(b"t", b"back", qos=1)
    further = after.connect("rome", **link_properties("rome", 9))
    header = ("gmqttd-link", "1 path=oslo,rome")
    further.publish(b"t", b"far", qos=1, properties=encode_publish_properties(user_properties=[header]))
    further.publish(b"t", b"2", qos=1)
    again = after.connect("link", clean_start=False, expiry=1000, **link_properties("paris", 2))
    found = again.take_publishes()
    assert [publish.payload for publish in found] == [b"1", b"2"]
    headers: list[Any] = [
        props.publish_properties_to_dict(publish.properties)[props.USER_PROPERTY] for publish in found
    ]
    assert [text.rpartition(" ")[2] for [(_, text)] in headers] == ["path=rome,-", "path=rome,-"]
    late = after.connect("late", **link_properties("rome", 9))
    late.subscribe(b"#")
    assert late.take_publishes() == [], "the retained message comes from rome"


def jobs(world: Any, session: Any) -> list[bytes]:
    assert session is world.broker.sessions[session.client_id]
    return [outgoing.message.payload for outgoing in session.queued()]


def declare(world: Any) -> Any:
    return GroupQueues(world.broker).declare(b"g", b"jobs", 10, 10_000, 0.0, world.now)


def test_the_queue_of_a_group_and_its_jobs_outlive_a_restart(make_world: Any) -> None:
    world = kept(make_world)
    before = world.connect("before", auto=False, properties={props.RECEIVE_MAXIMUM: 1})
    before.subscribe(b"$share/g/jobs", b"other")
    world.publish(b"jobs", b"1", qos=1)
    declare(world)
    taker = world.connect("taker", auto=False, properties={props.RECEIVE_MAXIMUM: 1})
    taker.subscribe(b"$share/g/jobs")
    for payload in (b"2", b"3", b"4"):
        world.publish(b"jobs", payload, qos=1)
    world.check()
    after = restarted(make_world, world)
    after.advance(5.0)
    assert list(after.broker.sessions) == ["$queue/g/jobs"], "the clients had sessions that end with their connections"
    assert after.broker.local_interest() == []
    session = declare(after)
    assert sorted(jobs(after, session)) == [b"1", b"2", b"3", b"4"]
    after.publish(b"jobs", b"5", qos=1)
    worker = after.connect("worker")
    worker.subscribe(b"$share/g/jobs")
    assert sorted(p.payload for p in worker.packets if isinstance(p, Publish)) == [b"1", b"2", b"3", b"4", b"5"]
    after.check()
    last = restarted(make_world, after)
    assert GroupQueues(last.broker).declared() == [(b"g", b"jobs")]
    assert (jobs(last, declare(last)), type(declare(last)).__name__) == ([], "GroupQueue")
