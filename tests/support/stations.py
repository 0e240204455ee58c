"""Nodes with stream servers and clients on sockets, without gossip: the test makes them members of each other."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from broker.broker import Broker
from broker.codec.packets import Connect, Packet, PubAck, Publish, Subscribe, SubscribeFilter
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.addresses import Address
from broker.config.settings import MqttSettings
from broker.hooks import Members, OtherNode
from broker.publisher import Publisher
from broker.session.connection import Connection
from certificates import Pair
from federation.extension import Extension
from federation.node import Node
from federation.refusals import Refusals
from federation.serf.events import Member, MemberJoin, MemberLeave, MemberStatus, MemberUpdate
from federation.settings import FederationSettings, FederationTlsSettings
from federation.shell.dialer import Dialer
from federation.shell.node_tls import NodeTls
from federation.shell.peer_client import PeerClient
from federation.shell.private_folder import PrivateFolder
from federation.shell.stream_server import StreamServer
from federation.stream.frames import SUBSCRIBE, encode_interest
from federation.stream.state import State
from federation.tags import own_tags
from waiting import DEADLINE, POLL_SECONDS

BYTES_MAX: Final = 2**20
BACKOFF_SECONDS_MIN: Final = 0.01
BACKOFF_SECONDS_MAX: Final = 0.1


class Log:
    """Events as (level, event, values)."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **values: Any) -> None:
        self.lines.append(("debug", event, values))

    def info(self, event: str, **values: Any) -> None:
        self.lines.append(("info", event, values))

    def warning(self, event: str, **values: Any) -> None:
        self.lines.append(("warning", event, values))

    def error(self, event: str, **values: Any) -> None:
        self.lines.append(("error", event, values))

    def values(self, event: str, key: str) -> list[Any]:
        return [values[key] for _, text, values in self.lines if text == event]


class Client:
    """An MQTT 5 client inside the process. `payloads` are those of its messages, in order."""

    def __init__(self, station: Station, client_id: str) -> None:
        self.station = station
        self.connection = Connection(station.broker, self, "test", "test", station.now())
        self.reader = PacketReader(5)
        self.payloads: list[bytes] = []
        self.packet_id = 0
        self.send(Connect(client_id=client_id, protocol_version=5, clean_start=True, keep_alive=0))

    def send(self, packet: Packet) -> None:
        self.connection.receive_data(encode_packet(packet, 5), self.station.now())
        self.station.changed()

    def subscribe(self, topic_filter: str) -> None:
        self.packet_id += 1
        self.send(Subscribe(self.packet_id, [SubscribeFilter(topic_filter.encode(), 1)], {}))

    def publish(self, topic: str, payload: bytes) -> None:
        self.packet_id = self.packet_id % 65_535 + 1
        self.send(Publish(topic.encode(), payload, 1, False, packet_id=self.packet_id))

    def take(self) -> None:
        for packet in self.reader.receive_data(self.connection.take_output()):
            if isinstance(packet, Publish):
                self.payloads.append(packet.payload)
                self.send(PubAck(packet.packet_id))

    def set_reading(self, publisher: Publisher) -> None:
        """A client inside the process is never paused."""


class Known(Members):
    """The members that a station has met, with their tags."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tags: dict[str, dict[str, str]] = {}

    def others(self) -> list[OtherNode]:
        return [OtherNode(name, "ALIVE", tags) for name, tags in self.tags.items()]


class Station:
    """A node with its stream server and clients on sockets, as the plugin runs it, without gossip. `pair` and `cacert` are its
    certificate and its authority; it has a port without TLS, too, unless it `requires_tls`."""

    def __init__(
        self,
        name: str,
        bytes_max: int = BYTES_MAX,
        extensions: Sequence[Extension] = (),
        pair: Pair | None = None,
        cacert: str = "",
        requires_tls: bool = False,
        batch: bool = True,
    ) -> None:
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.now = self.loop.time
        self.log = Log()
        self.broker = Broker(MqttSettings(), random.Random(), self.now())  # each has an identity of its own
        self.settings = FederationSettings(node_name=name, require_tls=requires_tls, batch=batch, session_scope="node")
        self.members = Known(name)
        self.tls: NodeTls | None = None
        self.dialer: Dialer | None = None
        self.refusals = Refusals()
        folder = PrivateFolder()
        if pair is not None:
            section = FederationTlsSettings(pair.cert, pair.key, cacert)
            self.settings = replace(self.settings, tls=section)
            self.tls = NodeTls(section.files(str), name, "tls")
            self.tls.renew()
            self.dialer = Dialer(self.tls, self.members, requires_tls, folder, self.refusals)
        self.node = Node(name, self.broker, self.settings, random.Random(2))
        self.streams = StreamServer(
            self.node, bytes_max, self.changed, self.log, None, extensions, self.tls, folder, self.refusals
        )
        self.clients: dict[str, PeerClient] = {}
        self.addr = self.tls_addr = ""
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._stopped = False
        self._turns: set[asyncio.Future[None]] = set()

    async def start(self, host: str = "127.0.0.1") -> Station:
        if not self.settings.require_tls:
            self.addr = Address("tcp", host, self.streams.bind(host, 0)).host_port
        if self.tls is not None:
            self.tls_addr = Address("tcp", host, self.streams.bind(host, 0, True)).host_port
        await self.streams.start()
        return self

    @property
    def tags(self) -> dict[str, str]:
        return own_tags(self.addr, self.settings.batch, advertised_tls=self.tls_addr)

    async def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.node.left()
        await asyncio.gather(*(client.stop() for client in self.clients.values()))
        await self.streams.stop()
        if self.dialer is not None:
            await self.dialer.stop()

    @property
    def port(self) -> int:
        return int(self.addr.rpartition(":")[2])

    @property
    def tls_port(self) -> int:
        return int(self.tls_addr.rpartition(":")[2])

    def meet(self, name: str, addr: str, direct: bool = True) -> None:
        """The other node's tags as gossip tells them."""
        self.meet_tags(name, own_tags(addr, direct))

    def meet_tags(self, name: str, tags: dict[str, str]) -> None:
        self.members.tags[name] = tags
        member = Member(name, "127.0.0.1", 7946, tags, MemberStatus.ALIVE)
        event = MemberUpdate(member) if name in self.node.senders else MemberJoin(member)
        self.node.member_events([event], self.now())
        sender = self.node.senders.get(name)
        if sender is not None:
            sender.backoff_seconds_min = BACKOFF_SECONDS_MIN
            sender.backoff_seconds_max = BACKOFF_SECONDS_MAX
        self.follow()
        self.streams.carry_out()
        self.changed()

    def part(self, name: str) -> None:
        self.members.tags.pop(name, None)
        member = Member(name, "127.0.0.1", 7946, {}, MemberStatus.LEFT)
        self.node.member_events([MemberLeave(member)], self.now())
        self.follow()
        self.streams.carry_out()
        self.changed()

    def changed(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self.turn)

    def follow(self) -> None:
        for name, client in list(self.clients.items()):
            if self.node.senders.get(name) is not client.sender:
                del self.clients[name]
                client.follow()
        for name, sender in self.node.senders.items():
            found = self.clients.get(name)
            if found is None:
                found = self.clients[name] = PeerClient(
                    self.name, sender, self.changed, self.changed, self.log, self.dialer
                )
            found.follow()

    def turn(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        for connection in self.broker.take_dirty():
            owner = connection.owner
            assert isinstance(owner, Client)
            owner.take()
        for publisher in self.broker.take_reading_changes():
            if publisher.owner is not None:
                publisher.owner.set_reading(publisher)  # type: ignore[attr-defined]
        if self.broker.slices.has_work():
            self.broker.go_on(self.now())
            self.changed()
        self.follow()
        for sender in self.node.outlets.take_ready():
            client = self.clients.get(sender.name)
            if client is not None and client.sender is sender:
                client.writer.flush_at(self.now())
        if self._timer is not None:
            self._timer.cancel()
        at = min(self.node.next_timeout(), self.broker.next_timeout() or self.now() + 60.0, self.now() + 60.0)
        self._timer = self.loop.call_at(at, self.timer_fired)
        for waiting in list(self._turns):
            if not waiting.done():
                waiting.set_result(None)

    def timer_fired(self) -> None:
        self.node.handle_timeout(self.now())
        self.broker.handle_timeout(self.now())
        self.turn()

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition. It is checked after each turn of this node and every POLL_SECONDS, because the begin and
        the end of a connection and acknowledgements make no turn."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not condition():
                    waiting = self.loop.create_future()
                    self._turns.add(waiting)
                    try:
                        await asyncio.wait((waiting,), timeout=POLL_SECONDS)
                    finally:
                        self._turns.discard(waiting)
        except TimeoutError:
            raise AssertionError(f"{self.name} after {DEADLINE:g} s: {what}; {self.log.lines[-8:]}") from None

    def kinds(self) -> list[str]:
        return self.log.values("event stream to a node", "kind")

    def reasons(self) -> list[str]:
        return self.log.values("no event stream to a node", "reason")

    def streaming(self, name: str) -> bool:
        sender = self.node.senders.get(name)
        return sender is not None and sender.state is State.STREAMING


StartStation = Callable[..., Any]


async def two_nodes(start_station: StartStation) -> tuple[Station, Station]:
    return await start_station("n1"), await start_station("n2")


async def lone(start_station: StartStation, bytes_max: int = BYTES_MAX) -> Station:
    """A node that knows a member `peer`, which cannot be reached."""
    station: Station = await start_station("n1", bytes_max=bytes_max)
    with socket.create_server(("127.0.0.1", 0)) as free:
        station.meet("peer", f"127.0.0.1:{free.getsockname()[1]}")
    return station


def interest(topic_filter: bytes) -> bytes:
    return encode_interest(SUBSCRIBE, b"", topic_filter)


def only_connection(n1: Station) -> asyncio.Transport:
    (transport,) = n1.streams.connections
    return cast(asyncio.Transport, transport)


async def connections_become(n1: Station, count: int) -> None:
    await n1.until(lambda: len(n1.streams.connections) == count, f"{count} connections")
