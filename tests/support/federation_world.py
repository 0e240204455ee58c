"""Whole nodes on virtual time, with MQTT clients inside the process and links that lag and break."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import replace

from broker.broker import Broker
from broker.codec.packets import (
    Connect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.message import NEVER
from broker.session.connection import Connection
from federation.node import Node
from federation.serf.events import Member, MemberJoin, MemberLeave, MemberStatus
from federation.settings import FederationSettings
from federation.stream.counters import Reason
from federation.stream.go_client import GoClient
from federation.stream.go_events import receive_event
from federation.stream.held_batches import StreamError
from federation.stream.receiver import OpenStream
from federation.stream.receivers import NotAMember
from federation.stream.sender import PeerSender
from federation.stream.state import State
from federation.tags import own_tags

LATENCY = 0.01


class Client:
    """An MQTT 5 client inside the process; `received` are its messages in order."""

    def __init__(self, world: World, node: str, client_id: str, version: int = 5) -> None:
        self.world = world
        self.version = version
        self.broker = world.nodes[node].broker
        self.connection = Connection(self.broker, self, "test", "test", world.now)
        self.reader = PacketReader(version)
        self.received: list[Publish] = []
        self.next_packet_id = 1
        self.send(Connect(client_id=client_id, protocol_version=version, clean_start=True, keep_alive=0))

    def send(self, packet: Packet) -> None:
        self.connection.receive_data(encode_packet(packet, self.version), self.world.now)

    def packet_id(self) -> int:
        self.next_packet_id = self.next_packet_id % 65_535 + 1
        return self.next_packet_id

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        self.send(Subscribe(self.packet_id(), [SubscribeFilter(name.encode(), qos) for name in filters], {}))

    def unsubscribe(self, *filters: str) -> None:
        self.send(Unsubscribe(self.packet_id(), [name.encode() for name in filters], {}))

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, expiry: int = -1) -> None:
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, packet_id=packet_id, message_expiry_interval=expiry))

    def take(self) -> None:
        for packet in self.reader.receive_data(self.connection.take_output()):
            if isinstance(packet, Publish):
                self.received.append(packet)
                if packet.qos == 1:
                    self.send(PubAck(packet.packet_id))
                elif packet.qos == 2:
                    self.send(PubRec(packet.packet_id))
            elif isinstance(packet, PubRec):
                self.send(PubRel(packet.packet_id))
            elif isinstance(packet, PubRel):
                self.send(PubComp(packet.packet_id))

    @property
    def payloads(self) -> list[bytes]:
        return [publish.payload for publish in self.received]


class Link(OpenStream):
    """One connection from a sender to a receiver, for one attempt. It carries whole blocks, or single Go events."""

    def __init__(self, world: World, sender: PeerSender, client: str) -> None:
        super().__init__()
        self.world = world
        self.sender = sender
        self.client = client
        self.attempt = sender.attempt
        self.go = None if sender.extended else GoClient(sender)
        self.began = False
        self.open = True
        world.after(LATENCY, self.hello)

    def hello(self) -> None:
        world = self.world
        server = world.nodes.get(self.sender.name)
        if server is None or world.is_cut(self.client, self.sender.name):
            self.lost("unreachable")
            return
        try:
            clean_start, next_event_id = server.receivers.get(self.client).hello(self.sender.session_id)
        except (NotAMember, StreamError) as error:
            self.lost(str(error))
            return
        world.after(LATENCY, lambda: self.reply(clean_start, next_event_id))

    def reply(self, clean_start: bool, next_event_id: int) -> None:
        if not self.open or self.sender.name not in self.world.nodes:
            return self.lost("gone")
        self.sender.hello_reply(self.attempt, clean_start, next_event_id, self.world.now)
        if self.sender.state is State.STREAMING:
            self.began = True
            self.world.nodes[self.sender.name].receivers.get(self.client).open_stream(self, self.world.now)
        return None

    def flush(self) -> bool:
        """Send what the sender has. Returns whether there was anything."""
        now = self.world.now
        if self.go is not None:
            sent = [(-1, 1, event) for event in self.go.take_events(now)]
        else:
            blocks = self.sender.take_blocks(now)
            sent = [(block.first_id, block.events, b"".join(block.encode(now))) for block in blocks]
        for first_id, count, data in sent:
            self.world.after(LATENCY, lambda item=(first_id, count, data): self.deliver(*item))  # type: ignore[misc]
        return bool(sent)

    def deliver(self, first_id: int, count: int, data: bytes) -> None:
        world = self.world
        if not self.open:
            return
        if self.sender.name not in world.nodes:
            self.lost("unreachable")
            return
        try:
            receiver = world.nodes[self.sender.name].receivers.get(self.client)
            if first_id >= 0:
                ack = receiver.receive_batch(self, first_id, count, data, world.now)
            else:
                ack = receive_event(receiver, self, data, world.now)
        except (NotAMember, StreamError) as error:
            text = str(error)
            malformed = isinstance(error, StreamError) and error.malformed
            world.after(LATENCY, lambda: self.lost(text, malformed))
            return
        world.after(LATENCY, lambda: self.ack(ack))

    def end(self, text: str, malformed: bool = False) -> None:
        """The server ends the stream."""
        self.world.after(0.0, lambda: self.lost(text, malformed))

    def ack(self, event_id: int) -> None:
        node = self.world.nodes.get(self.client)
        if self.open and node is not None:
            self.sender.ack(self.attempt, event_id, self.world.now)
            self.sender.want_attention()

    def lost(self, reason: str, malformed: bool = False) -> None:
        if self.open:
            self.open = False
            if malformed:
                self.sender.refused(self.attempt, reason, self.world.now)
            else:
                self.sender.connection_lost(self.attempt, reason, self.world.now)


class World:
    def __init__(self, count: int, seed: int = 1, go_only: tuple[str, ...] = (), **federation: object) -> None:
        self.now = 1000.0
        self.rng = random.Random(seed)
        self.order = 0
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.nodes: dict[str, Node] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.clients: list[Client] = []
        self.go_only = go_only
        self.settings = replace(FederationSettings(node_name="x", session_scope="node"), **federation)  # type: ignore[arg-type]
        names = [f"n{number}" for number in range(1, count + 1)]
        for name in names:
            self.start(name)
        for name in names:
            self.introduce(name)

    def start(self, name: str) -> None:
        rng = random.Random(self.rng.getrandbits(32))
        broker = Broker(MqttSettings(), rng, self.now)
        node_settings = replace(self.settings, batch=name not in self.go_only)
        self.nodes[name] = Node(name, broker, node_settings, rng)

    def member(self, name: str, port: int = 8901) -> Member:
        tags = own_tags(f"{name}:{port}", name not in self.go_only)
        return Member(name, "127.0.0.1", 8902, tags, MemberStatus.ALIVE)

    def introduce(self, name: str) -> None:
        """The node and all others become members of each other."""
        for other, node in self.nodes.items():
            if other != name:
                node.member_events([MemberJoin(self.member(name))], self.now)
                self.nodes[name].member_events([MemberJoin(self.member(other))], self.now)

    def crash(self, name: str) -> None:
        del self.nodes[name]
        for (client, server), link in self.links.items():
            if name in (client, server):
                if client == name:
                    link.open = False
                link.lost("connection reset")
        self.clients = [client for client in self.clients if client.broker is not None]

    def client(self, node: str, client_id: str, version: int = 5) -> Client:
        client = Client(self, node, client_id, version)
        self.clients.append(client)
        return client

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.heap, (self.now + delay, self.order, action))

    def is_cut(self, a: str, b: str) -> bool:
        return (a, b) in self.cuts or (b, a) in self.cuts

    def cut(self, a: str, b: str) -> None:
        self.cuts.add((a, b))
        self.break_links(a, b)

    def heal(self) -> None:
        self.cuts.clear()

    def part(self, a: str, b: str) -> None:
        """Two nodes stop being members of each other."""
        self.break_links(a, b)
        for name, other in ((a, b), (b, a)):
            self.nodes[name].member_events([MemberLeave(self.member(other))], self.now)

    def meet(self, a: str, b: str) -> None:
        for name, other in ((a, b), (b, a)):
            self.nodes[name].member_events([MemberJoin(self.member(other))], self.now)

    def break_links(self, a: str, b: str) -> None:
        """Break the links in both directions; what is on its way is lost."""
        for pair in ((a, b), (b, a)):
            link = self.links.get(pair)
            if link is not None:
                link.lost("connection reset")

    def flush(self) -> None:
        for _ in range(100):
            busy = False
            for client in self.clients:
                if client.connection.dirty:
                    client.take()
                    busy = True
            for name, node in self.nodes.items():
                node.broker.take_dirty()
                if node.broker.slices.has_work():
                    node.broker.go_on(self.now)
                    busy = True
                for sender in node.senders.values():
                    link = self.links.get((name, sender.name))
                    is_new = link is None or link.sender is not sender or link.attempt != sender.attempt
                    if sender.state is State.HELLO and is_new:
                        if link is not None:
                            link.open = False
                        self.links[(name, sender.name)] = Link(self, sender, name)
                for sender in node.outlets.take_ready():
                    link = self.links.get((name, sender.name))
                    if link is not None and link.began:
                        busy = link.flush() or busy
            if not busy and not any(client.connection.dirty for client in self.clients):
                return
        raise AssertionError("output that never ends")

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            self.flush()
            at = self.heap[0][0] if self.heap else NEVER
            for node in self.nodes.values():
                at = min(at, node.next_timeout(), node.broker.next_timeout() or NEVER)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            while self.heap and self.heap[0][0] <= self.now:
                heapq.heappop(self.heap)[2]()
            for node in self.nodes.values():
                node.handle_timeout(self.now)
                node.broker.handle_timeout(self.now)

    def dropped(self, reason: Reason) -> int:
        return sum(counters.dropped[reason] for node in self.nodes.values() for counters in node.counters.values())


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
