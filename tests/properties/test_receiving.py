"""Packets mean the same in any form that MQTT allows, cut anywhere, with slices of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.authorization import ALLOW, DENY, NO_OPINION, Authorizer, ClientIdentity, Verdict
from broker.codec import properties as props
from broker.codec.packets import (
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
    Will,
)
from broker.codec.reader import PacketReader
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.codec.runs import Run
from broker.codec.wire import decode_varint
from broker.codec.writer import encode_packet
from broker.hooks import Forwarder, Peer, RemoteRoute, Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.slices import SLICE_STEPS
from broker.store.journal import Journal
from broker.wrappers import PublishRequest, RunRequest
from broker_world import Client, World
from effort import effort

UNBOUNDED: Final = 2**40  # steps of a slice
REFUSED: Final = b"refused"  # a topic that the client may not publish to
PLUGIN_REFUSES: Final = b"plugin/refuses"
PLUGIN_MOVES: Final = b"plugin/moves"
BEYOND: Final = b"$beyond"  # a topic that another node wants, and no client here
REFUSED_BEYOND: Final = b"$refused"  # likewise, and the client may not publish to it
TOPICS: Final = (
    *(b"a", b"a/b", b"c/d/e", b"$x", "é/ü".encode(), REFUSED, PLUGIN_REFUSES, PLUGIN_MOVES, REFUSED_BEYOND),
    *(BEYOND, BEYOND, BEYOND),
)
FILTERS: Final = (b"a", b"a/#", b"+/b", b"#", b"$share/g/a", b"$share/g/+/b", b"$share/h/#", b"c/+/e", b"refused")
PAIR: Final = b"\x26\0\1k\0\1v"
PACKET_IDS: Final = st.integers(1, 5)  # few, so that packets and acknowledgements meet


@dataclass(frozen=True)
class Sent:
    """A packet, `count` times; its Remaining Length has `longer` bytes more than it needs."""

    packet: Packet
    count: int = 1
    longer: int = 0

    def encode(self, version: int, as_short_as_possible: bool = False) -> list[bytes]:
        data = encode_packet(self.packet, version)
        if version < 5 and not as_short_as_possible:
            body = decode_varint(data, 1, len(data))[1]
            longer = min(self.longer, 5 - body)
            if longer:
                length = data[1 : body - 1] + bytes((data[body - 1] | 0x80,)) + b"\x80" * (longer - 1) + b"\0"
                data = data[:1] + length + data[body:]
        return [data] * self.count


@dataclass(frozen=True)
class Case:
    """cuts     sizes of the chunks, over and over; 0 for all that is left
    flushes  whether the shell comes around between two chunks
    """

    version: int
    packets: tuple[Sent, ...]
    cuts: tuple[int, ...]
    slice_steps: int
    flushes: bool = True
    is_stored: bool = False
    is_judged: bool = False
    wrapped: str = ""
    has_tap: bool = False
    maximum_qos: int = 2
    retain_available: bool = True

    @property
    def steps_max(self) -> int:
        """Of a slice. Retained messages are searched in slices, too, and the client may get newer messages in between."""
        packets = [sent.packet for sent in self.packets]
        has_retained = any(isinstance(packet, Publish) and packet.retain for packet in packets)
        has_search = any(isinstance(packet, Subscribe) for packet in packets)
        return UNBOUNDED if has_retained and has_search else self.slice_steps


class Rights(Authorizer):
    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return DENY if topic in (REFUSED, REFUSED_BEYOND) else ALLOW

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return DENY if topic == b"$x" else ALLOW

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        return DENY if topic_filter == b"refused" else NO_OPINION


class Recorder(Tap):
    """Everything that is published."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, ...]] = []

    def refuses(self, topic: bytes) -> bool:
        return topic == b"c/d/e"

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        self.messages.append(fields_of(message))

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        self.messages += [fields_of(message) for message in run.messages()]


class Other(Peer):
    """Another node, and all that it gets."""

    def __init__(self, name: str, names_groups: bool) -> None:
        super().__init__(name, names_groups)
        self.messages: list[Publish] = []

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        self.messages.append(
            Publish(message.topic, message.payload, message.qos, message.retain, properties=message.properties)
        )

    def forward_run(self, data: bytes, count: int, version: int, qos: int, now: float) -> None:
        packets = PacketReader(version).receive_data(data)
        assert len(packets) == count
        for packet in packets:
            assert isinstance(packet, Publish)
            assert packet.qos == qos
            self.messages.append(replace(packet, packet_id=0))


class Beyond(Forwarder):
    def __init__(self, other: Other) -> None:
        self.other = other

    def route(self, topic: bytes) -> RemoteRoute | None:
        return RemoteRoute([self.other], []) if topic in (BEYOND, REFUSED_BEYOND) else None

    def peers(self) -> list[Peer]:
        return [self.other]


def fields_of(message: Message) -> tuple[Any, ...]:
    return message.topic, message.payload, message.qos, message.retain, message.properties, message.client_id


def wrap_message(request: PublishRequest, proceed: Any) -> None:
    message = request.message
    if message.topic == PLUGIN_REFUSES:
        request.refuse(NOT_AUTHORIZED)
    elif message.topic == PLUGIN_MOVES:
        moved = message.copy()
        moved.topic = b"a" if message.payload else b"in+valid"
        request.message = moved
    proceed(request)


def wrap_topic(request: PublishRequest, proceed: Any) -> None:
    if request.message.topic == PLUGIN_REFUSES:
        request.refuse(NOT_AUTHORIZED)
    proceed(request)


def wrap_run(request: RunRequest, proceed: Any) -> None:
    if request.run.topic == PLUGIN_REFUSES:
        request.refuse(NOT_AUTHORIZED)
    proceed(request)


def publishes(version: int) -> st.SearchStrategy[Publish]:
    five = version == 5

    def build(publish: Publish) -> Publish:
        changes: dict[str, Any] = {}
        if publish.qos == 0:
            changes = {"dup": False, "packet_id": 0}
        if not publish.topic and not publish.topic_alias:
            changes["topic"] = b"a"
        return replace(publish, **changes)

    return st.builds(
        Publish,
        st.sampled_from(TOPICS + (b"",) * five),
        st.sampled_from([b"", b"x", b"yy", b"z" * 120, b"z" * 200]),
        st.sampled_from([0, 0, 0, 1, 1, 2]),
        st.sampled_from([False] * 5 + [True]),
        st.booleans(),
        PACKET_IDS,
        st.sampled_from([b"", b"", PAIR, PAIR * 2, b"\1\1", PAIR * 30]) if five else st.just(b""),
        st.sampled_from([-1, -1, -1, 100]) if five else st.just(-1),
        st.sampled_from([0, 0, 0, 0, 1, 2]) if five else st.just(0),
    ).map(build)


def controls(version: int) -> st.SearchStrategy[Packet]:
    five = version == 5
    subscribe_filter = st.builds(
        SubscribeFilter,
        st.sampled_from(FILTERS),
        st.integers(0, 2),
        st.just(False),
        st.booleans() if five else st.just(False),
        st.integers(0, 2) if five else st.just(0),
    )
    identifiers = st.sampled_from([{}, {}, {props.SUBSCRIPTION_IDENTIFIER: 7}]) if five else st.just({})
    return st.one_of(
        st.builds(Subscribe, PACKET_IDS, st.lists(subscribe_filter, min_size=1, max_size=3), identifiers),
        st.builds(Unsubscribe, PACKET_IDS, st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3)),
        st.builds(PubAck, PACKET_IDS),
        st.builds(PubRec, PACKET_IDS),
        st.builds(PubRel, PACKET_IDS),
        st.builds(PubComp, PACKET_IDS),
        st.just(PingReq()),
    )


def streams(version: int) -> st.SearchStrategy[tuple[Sent, ...]]:
    count = st.sampled_from([1, 1, 1, 1, 2, 3, 20, 260])
    longer = st.sampled_from([0, 0, 1, 2, 3])
    message = st.builds(Sent, publishes(version), count, longer)
    control = st.builds(Sent, controls(version), st.sampled_from([1, 1, 1, 2]), longer)
    last = st.sampled_from([(), (), (Sent(Disconnect()), Sent(PingReq()))])
    return st.builds(
        lambda sent, end: (*sent, *end), st.lists(message | message | control, min_size=1, max_size=30), last
    )


CASES: Final = st.sampled_from([3, 4, 4, 5, 5]).flatmap(
    lambda version: st.builds(
        Case,
        st.just(version),
        streams(version),
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 50, 1_000]), min_size=1, max_size=8).map(tuple),
        st.sampled_from([1, 2, 3, 5, 8, 13, 100, SLICE_STEPS, UNBOUNDED]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "", "messages", "runs"]),
        st.booleans(),
        st.sampled_from([2, 2, 2, 2, 2, 1, 0]),
        st.sampled_from([True, True, True, False]),
    )
)


def opening(version: int) -> Packet:
    kept: dict[int, Any] = {props.SESSION_EXPIRY_INTERVAL: 1_000} if version == 5 else {}
    return Connect("c", version, False, 0, will=Will(b"a", b"gone", 1), properties=kept)


def world_of(case: Case) -> tuple[World, list[Client], Recorder, Other]:
    """A broker, and clients that listen: of both versions, two of a shared group, one that is slow, one that comes back. And
    another node."""
    world = World(
        maximum_qos=case.maximum_qos,
        retain_available=case.retain_available,
        max_queued_messages=1_000_000,
        server_receive_maximum=4,
        write_buffer_high=2**40,
    )
    broker = world.broker
    if case.is_stored:
        world.keep(Journal(), {}, 0.0)
    if case.is_judged:
        broker.add_authorizer(Rights())
    if case.wrapped == "messages":
        broker.wrap_publish(wrap_message)
    elif case.wrapped == "runs":
        broker.wrap_publish(wrap_topic, wrap_run)
    recorder = Recorder()
    if case.has_tap:
        broker.add_tap(recorder)
    other = Other("other", True)
    broker.forwarder = Beyond(other)
    listeners = [
        world.connect("four", 4, auto=False),
        world.connect("five", 5, auto=False),
        world.connect("slow", 5, auto=False, properties={props.RECEIVE_MAXIMUM: 3}),
        world.connect("member", 4, auto=False),
        world.connect("another member", 5, auto=False),
        world.connect("offline", 5, auto=False, expiry=1_000),
    ]
    for listener in (*listeners[:3], listeners[5]):
        listener.subscribe(b"#", b"a/b", b"$x")
    for listener in listeners[3:5]:
        listener.subscribe(b"$share/g/#", b"$share/g/a")
    listeners[5].cut()
    return world, listeners, recorder, other


def effect(case: Case, chunks: list[bytes], slice_steps: int, flushes: bool) -> dict[str, Any]:
    """All that shows after the chunks."""
    world, listeners, recorder, other = world_of(case)
    broker = world.broker
    client = world.open(case.version)
    client.auto = False
    broker.slices.steps_max = slice_steps
    for chunk in chunks:
        client.connection.receive_data(chunk, world.now)
        if flushes:
            world.flush()
    world.flush()
    assert client.connection.waiting_input() == b"", "the chunks end with a packet"
    close_text = client.connection.close_text
    client.cut()
    world.check()
    counters = broker.counters
    counts = {
        name: getattr(counters, name)
        for name in dir(counters)
        if not name.startswith("_") and not callable(getattr(counters, name))
    }
    for name in ("bytes_received", "answer_bytes_received", "short_pubacks_received"):
        del counts[name]  # lengths may be longer than they need be
    return {
        "output": client.output,
        "delivered": [listener.output for listener in listeners],
        "published": recorder.messages,
        "beyond": other.messages,
        "closed": close_text,
        "received": (client.connection.packets_received, client.connection.messages_received),
        "counters": {
            name: (value.take(100) if name.endswith("_that_lost") else value) for name, value in counts.items()
        },
        "stored": dict(sorted(world.stored.items())),
        "retained": sorted(fields_of(message) for message in broker.retained.messages()),
    }


def by_kind(output: bytes, version: int) -> list[Sequence[Packet]]:
    """The packets of a client, in order for each kind: messages of one QoS, answers to PINGREQ, all others [MQTT-4.6.0-6]."""
    packets = PacketReader(version).receive_data(output)
    messages = [[packet for packet in packets if isinstance(packet, Publish) and packet.qos == qos] for qos in range(3)]
    pings = [packet for packet in packets if isinstance(packet, PingResp)]
    others = [packet for packet in packets if not isinstance(packet, Publish | PingResp)]
    return [*messages, pings, others]


def cut(data: bytes, sizes: tuple[int, ...]) -> list[bytes]:
    chunks = []
    pos = number = 0
    while pos < len(data):
        size = sizes[number % len(sizes)] or len(data)
        chunks.append(data[pos : pos + size])
        pos += size
        number += 1
    return chunks


def run_beyond(version: int, topic: bytes = BEYOND, **fields: Any) -> Case:
    """QoS 1 messages that go to the other node as runs."""
    sent = tuple(Sent(Publish(topic, payload, 1, packet_id=3), 20) for payload in (b"x", b"yy"))
    return Case(version, sent, (0,), UNBOUNDED, **fields)


@settings(max_examples=effort(800))
@given(CASES)
@example(run_beyond(4))
@example(run_beyond(5, is_stored=True))
@example(run_beyond(4, REFUSED_BEYOND, is_judged=True))
@example(run_beyond(5, REFUSED_BEYOND, is_judged=True))
@example(run_beyond(5, has_tap=True))
@example(run_beyond(5, wrapped="runs"))
def test_packets_mean_the_same_however_they_come(case: Case) -> None:
    packets = (Sent(opening(case.version)), *case.packets)
    one_by_one = [data for sent in packets for data in sent.encode(case.version, as_short_as_possible=True)]
    as_drawn = b"".join(data for sent in packets for data in sent.encode(case.version))
    wanted = effect(case, one_by_one, UNBOUNDED, True)
    found = effect(case, cut(as_drawn, case.cuts), case.steps_max, case.flushes)
    if case.is_stored:  # answers that wait for the store leave behind what does not, and not after the end
        for result in (wanted, found):
            if result["closed"]:
                del result["output"]
                result["counters"] = {
                    name: value for name, value in result["counters"].items() if not name.endswith("_sent")
                }
            else:
                result["output"] = by_kind(result["output"], case.version)
    for key, value in wanted.items():
        assert found[key] == value, key
