"""What other nodes send: the direct stream, the Go broker's events, gossip packets and gossip streams."""

from __future__ import annotations

import random
from random import Random
from typing import Final

from broker.codec.writer import encode_publish
from broker.message import Message
from broker.routing.retained import STAMP_BYTES
from broker_world import Client, World
from federation.gossip.addresses import Address
from federation.gossip.counters import Counters
from federation.gossip.keyring import Keyring
from federation.gossip.sealing import PLAIN, Sealing
from federation.gossip.wire import open_packet
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.stream.block import Block
from federation.stream.counters import StreamCounters
from federation.stream.direct_server import SILENCE_SECONDS_MAX, DirectServer
from federation.stream.direct_wire import (
    PING,
    STATUS_OK,
    ClientReader,
    DirectError,
    Reply,
    encode_ack,
    encode_batch,
    encode_end,
    encode_hello,
    encode_reply,
)
from federation.stream.frames import (
    HAS_EXTENSIONS,
    PUBLISH,
    RETAINED,
    STAMP,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_block_header,
    encode_digest,
    encode_extension,
    encode_frame,
    encode_groups,
    encode_interest,
    encode_packet,
    encode_stamps,
)
from federation.stream.full_state import LocalState
from federation.stream.go_events import encode_events, receive_event
from federation.stream.held_batches import StreamError
from federation.stream.outbox import Outbox
from federation.stream.receiver import OpenStream, PeerReceiver
from federation.stream.receivers import Receivers
from federation.stream.retained_versions import BUCKETS, RetainedVersions
from federation.stream.sender import Outlets, PeerSender
from federation.stream.tree import FederationTree
from fuzz_target import Target, joined, rng_of, separated, test_data
from mutation import mutated, pieces_of

BYTES_MAX: Final = 65_536
PROPERTIES: Final = b"\x01\x01\x03\x00\x01t\x08\x00\x01r\x09\x00\x02\xff\xfe\x26\x00\x01k\x00\x01v"
MESSAGES: Final = (
    Message(b"a", b"x", 0, False, b""),
    Message(b"a/b", b"y" * 40, 1, True, PROPERTIES),
    Message(b"a/b/c", b"", 2, True, b""),
)
GROUPS: Final = ((b"g", b"a/#"), (b"h", b"+"))


def block_frame(version: int, count: int) -> bytes:
    packets = b"".join(
        encode_publish(version, b"t/%d" % number, b"payload", number % 3, False, False, min(number % 3, 1), b"")
        for number in range(count)
    )
    return encode_block_header(version, count, len(packets)) + packets


def frames() -> list[bytes]:
    """Frames of one event each, and of several."""
    found = [
        encode_interest(SUBSCRIBE, b"", b"a/#"),
        encode_interest(SUBSCRIBE, b"g", b"a/+"),
        encode_interest(UNSUBSCRIBE, b"", b"a/#"),
        encode_frame(STATE_BEGIN, b""),
        encode_frame(STATE_END, b""),
        encode_frame(SUBSCRIBE, b"\0\x04\x01\0\x01x\0\0a", 1),
        encode_digest(1e9, bytes(8 * BUCKETS)),
        encode_stamps(0, 1 << 50, [(7, 1 << 100), (9, 1)], False),
        block_frame(4, 1),
        block_frame(5, 3),
    ]
    for message in MESSAGES:
        for version in (4, 5) if not message.properties else (5,):
            packet = bytes((version,)) + encode_packet(message, version)
            found.append(encode_frame(PUBLISH, encode_groups(GROUPS) + packet))
            found.append(encode_frame(PUBLISH, encode_groups(()) + packet))
            found.append(encode_frame(RETAINED, packet))
            if message.retain:
                area = encode_extension(STAMP, (1 << 100).to_bytes(STAMP_BYTES, "big"))
                found.append(encode_frame(RETAINED, area + encode_packet(message, 5), HAS_EXTENSIONS))
                found.append(
                    encode_frame(PUBLISH, area + encode_groups(()) + encode_packet(message, 5), HAS_EXTENSIONS)
                )
    return found


class Served:
    """A broker with a member "other" and a subscriber, without the rest of a node."""

    def __init__(self, extended: bool) -> None:
        self.world = World()
        broker = self.world.broker
        self.tree = FederationTree(broker.router)
        counters = StreamCounters()
        versions = RetainedVersions(broker, 60.0)
        outbox = Outbox(2**20, 300.0, True, counters)
        sender = PeerSender("other", extended, LocalState(), Outlets(), outbox, random.Random(2))
        self.tree.add_node(sender)
        self.receiver = PeerReceiver("other", self.tree, broker.router, counters, versions, self.world.now)
        self.receiver.extended = extended
        self.subscriber: Client = self.world.connect("subscriber", 4)
        self.subscriber.subscribe(b"#", b"$share/g/a/#")

    def check(self) -> None:
        """What came was passed on as right packets, and the tables agree."""
        self.world.flush()
        self.world.check()
        self.receiver.end(self.world.now)
        self.world.flush()
        self.world.check()


class DirectTarget(Target):
    """The bytes of one direct connection, to the server and to the client. Faults end the stream with their text."""

    def __init__(self) -> None:
        self.frames = frames()
        hello = encode_hello("other", "session", "store")
        seeds = [
            hello + encode_batch(0, 1, frame) + PING + encode_batch(1, 1, self.frames[0]) for frame in self.frames[:6]
        ]
        replies = encode_reply(Reply(STATUS_OK, True, 7, "")), encode_reply(Reply(STATUS_OK + 1, False, 0, "no"))
        seeds += [reply + encode_ack(1) + encode_ack(2) + encode_end(True, "over") for reply in replies]
        super().__init__(seeds, (*self.frames, PING, encode_batch(0, 1, self.frames[0])))

    def make(self, rng: Random) -> bytes:
        if rng.random() < 0.3:
            return super().make(rng)
        first_id = 0
        parts = [encode_hello("other", "session", "store")]
        for _ in range(rng.randint(1, 3)):
            chosen = [rng.choice(self.frames) for _ in range(rng.randint(1, 3))]
            events = sum(3 if frame is self.frames[7] else 1 for frame in chosen)
            if rng.random() < 0.7:
                at = rng.randrange(len(chosen))
                chosen[at] = with_length(mutated(rng, chosen[at], self.frames), rng.random() < 0.7)
            if rng.random() < 0.1:
                events += rng.choice((-1, 1))
            parts.append(encode_batch(first_id, max(0, events), b"".join(chosen)))
            first_id += events
        return b"".join(parts)

    def run(self, data: bytes) -> None:
        served = Served(extended=True)
        world = served.world
        receivers = Receivers()
        receivers.by_name["other"] = served.receiver
        server = DirectServer(receivers, BYTES_MAX, world.now)
        answered = b""
        for piece in pieces_of(rng_of(data), data):
            server.receive_data(piece, world.now)
            world.flush()
            server.reading_changed(world.now)
            answered += server.data_to_send(world.now)
        if not server.is_over:
            server.handle_timeout(world.now + SILENCE_SECONDS_MAX)
            answered += server.data_to_send(world.now + SILENCE_SECONDS_MAX)
        assert server.is_over, "a silent stream is ended"
        read_answers(answered)
        server.close()
        served.check()
        try:
            read_answers(data)
        except DirectError:
            pass


def with_length(frame: bytes, right: bool) -> bytes:
    """A frame whose length is that of its body, so that what follows is read too."""
    return frame[:2] + (len(frame) - 6).to_bytes(4, "big") + frame[6:] if right and len(frame) >= 6 else frame


def read_answers(data: bytes) -> None:
    """As a client reads them. Raises DirectError."""
    reader = ClientReader()
    if reader.receive_reply(data) is not None:
        reader.receive_answers(b"")


class Stream(OpenStream):
    """A stream of Go events that only notes its end."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = ""

    def end(self, text: str, malformed: bool = False) -> None:
        self.ended = text


def go_events() -> list[bytes]:
    found: list[bytes] = []
    for kind in (PUBLISH, RETAINED):
        for message in MESSAGES:
            block = Block(False, 100.0)
            block.append_message(kind, message, GROUPS if kind == PUBLISH else ())
            block.first_id, block.events = 0, block.count
            found += encode_events(block, 0, 100.0)
    for frame_kind, share_name in ((SUBSCRIBE, b""), (SUBSCRIBE, b"g"), (UNSUBSCRIBE, b""), (UNSUBSCRIBE, b"g")):
        block = Block(False, 100.0)
        block.append_frame(encode_interest(frame_kind, share_name, b"a/#"))
        block.first_id, block.events = 0, block.count
        found += encode_events(block, 0, 100.0)
    return found


class GoTarget(Target):
    """Events of a Go broker's stream, each behind its length. Only StreamError is raised."""

    def __init__(self) -> None:
        super().__init__(go_events())

    def make(self, rng: Random) -> bytes:
        events = [rng.choice(self.seeds) for _ in range(rng.randint(1, 4))]
        return joined([mutated(rng, event, self.seeds) if rng.random() < 0.8 else event for event in events])

    def run(self, data: bytes) -> None:
        events = separated(data)
        served = Served(extended=bool(len(data) & 1))
        served.receiver.hello("session")
        stream = Stream()
        served.receiver.open_stream(stream, served.world.now)
        for event in events:
            try:
                receive_event(served.receiver, stream, event, served.world.now)
            except StreamError:
                break
            served.world.flush()
        served.check()


def vectors(transport: str) -> list[bytes]:
    return [bytes.fromhex(row["hex"]) for row in test_data("gossip-vectors.json") if row["transport"] == transport]


SOURCE: Final[Address] = ("127.0.0.1", 17947)


# Without and with a key: what comes in is then taken as it is, and sealed as another member would seal it.
SEALINGS: Final = (PLAIN, Sealing(Keyring([b"k" * 32], Random(1))))


def knowing(alive: list[bytes], sealing: Sealing) -> Serf:
    """A node `a`, as that of the captured packets, which knows the others."""
    keys = () if sealing.keyring is None else sealing.keyring.keys
    config = SerfConfig("a", "127.0.0.1", 17946, encrypt_keys=keys)
    serf = Serf(config, Random(1), 0.0)
    for packet in alive:
        serf.receive_packet(sealing.seal_packet(packet), SOURCE, 0.0)
    serf.packets_to_send()
    serf.take_events()
    return serf


def run_on(serf: Serf, until: float, sealing: Sealing) -> None:
    """What the node does by itself then; all that it sends can be opened."""
    for _ in range(200):
        at = serf.next_timeout()
        if at > until:
            break
        serf.handle_timeout(at)
        for packet, _ in serf.packets_to_send():
            counters = Counters()
            assert open_packet(packet, counters, sealing), f"the node sends {packet!r}, which nobody can open"
        serf.take_stream_requests()
    serf.take_events()
    assert serf.local_member.name == "a"
    assert len({member.name for member in serf.members()}) == len(serf.members())


class GossipPacketTarget(Target):
    """UDP packets, each behind its length. Nothing is raised: what is wrong is dropped and counted."""

    def __init__(self) -> None:
        packets = vectors("udp")
        inner = [message for packet in packets for message in open_packet(packet, Counters())]
        self.alive = [message for message in inner if message[0] == 4]
        super().__init__(packets + inner, tuple(inner))

    def make(self, rng: Random) -> bytes:
        packets = [rng.choice(self.seeds) for _ in range(rng.randint(1, 4))]
        return joined([mutated(rng, packet, self.seeds) if rng.random() < 0.8 else packet for packet in packets])

    def run(self, data: bytes) -> None:
        for sealing in SEALINGS:
            serf = knowing(self.alive, sealing)
            for packet in separated(data):
                serf.receive_packet(packet, SOURCE, 1.0)
                if sealing is not PLAIN:
                    serf.receive_packet(sealing.seal_packet(packet), SOURCE, 1.0)
            run_on(serf, 3.0, sealing)


class GossipStreamTarget(Target):
    """The bytes of one TCP stream, both as one that another node opened and as the answer to a join."""

    def __init__(self) -> None:
        super().__init__(vectors("tcp"))
        inner = [message for packet in vectors("udp") for message in open_packet(packet, Counters())]
        self.alive = [message for message in inner if message[0] == 4]

    def run(self, data: bytes) -> None:
        for sealing in SEALINGS:
            self._run_on(knowing(self.alive, sealing), pieces_of(rng_of(data), data), sealing)
            if sealing is not PLAIN:
                sealed = sealing.seal_request(data)
                self._run_on(knowing(self.alive, sealing), pieces_of(rng_of(data), sealed), sealing)

    def _run_on(self, serf: Serf, pieces: list[bytes], sealing: Sealing) -> None:
        stream = serf.open_incoming_stream()
        assert stream is not None
        for piece in pieces:
            stream.receive_data(piece, 1.0)
        while stream.is_behind:
            stream.receive_data(b"", 1.0)
        stream.abandon()
        exchanges = serf.gossip.exchanges
        assert (exchanges.incoming_bytes, exchanges.incoming_streams) == (0, 0), "the stream is not released"
        serf.join([("127.0.0.2", 17946)], 1.0)
        for request in serf.take_stream_requests():
            for piece in pieces:
                if serf.receive_stream_reply(request.request_id, piece, "", 1.0):
                    break
            else:
                while serf.stream_is_behind(request.request_id):
                    serf.receive_stream_reply(request.request_id, b"", "", 1.0)
                serf.receive_stream_reply(request.request_id, None, "closed", 1.0)
        run_on(serf, 3.0, sealing)
