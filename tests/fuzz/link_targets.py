"""What upstreams send to a link, whatever state it is in, and headers of links."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from random import Random
from typing import Any, Final

from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
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
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.message import NEVER
from broker.origin import HeaderError, Origin, carried_origin, decode_origin, property_of
from broker.session.connection import Connection
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.group_consumers import OFFER_TOPIC
from federation.links.bridging.headers import (
    LinkWelcome,
    encode_connect,
    encode_interest,
    encode_welcome,
    job,
    offer,
    offer_of,
    parse_connect,
    parse_interest,
    parse_limit,
    parse_welcome,
    queue_of,
    quoted,
    received,
    unquoted,
    visits_of,
)
from federation.links.link import Link
from federation.links.links import Links
from federation.links.status import LinkState
from fuzz_target import Target, joined, rng_of, separated
from link_world import Shell
from mutation import mutated, pieces_of

JOBS: Final = "$share/workers/jobs/#"
KINDS: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({}, "s/#"),
    ({"exchange": "eu/# -> s/{#}", "max-hops": 3}, "s/#"),
    ({"direction": "out"}, "s/#"),
    ({"direction": "out", "exchange": ["a/+ -> s/{1}", "b/# -> b/{#}"]}, "s/#"),
    ({"ack-mode": "no-ack", "interest": "all"}, "s/#"),
    ({"prefetch-count": 2, "ack-mode": "on-publish"}, "+/a"),
    ({"prefetch-count": 3}, JOBS),
    ({"queue": "$share/g/jobs/b"}, JOBS),
)
SEND, OPEN, LOSE, PASS_TIME, WANT, WANT_NO_MORE, RESTART, PUBLISH, DEFINE, OBEY, DISOBEY, CONSUME = range(12)
TIMES: Final = (0.5, 3.0, 21.0, 70.0, 4000.0)
TOPICS: Final = (b"s/a", b"s/b/c", b"eu/a", b"jobs/a", b"other", b"$SYS/x", b"s", b"s/" + b"/" * 300)
FILTERS: Final = (b"s/a", b"s/#", b"#", b"+/a", b"s/+/c", b"$share/g/s/a", JOBS.encode(), b"$share/g/jobs/b")
QUEUE_NAME: Final = quoted(JOBS.encode())
HEADERS: Final = (
    Origin((b"north",)).encode(),
    Origin((b"south", b"north"), b"n~00000001", 7).encode(),
    Origin((b"north",), b"n~00000001", 8).encode(),
    Origin((b"north",), b"n~00000001", 9, 1_700_000_000_000).encode(),
    Origin((b"berlin", b"north"), b"n~00000001", 8).encode(),
    offer(QUEUE_NAME, 3, 1).passed(b"north").encode(),
    offer(QUEUE_NAME, -1, 0).passed(b"north").encode(),
    *(job(QUEUE_NAME, 1, b"n~00000001", number).passed(b"north").encode() for number in (10, 11)),
    job(quoted(b"$share/g/jobs/b"), 2, b"n~00000001", 12).passed(b"north").encode(),
    encode_welcome(LinkWelcome(b"north", 1, "", 10, 1000, True)),
    encode_welcome(LinkWelcome(b"north", 1, "", 10, 1000)),
    encode_welcome(LinkWelcome(b"-", 1, "role", -1, -1)),
    encode_connect(b"north", 2, True, 5.0, 9),
    encode_interest((b"south", b"north"), 3),
    b"1 limit=5",
)
WELCOMES: Final = (None, *HEADERS[10:13], HEADERS[10], b"1 domain=berlin", b"9 domain=north later=1")


class LocalClient:
    """A client of the broker here that acknowledges nothing, and whose output nobody reads."""

    def __init__(self, world: LinkWorld, client_id: str) -> None:
        self.connection = Connection(world.broker, self, "1", "1", world.now)
        self.send(world, Connect(client_id, 5, True, 0, None, None, None, {props.RECEIVE_MAXIMUM: 5}))

    def send(self, world: LinkWorld, packet: Packet) -> None:
        self.connection.receive_data(encode_packet(packet, 5), world.now)

    def carry_out(self, connection: Connection) -> None:
        connection.take_output()

    def set_reading(self, publisher: object) -> None:
        pass


class LinkWorld:
    """A broker with one link, and an upstream that obeys the protocol while `obeys`."""

    def __init__(self, kind: int) -> None:
        self.now = 100.0
        self.obeys = True
        settings = replace(MqttSettings(), max_queued_messages=20, max_inflight=5) if kind & 8 else MqttSettings()
        self.broker = Broker(settings, random.Random(1), self.now)
        bridging_of(self.broker).home.name = b"berlin"
        self.links = Links(b"berlin", self.broker, random.Random(1))
        self.links.interest.observe(self.broker)
        self.kind = kind % len(KINDS)
        self._shells: dict[Link, Shell] = {}
        self._opened = -1
        self._reader = PacketReader(5)
        self._client = LocalClient(self, "local")
        self._numbers = 0
        self.define(self.kind, 1)

    def define(self, kind: int, hops: int) -> None:
        body, pattern = KINDS[kind]
        body = {"uri": ["mqtt://user:SECRET@north", "mqtt://south"], "reconnect-delay": 1, "max-hops": hops, **body}
        policy = {"pattern": pattern, "definition": {"federation-upstream": "north"}}
        self.links.resolve(Resolution([parse_upstream("north", body)], [], [parse_policy("p", policy)]), self.now)
        for link_id in self.links.plans():
            self.links.run(link_id, hops, self.now)
        for link_id in [link_id for link_id in self.links.epochs if link_id not in self.links.plans()]:
            self.links.end(link_id, self.now)

    @property
    def link(self) -> Link | None:
        return next(iter(self.links.by_id.values()), None)

    @property
    def shell(self) -> Shell | None:
        link = self.link
        if link is None:
            return None
        if link not in self._shells:
            self._shells = {link: Shell(link)}
        return self._shells[link]

    def local(self, packet: Packet) -> None:
        if self._client.connection.closed:
            self._client = LocalClient(self, "local")
        self._client.send(self, packet)
        self.settle()

    def subscribe(self, topic_filter: bytes) -> None:
        self._numbers += 1
        self.local(Subscribe(self._numbers, [SubscribeFilter(topic_filter, 1)]))

    def unsubscribe(self, topic_filter: bytes) -> None:
        self._numbers += 1
        self.local(Unsubscribe(self._numbers, [topic_filter]))

    def publish(self, topic: bytes, qos: int) -> None:
        self._numbers += 1
        self.local(Publish(topic, b"x", qos, packet_id=self._numbers if qos else 0))

    def open(self) -> None:
        link = self.link
        if link is not None and link.wants_connection and self._opened != link.attempt:
            self._opened = link.attempt
            self._reader = PacketReader(5)
            link.connected(link.attempt, self.now)
            self.settle()

    def receive(self, data: bytes) -> None:
        link = self.link
        if link is not None and self._opened == link.attempt:
            link.receive_data(link.attempt, data, self.now)
            self.settle()

    def lose(self, says_why: bool) -> None:
        link = self.link
        if link is not None and self._opened == link.attempt:
            link.connection_lost(link.attempt, "lost", self.now, says_why)
            self.settle()

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(2_000):
            at = min(self.links.next_timeout(), self.broker.next_timeout() or NEVER)
            if at > until:
                break
            self.now = max(self.now, at)
            self.broker.handle_timeout(self.now)
            for fault in self.links.handle_timeout(self.now):
                raise fault
            self.settle()
        else:
            raise AssertionError("timeouts that never end")
        self.now = until

    def settle(self) -> None:
        """The end of a turn, and what an upstream that obeys answers."""
        for _ in range(200):
            busy = False
            shell = self.shell
            while dirty := self.broker.take_dirty():
                busy = True
                for connection in dirty:
                    connection.owner.carry_out(connection)  # type: ignore[attr-defined]
            for publisher in self.broker.take_reading_changes():
                busy = True
                publisher.owner.set_reading(publisher)  # type: ignore[attr-defined]
            if self.broker.slices.has_work():
                busy = True
                self.broker.go_on(self.now)
            busy = self.links.turn_ended(self.now) or busy
            if shell is not None:
                data, shell.out = shell.out, b""
                if data and shell.link.attempt == self._opened:
                    busy = self._answer(shell.link, self._reader.receive_data(data)) or busy
            if not busy:
                return
        raise AssertionError("a turn that never ends")

    def _answer(self, link: Link, packets: list[Packet]) -> bool:
        """Whether the upstream has sent anything."""
        answers: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Connect):
                self._reader.version = packet.protocol_version
                value = [("gmqttd-link", HEADERS[10].decode())] if packet.protocol_version == 5 else []
                answers.append(ConnAck(False, 0, {props.USER_PROPERTY: value} if value else {}))
            elif isinstance(packet, Subscribe):
                answers.append(SubAck(packet.packet_id, [1] * len(packet.filters)))
            elif isinstance(packet, Unsubscribe):
                answers.append(UnsubAck(packet.packet_id, [0] * len(packet.topic_filters)))
            elif isinstance(packet, PingReq):
                answers.append(PingResp())
            elif isinstance(packet, Publish) and packet.qos:
                answers.append(PubAck(packet.packet_id))
        if not self.obeys or not answers:
            return False
        data = b"".join(encode_packet(answer, self._reader.version) for answer in answers)
        link.receive_data(link.attempt, data, self.now)
        return True

    def check(self) -> None:
        for link in self.links.by_id.values():
            status = link.status(self.now)
            assert "SECRET" not in str(status)
            if status.state in (LinkState.ERROR, LinkState.BLOCKED, LinkState.INVALID):
                assert status.last_error, f"{status.state.value} without a reason"
            if status.state in (LinkState.ERROR, LinkState.BLOCKED):
                assert self.now < status.deadline < NEVER, f"{status.state.value} for ever"
            assert status.in_flight >= 0
            assert not link.wants_connection or link.next_timeout() < NEVER, "an attempt without a deadline"
        assert self.broker.acks_awaited >= 0
        local = [session for name, session in self.broker.sessions.items() if name.startswith("link:")]
        assert len(local) <= 1, f"{len(local)} sessions of one link"


class LinkTarget(Target):
    """Steps: action u8 | choice u8 | bytes. Nothing is raised, every end has a reason and a next step, no secret is told."""

    def __init__(self) -> None:
        packets = [encode_packet(packet, 5) for packet in upstream_packets(Random(1))]
        super().__init__(packets, tuple(property_of(header) for header in HEADERS))

    def make(self, rng: Random) -> bytes:
        kind = rng.randrange(2 * len(KINDS))
        steps = [bytes((0, kind))]
        steps += [bytes((WANT, rng.randrange(len(FILTERS)))) for _ in range(2)]
        if rng.random() < 0.5:
            steps.append(bytes((CONSUME, 0)))
        steps += [bytes((OBEY if rng.random() < 0.7 else DISOBEY, 0)), bytes((OPEN, 0))]
        for _ in range(rng.randint(1, 14)):
            chance = rng.random()
            if chance < 0.6:
                version = rng.choice((5, 5, 5, 4))
                chosen = [rng.choice(upstream_packets(rng)) for _ in range(rng.randint(1, 4))]
                data = b"".join(encode_packet(packet, version) for packet in chosen)
                if rng.random() < 0.4:
                    data = mutated(rng, data, self.seeds, self.pieces)
                steps.append(bytes((SEND, 0)) + data)
            elif chance < 0.75:
                steps.append(bytes((OPEN, 0)))
            else:
                steps.append(bytes((rng.randrange(1, 12), rng.randrange(256))))
        return joined(steps)

    def run(self, data: bytes) -> None:
        steps = separated(data)
        world = LinkWorld(steps[0][1] if steps and len(steps[0]) > 1 else 0)
        for step in steps[1:]:
            if len(step) < 2:
                continue
            self._step(world, step[0] % 12, step[1], step)
            world.check()
        witness = LocalClient(world, "witness")
        witness.send(world, Subscribe(1, [SubscribeFilter(b"witness", 1)]))
        world.publish(b"witness", 0)
        assert world.broker.sessions["witness"].connection is not None, "the broker does not go on"
        world.advance(400.0)
        world.check()

    def _step(self, world: LinkWorld, action: int, choice: int, step: bytes) -> None:
        if action == SEND:
            for piece in pieces_of(rng_of(step), step[2:]):
                world.receive(piece)
        elif action == OPEN:
            world.advance(61.0)
            world.open()
        elif action == LOSE:
            world.lose(bool(choice & 1))
        elif action == PASS_TIME:
            world.advance(TIMES[choice % len(TIMES)])
        elif action == WANT:
            world.subscribe(FILTERS[choice % len(FILTERS)])
        elif action == WANT_NO_MORE:
            world.unsubscribe(FILTERS[choice % len(FILTERS)])
        elif action == RESTART:
            link = world.link
            if link is not None:
                link.restart(world.now)
        elif action == PUBLISH:
            world.publish(TOPICS[choice % 5], choice % 3)
        elif action == DEFINE:
            world.define(choice % len(KINDS), 1 + choice % 3)
        elif action == CONSUME:
            world.subscribe(JOBS.encode())
        else:
            world.obeys = action == OBEY
        world.settle()


def upstream_packets(rng: Random) -> list[Packet]:
    """One packet of each kind that an upstream may send, and some that it may not."""
    packet_id = rng.randint(1, 4)
    welcome = rng.choice(WELCOMES)
    connack: dict[int, Any] = {}
    if welcome is not None:
        connack[props.USER_PROPERTY] = [("gmqttd-link", welcome.decode())]
    if rng.random() < 0.3:
        connack[rng.choice((props.SESSION_EXPIRY_INTERVAL, props.MAXIMUM_PACKET_SIZE, props.SERVER_KEEP_ALIVE))] = (
            rng.choice((1, 30, 60_000))
        )
    if rng.random() < 0.2:
        connack[props.RECEIVE_MAXIMUM] = rng.choice((1, 65_535))
    if rng.random() < 0.2:
        connack[rng.choice((props.MAXIMUM_QOS, props.RETAIN_AVAILABLE, props.WILDCARD_SUBSCRIPTION_AVAILABLE))] = 0
    code = rng.choice((0, 0, 0, 0, 0x80, 0x84, 0x87, 0x88, 0x85, 0x8E, 0x9F, 0x01))
    codes = [rng.choice((0, 1, 2, 0x80, 0x87)) for _ in range(rng.choice((1, 1, 2, 3)))]
    qos = rng.randrange(3)
    properties = b"".join(property_of(rng.choice(HEADERS)) for _ in range(rng.choice((0, 1, 1, 1, 2))))
    publish = Publish(
        rng.choice(TOPICS),
        rng.choice((b"", b"x", b"y" * 300)),
        qos,
        rng.random() < 0.3,
        bool(qos) and rng.random() < 0.3,
        packet_id if qos else 0,
        properties,
    )
    offer = Publish(OFFER_TOPIC, b"", properties=property_of(HEADERS[5]))
    job = Publish(b"jobs/a", b"x", 1, packet_id=packet_id, properties=property_of(rng.choice(HEADERS[7:10])))
    return [
        ConnAck(rng.random() < 0.5 and code == 0, code, connack),
        SubAck(packet_id, codes),
        UnsubAck(packet_id, [0] * len(codes)),
        PingResp(),
        Disconnect(rng.choice((0, 0x81, 0x8B, 0x8E, 0x9D)), {}),
        *(publish for _ in range(4)),
        offer,
        offer,
        job,
        job,
        *(kind(packet_id) for kind in (PubAck, PubRec, PubRel, PubComp)),
        PubAck(packet_id, rng.choice((0, 0x10, 0x80, 0x97))),
        PingReq() if rng.random() < 0.1 else PingResp(),
    ]


class LinkHeaderTarget(Target):
    """Values of headers. Only HeaderError is raised, and what was read is written and read again the same."""

    def __init__(self) -> None:
        fields = {field for header in HEADERS for field in header.split(b" ")}
        super().__init__(list(HEADERS), (b" ", b"=", b",", b"-", b"%", *sorted(fields)))

    def run(self, data: bytes) -> None:
        for read in (parse_connect, parse_welcome, parse_interest, parse_limit):
            try:
                read(data)
            except HeaderError:
                continue
        carried = carried_origin([data])
        try:
            header = decode_origin(data)
        except HeaderError:
            assert carried is None
            return
        unquoted(queue_of(header))
        for number in (offer_of, visits_of):
            with contextlib.suppress(HeaderError):
                number(header)
        assert carried is not None
        assert decode_origin(carried.encode()).encode() == carried.encode() == header.encode()
        if not header.node:
            assert decode_origin(header.numbered(b"n", 5).encode()).sequence == 5
        assert decode_origin(header.timed(77).encode()).path == header.path
        for sender in (b"north", b"-"):
            try:
                found = received([data], sender)
            except HeaderError:
                continue
            decode_origin(found.encode())
