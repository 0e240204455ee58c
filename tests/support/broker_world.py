"""A broker on virtual time and test clients that exchange bytes with it, without loop and sockets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
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
    Will,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.counters import COPY_DROP_REASONS, DROP_REASONS
from broker.message import message_bytes
from broker.metrics.broker_metrics import waiting_copies
from broker.routing.route_cache import ROUTES_MAX
from broker.routing.subscription import FilterEntry
from broker.session.connection import Connection
from broker.session.fed import is_fed
from broker.session.group_queue import GroupQueue
from broker.session.outgoing import Outgoing
from broker.store.journal import Journal
from broker.store.records import encode_changes

START = 1_000.0


def waiting_bytes(outgoing: Outgoing) -> int:
    assert outgoing.message is not None, "a queued message was not sent yet"
    return message_bytes(outgoing.message)


class World:
    """One broker, its clients, and the clock. `flush` does what the shell does at the end of a loop turn.

    stored  the records of a store, from `keep` on, and how far its wall clock is ahead of `now`
    """

    def __init__(self, **limits: Any) -> None:
        self.now = START
        self.broker = Broker(replace(MqttSettings(), **limits), random.Random(1), self.now)
        self.clients: dict[Connection, Client] = {}
        self.stored: dict[int, Any] = {}
        self.wall_offset = 0.0

    def keep(self, journal: Journal, stored: dict[int, Any], wall_offset: float) -> None:
        """Write the changes of each turn to a store."""
        self.broker.set_journal(journal)
        self.stored = stored
        self.wall_offset = self.broker.wall_offset = wall_offset

    def commit(self) -> bool:
        """Write what has changed. False when there was nothing to write."""
        journal = self.broker.commits.journal
        if journal is None or not (journal.changes or journal.commit):
            return False
        commit = journal.commit or self.broker.commits.begin()
        for number, record in encode_changes(journal.take(), self.wall_offset).items():
            if record is None:
                self.stored.pop(number, None)
            else:
                self.stored[number] = record
        journal.taken_is_stored()
        self.broker.commits.finish(commit)
        return True

    def open(self, version: int = 5) -> Client:
        """A network connection without CONNECT."""
        return Client(self, version)

    def connect(self, client_id: str = "c", version: int = 5, **options: Any) -> Client:
        """A connected client; `options` are those of Client.connect."""
        client = Client(self, version)
        client.connect(client_id, **options)
        return client

    def flush(self) -> None:
        for _ in range(100_000):
            dirty = self.broker.take_dirty()
            assert len(set(dirty)) == len(dirty), "each connection once"
            for connection in dirty:
                assert isinstance(connection, Connection)
                self.clients[connection].take(connection.take_output())
            changes = self.broker.take_reading_changes()
            for publisher in changes:
                assert isinstance(publisher, Connection)
                self.clients[publisher].set_reading()
            if self.broker.slices.has_work():
                self.broker.go_on(self.now)
            elif not dirty and not changes and not self.commit():
                break
        assert not self.broker.dirty, "output that never ends"

    def advance(self, seconds: float) -> None:
        """Let the time pass, with a call at each timeout of the broker."""
        until = self.now + seconds
        while True:
            at = self.broker.next_timeout()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.broker.handle_timeout(self.now)
            self.flush()
        self.now = until
        self.broker.handle_timeout(self.now)
        self.flush()

    def publish(self, topic: bytes, payload: bytes = b"x", **fields: Any) -> Client:
        """Publish by a client that connects for this packet only."""
        version = fields.pop("version", 5)
        client = self.connect(f"publisher-{self.broker.counters.connections_opened}", version)
        client.publish(topic, payload, **fields)
        client.disconnect()
        return client

    def check(self) -> None:
        """Check the invariants between two calls: the tables agree with each other."""
        broker = self.broker
        interest = set()
        for client_id, session in broker.sessions.items():
            assert session.client_id == client_id
            assert not session.ended
            if session.connection is not None:
                assert isinstance(session.connection, Connection)
                assert session.connection.session is session
                assert not session.connection.closed
            for full, subscription in session.subscriptions.items():
                assert subscription.session is session
                if is_fed(subscription):
                    assert broker.router.tree.get(full) is None
                    continue
                entry = broker.router.tree.get(subscription.topic_filter)
                assert isinstance(entry, FilterEntry)
                if session.is_group_queue:
                    assert entry.groups is not None
                    assert entry.groups[subscription.share_name].queue is subscription
                    continue
                if subscription.share_name:
                    assert entry.groups is not None
                    assert subscription in entry.groups[subscription.share_name].members()
                    assert full.startswith(b"$share/")
                else:
                    assert entry.subscriptions[session] is subscription
                interest.add((subscription.share_name, subscription.topic_filter))
            queue = session.queued()
            assert session.queue_length() == len(queue)
            if session.queue is not None:
                assert session.queue.bytes == sum(waiting_bytes(outgoing) for outgoing in queue)
            if not (isinstance(session, GroupQueue) and session.rejects):  # jobs that come back are above its bound
                assert session.inflight_length() + len(queue) <= max(session.queue_max, session.inflight_length())
            packet_ids = [] if session.inflight is None else [out.packet_id for out in session.inflight.messages()]
            assert len(set(packet_ids)) == len(packet_ids)
        assert sorted(broker.local_interest()) == sorted(interest)
        cache = broker.router.cache
        assert len(cache.routes) <= ROUTES_MAX
        assert cache.receivers == sum(route.size for route in cache.routes.values())
        for route in cache.routes.values():
            assert all(not receiver.session.ended for receiver in route.receivers)
        self.check_copies()

    def check_copies(self) -> None:
        """Each copy of a message for a client is in one place."""
        counters = self.broker.counters
        sessions = self.broker.sessions.values()
        waiting = sum(session.queue_length() + session.inflight_length() for session in sessions)
        dropped = sum(counters.messages_dropped[reason] for reason in COPY_DROP_REASONS)
        ended = counters.qos0_sent + counters.acknowledged + counters.redelivered
        assert counters.copies == ended + dropped + waiting
        assert waiting_copies(counters) == waiting
        assert counters.subscriptions == sum(len(session.subscriptions) for session in sessions)
        assert counters.clients_connected - counters.clients_disconnected == sum(
            session.connection is not None for session in sessions
        )

    def drops(self) -> dict[str, int]:
        """Counters of drops by reason, without zeros."""
        counts = self.broker.counters.messages_dropped
        assert set(counts) >= set(DROP_REASONS)
        return {reason: count for reason, count in counts.items() if count}


class Client:
    """Sends packets and records the answers. With `auto` it acknowledges as the specification demands."""

    def __init__(self, world: World, version: int) -> None:
        self.world = world
        self.version = version
        self.connection = Connection(world.broker, self, "127.0.0.1:1", "127.0.0.1:2", world.now)
        world.clients[self.connection] = self
        self.reader = PacketReader(version)
        self.packets: list[Packet] = []
        self.output = b""
        self.reading = True
        self.reads = True
        self.auto = True
        self.next_packet_id = 1
        self.connack: ConnAck | None = None
        self.waiting: list[bytes] = []

    # --- the socket ---

    def send_bytes(self, data: bytes) -> None:
        """Like a transport, deliver nothing while reading is paused."""
        if not self.reading:
            self.waiting.append(data)
            return
        self.connection.receive_data(data, self.world.now)
        self.world.flush()

    def send(self, packet: Packet) -> None:
        self.send_bytes(encode_packet(packet, self.version))

    def set_reading(self) -> None:
        if self.connection.held and self.reading:
            self.reading = False
        elif not self.connection.held:
            self.reading = True
            self.connection.resume_receiving(self.world.now)
            waiting, self.waiting = self.waiting, []
            for data in waiting:
                if self.reading and not self.connection.closed:
                    self.connection.receive_data(data, self.world.now)
                else:
                    self.waiting.append(data)

    def take(self, data: bytes) -> None:
        self.output += data
        packets = self.reader.receive_data(data)
        self.packets += packets
        if self.auto:
            for packet in packets:
                self._acknowledge(packet)

    def _acknowledge(self, packet: Packet) -> None:
        if self.connection.closed:
            return
        answer: Packet | None = None
        if isinstance(packet, Publish) and packet.qos:
            answer = PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id)
        elif isinstance(packet, PubRel):
            answer = PubComp(packet.packet_id)
        elif isinstance(packet, PubRec) and packet.reason_code < 0x80:
            answer = PubRel(packet.packet_id)
        if answer is not None:
            self.connection.receive_data(encode_packet(answer, self.version), self.world.now)

    def stop_reading(self) -> None:
        """The client stops reading, and the transport's buffer is full."""
        self.connection.writable = False

    def read_on(self) -> None:
        self.world.broker.connection_writable(self.connection, self.world.now)
        self.world.flush()

    def cut(self) -> None:
        """The network connection is lost."""
        self.world.broker.connection_lost(self.connection, self.world.now)
        self.world.flush()

    @property
    def closed(self) -> bool:
        return self.connection.closed

    # --- packets ---

    def connect(
        self,
        client_id: str = "c",
        clean_start: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        expiry: int | None = None,
        properties: dict[int, Any] | None = None,
        auto: bool = True,
        **more: Any,
    ) -> ConnAck | None:
        """CONNECT; the CONNACK, None when none came."""
        self.auto = auto
        all_properties: dict[int, Any] = {} if properties is None else dict(properties)
        if expiry is not None:
            all_properties[props.SESSION_EXPIRY_INTERVAL] = expiry
        packet = Connect(client_id, self.version, clean_start, keep_alive, will=will, properties=all_properties, **more)
        before = len(self.packets)
        self.send(packet)
        self.connack = next((p for p in self.packets[before:] if isinstance(p, ConnAck)), None)
        if self.connack is not None:
            self.packets.remove(self.connack)
        return self.connack

    def disconnect(self, reason_code: int = 0, expiry: int | None = None) -> None:
        self.send(Disconnect(reason_code, {} if expiry is None else {props.SESSION_EXPIRY_INTERVAL: expiry}))

    def _packet_id(self) -> int:
        self.next_packet_id = self.next_packet_id % 65535 + 1
        return self.next_packet_id

    def subscribe(
        self, *filters: Any, identifier: int = 0, pairs: Sequence[tuple[str, str]] = (), **options: Any
    ) -> list[int]:
        """SUBSCRIBE to bytes or SubscribeFilters, with the user properties `pairs`; the reason codes of its SUBACK."""
        requests = [
            f if isinstance(f, SubscribeFilter) else SubscribeFilter(f, **{"qos": 2, **options}) for f in filters
        ]
        packet_id = self._packet_id()
        properties: dict[int, Any] = {props.SUBSCRIPTION_IDENTIFIER: identifier} if identifier else {}
        if pairs:
            properties[props.USER_PROPERTY] = list(pairs)
        self.send(Subscribe(packet_id, requests, properties))
        for packet in self.packets:
            if isinstance(packet, SubAck) and packet.packet_id == packet_id:
                self.packets.remove(packet)
                return packet.reason_codes
        raise AssertionError("no SUBACK")

    def unsubscribe(self, *filters: bytes) -> list[int]:
        packet_id = self._packet_id()
        self.send(Unsubscribe(packet_id, list(filters)))
        for packet in self.packets:
            if isinstance(packet, UnsubAck) and packet.packet_id == packet_id:
                self.packets.remove(packet)
                return packet.reason_codes
        raise AssertionError("no UNSUBACK")

    def publish(self, topic: bytes, payload: bytes = b"x", qos: int = 0, **fields: Any) -> None:
        packet_id = fields.pop("packet_id", None)
        if packet_id is None:
            packet_id = self._packet_id() if qos else 0
        self.send(Publish(topic, payload, qos, packet_id=packet_id, **fields))

    # --- what came ---

    def take_packets(self) -> list[Packet]:
        packets, self.packets = self.packets, []
        return packets

    def take_publishes(self) -> list[Publish]:
        """The PUBLISH packets since the last call; all others stay."""
        found = [packet for packet in self.packets if isinstance(packet, Publish)]
        self.packets = [packet for packet in self.packets if not isinstance(packet, Publish)]
        return found

    def take_payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.take_publishes()]
