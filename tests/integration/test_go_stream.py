"""A node and a member that speaks the Go broker's event stream only. They exchange subscriptions and messages in both
directions; connections break and resume, and nothing is lost or doubled."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from broker.codec.packets import Publish
from federation.pb import federation_pb2 as pb
from federation.stream import receiver
from go_stream_member import SERVICE, GoStreamMember, as_it_is, message, subscribe
from node_process import free_port, merged
from waiting import DEADLINE, eventually

pytestmark = pytest.mark.thorough
ONE_STREAM: Final = "the member is for one node; each worker has streams of its own to a Go broker"
NO_API: dict[str, Any] = {"api": {"grpc": [], "http": []}, "plugin_order": ["federation"]}


@pytest.fixture
async def member() -> AsyncIterator[GoStreamMember]:
    made = GoStreamMember("gmqttd-like")
    yield made
    await made.stop()


def addresses(node: Any) -> tuple[str, str]:
    federation = node.config["plugins"]["federation"]
    return federation["fed_addr"], federation["gossip_addr"]


async def start(node: Any) -> None:
    """Wait for the gossip, which listens after the client port: the member tries to join only once."""
    await node.start()
    await eventually(lambda: "federation started" in node.log(), "the node listens for gossip")


async def publisher_for(nodes: Any, clients: Any, member: GoStreamMember) -> Any:
    """A client of a node, whose messages to to/# go to the member."""
    node = nodes.make_federated(overrides=NO_API)
    await start(node)
    fed_addr, gossip_addr = addresses(node)
    await member.start(gossip_addr)
    await member.connect(fed_addr)
    await member.send(subscribe("to/#"))
    await member.wait_acked()
    return await clients.connect(node.port, "client")


@pytest.mark.one_process(ONE_STREAM)
async def test_a_go_stream_member_exchanges_breaks_and_resumes(
    nodes: Any, clients: Any, member: GoStreamMember
) -> None:
    node = nodes.make_federated(overrides=NO_API)
    await start(node)
    fed_addr, gossip_addr = addresses(node)
    await member.start(gossip_addr)
    client = await clients.connect(node.port, "client")
    await client.subscribe("from/#", qos=2)

    # Subscriptions, in both directions.
    reply = await member.connect(fed_addr)
    assert reply.clean_start
    assert reply.next_event_id == 0
    await member.send(subscribe("to/+"))
    await member.wait_acked()
    told = await member.wait_events(1, "Subscribe")
    assert [(each.share_name, each.topic_filter) for each in told] == [("", "from/#")]

    # Messages to the member, whose stream breaks again and again before it has acknowledged.
    member.breaks_at = {5, 6, 20, 33}
    count = 40
    for number in range(count):
        await client.publish(f"to/{number % 3}", b"%d" % number, qos=number % 3)
        if number % 8 == 0:
            await member.wait_events(number, "message")
    got = await member.wait_events(count, "message")
    assert [each.payload for each in got] == [b"%d" % number for number in range(count)]
    assert [each.qos for each in got] == [number % 3 for number in range(count)]
    assert member.clean_starts == 1, "the sessions were resumed"
    assert member.hellos >= 4
    assert not member.breaks_at
    assert member.doubled == 0, "events from the asked one on"

    # Messages from the member, which breaks without reading acknowledgements and sends some twice.
    for number in range(count):
        await member.send(message("from/member", b"%d" % number, number % 3))
        if number % 9 == 8:
            await member.break_stream()
            reply = await member.connect(fed_addr, resend_from_before=3)
            assert not reply.clean_start
    await member.wait_acked()
    publishes = await client.take(count)
    assert [each.payload for each in publishes] == [b"%d" % number for number in range(count)]
    assert client.messages.empty(), "nothing came twice"


@pytest.mark.one_process(ONE_STREAM)
async def test_state_events_and_faults_of_a_go_stream_member(nodes: Any, clients: Any, member: GoStreamMember) -> None:
    node = nodes.make_federated(overrides=NO_API)
    await start(node)
    fed_addr, gossip_addr = addresses(node)
    client = await clients.connect(node.port, "client")
    await client.publish("kept", b"before", qos=1, retain=True)
    await client.subscribe("#", "$share/group/work")
    await member.start(gossip_addr)

    # The full state after a clean start: every filter once, every retained message.
    told = await member.wait_events(2, "Subscribe")
    assert {(each.share_name, each.topic_filter) for each in told} == {("", "#"), ("group", "work")}
    kept = (await member.wait_events(1, "message"))[0]
    assert (kept.topic_name, kept.payload, kept.retained) == ("kept", b"before", True)
    await client.unsubscribe("$share/group/work")
    assert (await member.wait_events(1, "unsubscribe"))[0].topic_name == "$share/group/work"

    # Unknown and invalid events are acknowledged and skipped.
    await member.connect(fed_addr)
    await member.send(subscribe("old/filter"))
    await member.send_bytes(b"\xfa\x01\x05later")
    await member.send(pb.Event())
    await member.send(message("no/#/topic", b"x"))
    await member.send(message("t", b"x", qos=7))
    raw = b"\xff\xfe"
    await member.send(message("t", b"good", correlation_data_raw=raw, content_type="c", message_expiry=1000))
    await member.wait_acked()
    publish = await client.message()
    while publish.payload != b"good":
        publish = await client.message()
    assert publish.properties == b"\x03\x00\x01c\x09\x00\x02\xff\xfe"
    assert 900 <= publish.message_expiry_interval <= 1000

    # A new session of the member: filters that it does not send again are removed.
    await member.break_stream()
    member.client_session_id = str(uuid.uuid4())
    reply = await member.connect(fed_addr)
    assert reply.clean_start
    await member.send(subscribe("new/filter"))
    await member.send(message("from", b"state is told"))
    await member.wait_acked()
    before = len(await member.wait_events(1, "message"))
    await client.publish("old/filter", b"nobody wants it", qos=1)
    await client.publish("new/filter", b"wanted", qos=1)
    assert [each.payload for each in (await member.wait_events(before + 1, "message"))[before:]] == [b"wanted"]


@pytest.mark.one_process(ONE_STREAM)
async def test_a_run_that_breaks_in_its_middle_goes_on_where_the_member_stands(
    nodes: Any, clients: Any, member: GoStreamMember
) -> None:
    """The Go broker recognizes repeats among its last 100 events only, so the node must not send older ones again."""
    client = await publisher_for(nodes, clients, member)
    count = 2000
    member.breaks_at = {300, 900, 901, 1700}
    client.send(*(Publish(b"to/run", b"%d" % number, 0, False) for number in range(count)))
    got = await member.wait_events(count, "message")
    assert [each.payload for each in got] == [b"%d" % number for number in range(count)]
    assert not member.breaks_at
    assert member.clean_starts == 1, "the sessions were resumed"
    assert member.doubled == 0


@pytest.mark.one_process(ONE_STREAM)
async def test_a_message_that_a_gmqttd_cannot_take_stops_nothing(
    nodes: Any, clients: Any, member: GoStreamMember
) -> None:
    """gRPC's default bound, which a gmqttd does not change, is 4 MiB for an event."""
    client = await publisher_for(nodes, clients, member)
    sizes = [1, 4 * 2**20 - 100, 2, 4 * 2**20, 3, 5 * 2**20, 4]
    for size in sizes:
        await client.publish("to/large", b"x" * size, qos=1)
    got = await member.wait_events(5, "message")
    assert [len(each.payload) for each in got] == [size for size in sizes if size < 4 * 2**20]
    assert (member.hellos, member.clean_starts) == (1, 1), "the stream did not end"


@pytest.mark.one_process(ONE_STREAM)
async def test_the_state_of_a_go_stream_member_brings_back_nothing_older(
    nodes: Any, clients: Any, member: GoStreamMember
) -> None:
    """After every failure that its gossip saw, the Go broker sends all its retained messages, which may be outdated."""
    node = nodes.make_federated(overrides=NO_API)
    await start(node)
    fed_addr, gossip_addr = addresses(node)
    client = await clients.connect(node.port, "client")
    for topic in ("kept/same", "kept/here"):
        await client.publish(topic, b"here", qos=1, retain=True)
    await client.publish("kept/gone", b"here", qos=1, retain=True)
    await client.publish("kept/gone", b"", qos=1, retain=True)
    await client.subscribe("kept/#", qos=1)
    await client.take(2)
    await member.start(gossip_addr)
    await member.wait_events(2, "message")  # the full state of the node
    await member.connect(fed_addr)
    state = {"same": b"here", "here": b"there", "there": b"there", "ghost": b"", "gone": b"there"}
    for topic, payload in state.items():
        await member.send(message(f"kept/{topic}", payload, retained=True))
    await member.send(message("over", b"state is told"))
    await member.wait_acked()
    assert (await client.message()).topic == b"kept/there"
    assert client.messages.empty(), "what receivers had, and what is not so here, is not published anew"
    told = await member.wait_events(4, "message")
    assert sorted((each.topic_name, each.payload) for each in told) == [
        ("kept/gone", b""),
        ("kept/here", b"here"),
        ("kept/here", b"here"),
        ("kept/same", b"here"),
    ], "the member takes what it is sent last"

    # Both change retained messages while they are apart.
    await member.break_stream()
    await client.publish("kept/here", b"changed here", qos=1, retain=True)
    await client.publish("kept/there", b"", qos=1, retain=True)
    await client.take(2)
    member.client_session_id = str(uuid.uuid4())
    assert (await member.connect(fed_addr)).clean_start
    for topic, payload in (("kept/same", b"changed there"), ("kept/here", b"here"), ("kept/there", b"there")):
        await member.send(message(topic, payload, retained=True))
    await member.send(message("kept/here", b"live", retained=True))  # a repeated topic is not part of the full state
    await member.wait_acked()
    assert [(each.topic, each.payload) for each in await client.take(2)] == [
        (b"kept/same", b"changed there"),
        (b"kept/here", b"live"),
    ]
    assert client.messages.empty()
    retained = await clients.connect(node.port, "late")
    await retained.subscribe("kept/#", qos=1)
    assert {each.topic: each.payload for each in await retained.take(2)} == {
        b"kept/same": b"changed there",
        b"kept/here": b"live",
    }
    assert retained.messages.empty()

    def last_told() -> dict[str, bytes]:
        messages = [event.message for event in member.events if event.WhichOneof("Event") == "message"]
        return {each.topic_name: each.payload for each in messages}

    expected = {"kept/same": b"changed there", "kept/here": b"changed here", "kept/there": b"", "kept/gone": b""}
    await eventually(lambda: last_told() == expected, "the member is told what holds")


@pytest.mark.interpreted  # it shortens a constant
async def test_a_member_that_does_not_come_back_with_its_stream_is_named(
    start_server: Any, member: GoStreamMember, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The Go broker can lose its side of a link for good and stay alive."""
    gossip = free_port()
    fed = free_port()
    settings = {"node_name": "node1", "fed_addr": f"127.0.0.1:{fed}", "gossip_addr": f"127.0.0.1:{gossip}"}
    await start_server(merged(NO_API, {"plugins": {"federation": settings}}))
    await member.start(f"127.0.0.1:{gossip}")
    log = ""

    def is_logged() -> bool:
        nonlocal log
        log += "".join(capfd.readouterr())
        return "sends no events" in log

    for _ in range(2):  # a member that returns is not logged
        await member.connect(f"127.0.0.1:{fed}")
        await member.send(subscribe("t"))
        await member.wait_acked()
        assert not is_logged()
        await member.break_stream()
    monkeypatch.setattr(receiver, "MISSING_SECONDS_MAX", 0.5)
    await eventually(is_logged, "a line that names the member")
    assert "node=gmqttd-like" in log.split("sends no events")[1].splitlines()[0]
    assert log.count("sends no events") == 1


STRANGERS: list[tuple[Any, grpc.StatusCode, str]] = [
    ((), grpc.StatusCode.INVALID_ARGUMENT, "node_name"),
    ((("node_name", ""),), grpc.StatusCode.INVALID_ARGUMENT, "node_name"),
    ((("node_name", "stranger"),), grpc.StatusCode.INTERNAL, "stranger"),
]


async def test_hello_and_streams_of_strangers_are_refused(nodes: Any) -> None:
    node = nodes.make_federated(overrides=NO_API)
    await start(node)
    async with grpc.aio.insecure_channel(addresses(node)[0]) as channel:
        hello = channel.unary_unary(f"/{SERVICE}/Hello", pb.ClientHello.SerializeToString, pb.ServerHello.FromString)
        stream = channel.stream_stream(f"/{SERVICE}/EventStream", as_it_is, pb.Ack.FromString)
        for metadata, code, text in STRANGERS:
            with pytest.raises(grpc.aio.AioRpcError, match=text) as caught:
                # The node serves clients before its streams: gRPC waits until it is there.
                await hello(pb.ClientHello(session_id="s"), metadata=metadata, timeout=DEADLINE, wait_for_ready=True)
            assert caught.value.code() is code
            call = stream(metadata=metadata, timeout=DEADLINE)
            with pytest.raises(grpc.aio.AioRpcError, match=text):
                await call.read()
