"""A whole federated node as a simulated process: broker, gossip and event streams, as the plugin puts them together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.message import NEVER
from broker.session.connection import Connection
from federation.gossip.addresses import Address
from federation.node import Node, NotAMember, own_tags
from federation.serf.config import SerfConfig
from federation.serf.events import Event, JoinResult, Left, MemberFailed, MemberLeave, NameConflict
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import SerfPhase
from federation.settings import FederationSettings
from federation.simulator.client import Client
from federation.simulator.network import Stream
from federation.simulator.serf_process import GOSSIP_PORT, SerfProcess
from federation.simulator.world import Host
from federation.stream.batches import Outlet
from federation.stream.direct import (
    ACK_PONG,
    PING,
    STATUS_NOT_A_MEMBER,
    STATUS_OK,
    ClientReader,
    DirectError,
    Reply,
    ServerReader,
    encode_ack,
    encode_end,
    encode_hello,
    encode_reply,
)
from federation.stream.receiver import PeerReceiver
from federation.stream.sender import PeerSender
from federation.stream.state import State
from federation.stream.waiting import StreamError

FEDERATION_PORT: Final = 8901
LOST_MEMBER_SPREAD: Final = 5.0
PING_SECONDS: Final = 10.0
CLIENT_SILENCE_SECONDS_MAX: Final = 20.0
SERVER_SILENCE_SECONDS_MAX: Final = 35.0
RETRY_TIMEOUT: Final = 60.0
BATCH_BYTES_MAX: Final = 1 << 20
SETTLE_ROUNDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """`name` may differ from the host's. `seeds` are `retry_join`, tried each `retry_interval` seconds for ever."""

    name: str
    seeds: list[Address] = field(default_factory=list)
    retry_interval: float = 5.0
    outbox_age_max: float = 300.0
    outbox_bytes_max: int = 64 * 2**20
    outbox_policy: str = "drop_oldest"


class Link(Outlet):
    """The client's end of a direct stream, for one attempt of a sender."""

    __slots__ = ("attempt", "pinged_at", "reader", "received_at", "replied", "sender", "stream")

    def __init__(self, sender: PeerSender, stream: Stream, now: float) -> None:
        self.sender = sender
        self.attempt = sender.attempt
        self.stream = stream
        self.reader = ClientReader()
        self.replied = False
        self.received_at = now
        self.pinged_at = now

    def flush_at(self, now: float) -> None:
        """NodeProcess writes for all links at the end of each turn."""


class Served:
    """The server's end of a direct stream."""

    __slots__ = ("number", "reader", "received_at", "receiver", "unread")

    def __init__(self, now: float) -> None:
        self.reader = ServerReader(BATCH_BYTES_MAX)
        self.unread: list[bytes] = []  # while receivers are full nothing is read
        self.receiver: PeerReceiver | None = None
        self.number = 0
        self.received_at = now


class NodeProcess(SerfProcess):
    """`received` are the (topic, payload) that the node's own client was sent. `lost_name`: it must be stopped."""

    def __init__(self, host: Host, options: NodeOptions) -> None:
        now = host.world.now
        config = SerfConfig(options.name, host.ip, GOSSIP_PORT, own_tags(f"{host.ip}:{FEDERATION_PORT}", True))
        super().__init__(host, config, [])
        self.name = options.name
        self.broker = Broker(MqttSettings(), host.rng, now)
        settings = FederationSettings(
            node_name=options.name,
            outbox_age_max=options.outbox_age_max,
            outbox_bytes_max=options.outbox_bytes_max,
            outbox_policy=options.outbox_policy,
        )
        self.node = Node(options.name, self.broker, settings, host.rng)
        self.retry_join: RetryJoin | None = None
        if options.seeds:
            seeds = [f"{ip}:{port}" for ip, port in options.seeds]
            self.retry_join = RetryJoin(seeds, options.retry_interval, RETRY_TIMEOUT, now)
        self.join_results: dict[int, JoinResult] = {}
        self.lost_name = False
        self._retry_id = 0
        self._links: dict[str, Link] = {}
        self._link_of: dict[Stream, Link] = {}
        self._served: dict[Stream, Served] = {}
        self._host = host
        self.clients: list[Client] = []
        self._own = self.add_client(f"client of {options.name}", now)
        self.received = self._own.received

    # --- what a test may do; each is followed by `Host.settle`

    def add_client(self, client_id: str, now: float) -> Client:
        client = Client(self.broker, client_id, now)
        self.clients.append(client)
        return client

    def subscribe(self, topic_filter: str, now: float) -> None:
        self._own.subscribe(topic_filter, now)

    def unsubscribe(self, topic_filter: str, now: float) -> None:
        self._own.unsubscribe(topic_filter, now)

    def publish(self, topic: str, payload: bytes, now: float) -> None:
        self._own.publish(topic, payload, now)

    def join(self, addresses: list[Address], now: float) -> int:
        """As the API's join; `join_results` has what came of it."""
        if self.retry_join is not None:
            self.retry_join.resume()
        return self.serf.join(addresses, now)

    def leave(self, now: float) -> None:
        """As the API's leave: the node goes on for its own clients."""
        if self.retry_join is not None:
            self.retry_join.stop()
        self.serf.leave(now)

    # --- streams

    def stream_accepted(self, stream: Stream, now: float) -> None:
        if stream.port == FEDERATION_PORT:
            self._served[stream] = Served(now)
        else:
            super().stream_accepted(stream, now)

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        served = self._served.get(stream)
        link = self._link_of.get(stream)
        if served is not None:
            served.received_at = now
            if served.receiver is not None and served.receiver.publisher.held:
                served.unread.append(data)
            else:
                self._serve(stream, served, data, now)
        elif link is not None:
            link.received_at = now
            self._hear(link, data, now)
        elif stream.port != FEDERATION_PORT:
            super().stream_received(stream, data, now)

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        if stream in self._served:
            self._drop_served(stream)
        elif stream in self._link_of:
            self._lose(self._link_of[stream], error or "closed by the other node", False, now)
        elif stream.port != FEDERATION_PORT:
            super().stream_closed(stream, error, now)

    def _serve(self, stream: Stream, served: Served, data: bytes, now: float) -> None:
        try:
            if served.receiver is None:
                hello = served.reader.receive_hello(data)
                if hello is None:
                    return
                data = b""
                try:
                    clean_start, next_event_id = self.node.hello(hello.node_name, hello.session_id)
                except NotAMember as error:
                    stream.write(encode_reply(Reply(STATUS_NOT_A_MEMBER, False, 0, str(error))))
                    self._drop_served(stream)
                    return
                served.receiver = self.node.receiver(hello.node_name)
                served.number = served.receiver.open_stream(True, now)
                stream.write(encode_reply(Reply(STATUS_OK, clean_start, next_event_id, "")))
            ack = -1
            reader = served.reader
            reader.receive(data)
            while reader.next_batch():
                if reader.count == 0:
                    stream.write(encode_ack(ACK_PONG))
                else:
                    ack = served.receiver.receive_batch(
                        served.number, reader.first_id, reader.count, reader.data, now, reader.start, reader.stop
                    )
            if ack >= 0:
                stream.write(encode_ack(ack))
            if served.reader.fault is not None:
                raise served.reader.fault
        except (DirectError, StreamError) as error:
            self._end_served(stream, error.malformed if isinstance(error, StreamError) else True, str(error))

    def _end_served(self, stream: Stream, malformed: bool, text: str) -> None:
        stream.write(encode_end(malformed, text))
        self._drop_served(stream)

    def _drop_served(self, stream: Stream) -> None:
        served = self._served.pop(stream)
        if served.receiver is not None:
            served.receiver.close_stream(served.number)
        stream.close()

    def _hear(self, link: Link, data: bytes, now: float) -> None:
        sender = link.sender
        if not link.replied:
            try:
                reply = link.reader.receive_reply(data)
            except DirectError as error:
                self._lose(link, str(error), False, now)
                return
            if reply is None:
                return
            if reply.status != STATUS_OK:
                self._lose(link, reply.text, False, now)
                return
            link.replied = True
            sender.hello_reply(link.attempt, reply.clean_start, reply.next_event_id, now)
            sender.outlet = link
            data = b""
        answers = link.reader.receive_answers(data)
        if answers.ack >= 0:
            self.node.ack(sender, link.attempt, answers.ack, now)
            sender.want_attention()
        if answers.end_text is not None:
            self._lose(link, answers.end_text, answers.end_malformed, now)

    def _lose(self, link: Link, reason: str, malformed: bool, now: float) -> None:
        self._drop_link(link)
        if malformed:
            link.sender.refused(link.attempt, reason, now)
        else:
            link.sender.connection_lost(link.attempt, reason, now)

    def _drop_link(self, link: Link) -> None:
        if link.sender.outlet is link:
            link.sender.outlet = None
        if self._links.get(link.sender.name) is link:
            del self._links[link.sender.name]
        self._link_of.pop(link.stream, None)
        link.stream.close()

    # --- time

    def next_timeout(self) -> float | None:
        first = super().next_timeout()
        assert first is not None
        first = min(first, self.node.next_timeout(), self.broker.next_timeout() or NEVER)
        if self.retry_join is not None:
            first = min(first, self.retry_join.next_timeout() or NEVER)
        for link in self._link_of.values():
            first = min(first, link.received_at + CLIENT_SILENCE_SECONDS_MAX)
            if link.replied:
                first = min(first, link.pinged_at + PING_SECONDS)
        for served in self._served.values():
            first = min(first, served.received_at + SERVER_SILENCE_SECONDS_MAX)
        return first

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        self.node.handle_timeout(now)
        self.broker.handle_timeout(now)
        for link in list(self._link_of.values()):
            if now >= link.received_at + CLIENT_SILENCE_SECONDS_MAX:
                self._lose(link, "no sign of life", False, now)
            elif link.replied and now >= link.pinged_at + PING_SECONDS:
                link.pinged_at = now
                link.stream.write(PING)
        for stream, served in list(self._served.items()):
            if now >= served.received_at + SERVER_SILENCE_SECONDS_MAX:
                self._end_served(stream, False, "nothing was heard")
        if self.retry_join is not None:
            hosts = self.retry_join.take_hosts(now)
            if hosts:
                addresses = [(host.rpartition(":")[0], int(host.rpartition(":")[2])) for host in hosts]
                self._retry_id = self.serf.join(addresses, now)

    # --- what must go out

    def flush(self, host: Host, now: float) -> None:
        super().flush(host, now)
        self._drive(host, now)

    def handle_events(self, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, NameConflict) and event.lost:
                self.lost_name = True
            elif isinstance(event, Left):
                self.node.left()
            elif isinstance(event, JoinResult):
                self._join_ended(event, now)
            elif isinstance(event, (MemberFailed, MemberLeave)) and self.retry_join is not None:
                self.retry_join.member_lost(now, self._host.rng.random() * LOST_MEMBER_SPREAD)
        if self.retry_join is not None:
            self.retry_join.members_changed(self.serf.alive_others(), now)
        self.node.member_events(events, now)
        if self.node.has_left and self.serf.phase == SerfPhase.ALIVE:
            self.node.joined(self.serf.members(), now)

    def _join_ended(self, result: JoinResult, now: float) -> None:
        if self.retry_join is not None and result.join_id == self._retry_id:
            self._retry_id = 0
            errors = {f"{ip}:{port}": text for (ip, port), text in result.errors.items()}
            self.retry_join.attempt_finished(errors, now)
            self.retry_join.take_events()
        else:
            self.join_results[result.join_id] = result

    def _drive(self, host: Host, now: float) -> None:
        """Until broker, streams and the node's own client are at rest."""
        for _ in range(SETTLE_ROUNDS_MAX):
            self.broker.take_dirty()
            busy = self._set_reading(now)
            if self.broker.slices.has_work():
                self.broker.go_on(now)
                busy = True
            for client in self.clients:
                busy = client.take(now) or busy
            self._end_strangers()
            self._follow(host, now)
            for sender in self.node.outlets.take_ready():
                busy = True
                link = self._links.get(sender.name)
                data = sender.take_bytes(now)
                if data and link is not None and link.sender is sender and link.attempt == sender.attempt:
                    link.stream.write(data)
            if not busy:
                return
        raise AssertionError(f"{self.name}: no rest within one turn")

    def _set_reading(self, now: float) -> bool:
        """Publishers that full receivers have held go on; whether there were any."""
        changes = self.broker.take_reading_changes()
        for publisher in changes:
            if isinstance(publisher, Connection):
                assert isinstance(publisher.owner, Client)
                publisher.owner.set_reading(now)
                continue
            if publisher.held:
                continue
            for stream, served in list(self._served.items()):
                receiver = served.receiver
                if receiver is not None and receiver.publisher is publisher and receiver.stream == served.number:
                    self._resume(stream, served, receiver, now)
        return bool(changes)

    def _resume(self, stream: Stream, served: Served, receiver: PeerReceiver, now: float) -> None:
        try:
            ack = receiver.resume(now)
        except StreamError as error:
            self._end_served(stream, error.malformed, error.text)
            return
        if ack >= 0:
            stream.write(encode_ack(ack))
        unread = b"".join(served.unread)
        if unread and not receiver.publisher.held:
            served.unread.clear()
            self._serve(stream, served, unread, now)

    def _end_strangers(self) -> None:
        """Streams of nodes that are no members any more, and those that newer ones have replaced."""
        for stream, served in list(self._served.items()):
            receiver = served.receiver
            if receiver is None:
                continue
            if self.node.receivers.get(receiver.name) is not receiver or receiver.stream != served.number:
                self._end_served(stream, False, "not a member any more, or replaced")

    def _follow(self, host: Host, now: float) -> None:
        """Links as the node's senders want them."""
        for link in list(self._links.values()):
            sender = link.sender
            if (
                self.node.senders.get(sender.name) is not sender
                or sender.attempt != link.attempt
                or sender.state in (State.STOPPED, State.BACKOFF)
            ):
                self._drop_link(link)
        for sender in self.node.senders.values():
            if sender.state is State.HELLO and sender.name not in self._links:
                ip, _, port = sender.addr.rpartition(":")
                link = Link(sender, host.open_stream((ip, int(port))), now)
                self._links[sender.name] = link
                self._link_of[link.stream] = link
                link.stream.write(encode_hello(self.name, sender.session_id))
