"""Packets for the decoder, and odd sequences of packets for the connections of a broker."""

from __future__ import annotations

from random import Random
from typing import Final

from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    Properties,
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
from broker.codec.writer import encode_packet
from broker.errors import MqttError
from broker.store.journal import Journal
from broker_world import Client, World
from fuzz_target import Target, joined, rng_of, separated, test_data
from mutation import mutated, pieces_of

VERSIONS: Final = (3, 4, 5)


def packet_seeds() -> list[bytes]:
    """version u8 | packet, from the table of packets."""
    return [
        bytes((version,)) + bytes.fromhex(row["bytes"])
        for row in test_data("packets.json")
        for version in row.get("versions", VERSIONS)
        if "bytes" in row
    ]


class PacketTarget(Target):
    """version u8, then a stream of packets. Only MqttError is raised, the cuts of the stream change nothing, and what was
    decoded can be encoded, to the same packet."""

    def __init__(self) -> None:
        super().__init__(packet_seeds(), tuple(seed[1:] for seed in packet_seeds()))

    def run(self, data: bytes) -> None:
        version = VERSIONS[(data or b"\0")[0] % 3]
        whole = self._packets(version, [data[1:]])
        cut = self._packets(version, pieces_of(rng_of(data), data[1:]))
        assert cut == whole, "the cuts of the stream change the packets"
        for packet in whole[0]:
            if isinstance(packet, Connect):
                version = packet.protocol_version
            again = PacketReader(version).receive_data(encode_packet(packet, version))
            assert again == [packet], f"{packet} is encoded to {again}"

    def _packets(self, version: int, pieces: list[bytes]) -> tuple[list[Packet], str]:
        reader = PacketReader(version)
        packets: list[Packet] = []
        try:
            for piece in pieces:
                packets += reader.receive_data(piece)
            packets += reader.receive_data(b"")
        except MqttError as error:
            return packets, error.text
        return packets, ""


OPEN, SEND, CUT, PASS_TIME, STOP_READING, READ_ON = range(6)
CLIENTS: Final = 3
SILENT: Final = 0x80  # added to the client: it acknowledges nothing by itself
TIMES: Final = (0.5, 3.0, 70.0, 5000.0)
TOPICS: Final = (b"a", b"a/b", b"a/b/c", b"$SYS/a", b"")
FILTERS: Final = (b"a", b"a/+", b"#", b"a/#", b"$share/g/a/#", b"$share/h/a", b"+/b", b"$SYS/#")
PROPERTIES: Final = (b"", b"\x26\0\1k\0\2vv", b"\x26\0\1k\0\2vv\x26\0\0\0\0", b"\x26\0\x0bgmqttd-link\0\1x", b"\3\0\1t")
LIMITS: Final[dict[str, object]] = {"max_inflight": 3, "max_queued_messages": 5, "topic_alias_maximum": 4}


class Peer(Client):
    """A client whose packets may be of another version than it should speak."""

    def take(self, data: bytes) -> None:
        if self.connection.version:
            self.version = self.reader.version = self.connection.version
            super().take(data)


class SessionTarget(Target):
    """Steps for three clients: action u8 | client u8 | bytes to send or the choice of a time. After them the tables of the
    broker agree, all that it sends can be decoded, and it goes on for others."""

    def __init__(self) -> None:
        super().__init__([seed[1:] for seed in packet_seeds()])

    def make(self, rng: Random) -> bytes:
        version = rng.choice((3, 4, 5, 5))
        steps = [bytes((0xFF, rng.randrange(4)))]  # the kind of broker
        steps += [opening(rng, number, version) for number in range(CLIENTS)]
        for number in range(CLIENTS):
            wanted = [SubscribeFilter(rng.choice(FILTERS), rng.randrange(3)) for _ in range(rng.randrange(3))]
            if wanted:
                steps.append(bytes((SEND, number)) + encode_packet(Subscribe(9, wanted, {}), version))
        for _ in range(rng.randint(1, 12)):
            number = rng.randrange(CLIENTS)
            chance = rng.random()
            if chance < 0.75:
                step = b"".join(encode_packet(any_packet(rng, version), version) for _ in range(rng.randint(1, 3)))
                if rng.random() < 0.3:
                    step = mutated(rng, step, self.seeds)
                steps.append(bytes((SEND, number)) + step)
            elif chance < 0.85:
                steps.append(opening(rng, number, version))
            else:
                steps.append(bytes((rng.choice((CUT, PASS_TIME, STOP_READING, READ_ON)), number, rng.randrange(4))))
        return joined(steps)

    def run(self, data: bytes) -> None:
        steps = separated(data)
        kind = steps[0][1] if steps and len(steps[0]) > 1 else 0
        world = World(**(LIMITS if kind & 1 else {}))
        if kind & 2:
            world.keep(Journal(), {}, 0.0)
        peers: dict[int, Peer] = {}
        for step in steps[1:]:
            if len(step) < 2:
                continue
            action, number = step[0], step[1] % SILENT % CLIENTS
            peer = peers.get(number)
            if action == OPEN:
                if peer is not None and not peer.closed:
                    peer.cut()
                peer = peers[number] = Peer(world, 5)
                peer.auto = step[1] < SILENT
                peer.send_bytes(step[2:])
            elif action == PASS_TIME:
                world.advance(TIMES[step[-1] % len(TIMES)])
            elif peer is None or peer.closed:
                continue
            elif action == SEND:
                for piece in pieces_of(rng_of(step), step[2:]):
                    if not peer.closed:
                        peer.send_bytes(piece)
            elif action == CUT:
                peer.cut()
            elif action == STOP_READING:
                peer.stop_reading()
            else:
                peer.read_on()
            world.check()
        for peer in peers.values():
            if not peer.closed:
                peer.read_on()
        world.flush()
        world.check()
        witness = world.connect("witness")
        witness.subscribe(b"witness")
        world.publish(b"witness", b"still here", qos=1)
        assert witness.take_payloads() == [b"still here"], "the broker does not go on"
        world.check()


def opening(rng: Random, number: int, version: int) -> bytes:
    client = number + SILENT if rng.random() < 0.3 else number
    return bytes((OPEN, client)) + encode_packet(connect(rng, version), version)


def connect(rng: Random, version: int) -> Connect:
    chosen: Properties = {}
    if version == 5 and rng.random() < 0.5:
        chosen[props.SESSION_EXPIRY_INTERVAL] = rng.choice((0, 10, 3600, 2**32 - 1))
    if version == 5 and rng.random() < 0.3:
        chosen[rng.choice((props.RECEIVE_MAXIMUM, props.TOPIC_ALIAS_MAXIMUM))] = rng.choice((1, 2, 65535))
    if version == 5 and rng.random() < 0.1:
        chosen[props.MAXIMUM_PACKET_SIZE] = rng.choice((1, 5, 20, 100))
    will = None
    if rng.random() < 0.3:
        will = Will(rng.choice(TOPICS[:3]), b"will", rng.randrange(3), rng.random() < 0.3)
    client_id = rng.choice(("a", "b", "c", ""))
    return Connect(client_id, version, rng.random() < 0.5, rng.choice((0, 0, 2)), will=will, properties=chosen)


def any_packet(rng: Random, version: int) -> Packet:
    """A packet of a client with small packet ids, so that packets meet."""
    packet_id = rng.randint(1, 3)
    kind = rng.randrange(16)
    if kind < 5:
        qos = rng.randrange(3)
        return Publish(
            rng.choice(TOPICS[:3]),
            rng.choice((b"", b"x", b"y" * 300)),
            qos,
            rng.random() < 0.2,
            packet_id=packet_id if qos else 0,
            properties=rng.choice(PROPERTIES) if version == 5 else b"",
        )
    if kind < 8:
        wanted = [SubscribeFilter(rng.choice(FILTERS), rng.randrange(3)) for _ in range(rng.randint(1, 3))]
        return Subscribe(packet_id, wanted, {})
    if kind == 8:
        return Unsubscribe(packet_id, [rng.choice(FILTERS)])
    if kind < 13:
        return rng.choice((PubAck, PubRec, PubRel, PubComp))(packet_id)
    if kind == 13:
        return Auth(0x18, {}) if version == 5 and rng.random() < 0.5 else Disconnect(rng.choice((0, 4)), {})
    return PubRel(packet_id) if kind == 14 else PingReq()
