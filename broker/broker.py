"""The sum of the cores: sessions by client id, who is connected, subscriptions, wills, retained messages.

Five doors (docs/architecture.md): a connection's `receive_data` is the input, `take_dirty` and `take_reading_changes`
tell the shell what to do, `next_timeout` and `handle_timeout` are the clock.
"""

from __future__ import annotations

import random
from typing import Final

from broker.codec.packets import ConnAck, Disconnect, SubscribeFilter, Will
from broker.codec.properties import REASON_STRING
from broker.codec.reason_codes import (
    ADMINISTRATIVE_ACTION,
    MALFORMED_PACKET,
    NO_SUBSCRIPTION_EXISTED,
    NORMAL_DISCONNECTION,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    SERVER_SHUTTING_DOWN,
    SESSION_TAKEN_OVER,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.counters import DROP_WILL_REFUSED, Counters
from broker.errors import MqttError
from broker.hooks import Forwarder, Peer
from broker.message import Message
from broker.routing.names import check_topic_filter, has_wildcard, parse_filter
from broker.routing.retained import RetainedStore, RetainedWalk
from broker.routing.router import Router
from broker.routing.subscription import Subscription, add_subscription, interest, remove_subscription
from broker.session.backlog import Portion
from broker.session.connection import Connection
from broker.session.handover import take_left_behind
from broker.session.publisher import Publisher
from broker.session.session import Session
from broker.session.will import PendingWill, will_message
from broker.timers import TimerWheel

NO_REASON: Final = -1  # close without a packet that says why


class Broker:
    """One node's broker. `forwarder` is the seam to other nodes; a lone node keeps the base class."""

    def __init__(self, settings: MqttSettings, rng: random.Random, now: float) -> None:
        # What each message touches comes first (see Connection).
        self.max_packet_size = settings.max_packet_size
        self.write_buffer_high = settings.write_buffer_high
        self.counters = Counters()
        self.router = Router(self)
        self.dirty: list[Connection] = []
        self.reading_changes: list[Publisher] = []
        self.peer_holds: dict[str, tuple[Peer, float, list[Publisher]]] = {}
        self.timers = TimerWheel()
        self.now = now  # of the last call at a door; for what is called without a time
        self.rng = rng
        self.forwarder = Forwarder()
        self.sessions: dict[str, Session] = {}
        self.retained = RetainedStore()
        self.shutting_down = False
        self.started_at = now
        self.apply_settings(settings)

    def apply_settings(self, settings: MqttSettings) -> None:
        """Limits that the loops read for every packet are kept as plain attributes."""
        self.settings = settings
        self.max_packet_size = settings.max_packet_size
        self.maximum_qos = settings.maximum_qos
        self.write_buffer_high = settings.write_buffer_high
        self.overlap = settings.delivery_mode == "overlap"
        self.retained.messages_max = settings.max_retained_messages
        self.retained.bytes_max = settings.max_retained_bytes
        for session in self.sessions.values():
            session.queue_max = settings.max_queued_messages
        self.router.forget_routes()

    # --- the shell's doors ---

    def open_connection(self, owner: object, remote_addr: str, local_addr: str, now: float) -> Connection:
        """A network connection was accepted."""
        connection = Connection(self, owner, remote_addr, local_addr, now)
        self.counters.connections_opened += 1
        self.timers.schedule(connection)
        return connection

    def connection_lost(self, connection: Connection, now: float) -> None:
        """The network connection is gone, whoever ended it; the second call does nothing."""
        self.close_connection(connection, NO_REASON, "connection lost", now)

    def connection_writable(self, connection: Connection, now: float) -> None:
        """The transport has sent enough: go on with what was queued meanwhile."""
        connection.writable = True
        connection.stalled_bytes = 0
        self.now = now
        if connection.output_held:
            connection.output_held = False
            self.release(connection)
        if connection.session is not None:
            connection.session.pump(now)

    def take_dirty(self) -> list[Connection]:
        """Connections with output or a close to carry out; each once."""
        dirty = self.dirty
        if dirty:
            self.dirty = []
        return dirty

    def take_reading_changes(self) -> list[Publisher]:
        """Connections whose `held` went to or from zero: pause or resume reading."""
        changes = self.reading_changes
        if changes:
            self.reading_changes = []
        return changes

    def next_timeout(self) -> float | None:
        at = self.timers.next_timeout()
        for peer, until, held in self.peer_holds.values():
            # An outbox that has room again releases its publishers at once.
            look_at = self.now if held and not peer.congested else until
            if at is None or look_at < at:
                at = look_at
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late: keep alives, expiries, will delays, holds."""
        self.now = now
        self.timers.handle_timeout(now)
        for name in list(self.peer_holds):
            peer, until, held = self.peer_holds[name]
            if now >= until or not peer.congested:
                # Stays in the table, empty, while the peer is congested: one hold a backlog.
                for publisher in held:
                    self.release(publisher)
                held.clear()
                if not peer.congested:
                    del self.peer_holds[name]
                else:
                    self.peer_holds[name] = (peer, now + 1.0, held)
        self.retained.expire(now)

    # --- publishers that are too fast ---

    def hold(self, publisher: Publisher) -> None:
        publisher.held += 1
        if publisher.held == 1:
            self.counters.publishers_held += 1
            self.reading_changes.append(publisher)

    def release(self, publisher: Publisher) -> None:
        publisher.held -= 1
        if publisher.held == 0:
            self.reading_changes.append(publisher)

    def hold_for_peer(self, peer: Peer, publisher: Publisher, now: float) -> None:
        """The peer's outbox is past its half: the publisher waits, at most publisher_hold_max for one backlog."""
        entry = self.peer_holds.get(peer.name)
        if entry is None:
            entry = (peer, now + self.settings.publisher_hold_max, [])
            self.peer_holds[peer.name] = entry
        elif now >= entry[1] or not entry[2]:
            return
        if publisher not in entry[2]:
            entry[2].append(publisher)
            self.hold(publisher)

    # --- connections and sessions ---

    def assign_client_id(self) -> str:
        """For a client that left it to us [MQTT-3.1.3-6]."""
        while True:
            client_id = f"gmqttd-{self.rng.getrandbits(64):016x}"
            if client_id not in self.sessions:
                return client_id

    def open_session(
        self, connection: Connection, client_id: str, clean_start: bool, expiry_interval: int, now: float
    ) -> tuple[Session, bool]:
        """Session of a client that sends CONNECT, and whether it was there: take-over, resume or new [MQTT5 3.1.4]."""
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            self.counters.sessions_taken_over += 1
            self.close_connection(session.connection, SESSION_TAKEN_OVER, "taken over by a new connection", now)
            session = self.sessions.get(client_id)
        elif session is not None and session.deadline() <= now:
            self.session_expired(session, now)  # the timer would have come within its slot
            session = None
        present = False
        if session is not None and clean_start:
            self.end_session(session, now)
            session = None
        if session is None:
            if len(self.sessions) >= self.settings.max_sessions:
                raise MqttError(
                    QUOTA_EXCEEDED, f"as many sessions as max_sessions allows, {self.settings.max_sessions}"
                )
            session = Session(self, client_id, now)
            self.sessions[client_id] = session
            self.counters.sessions_created += 1
        else:
            present = True
            self.counters.sessions_resumed += 1
            will = session.will
            if will is not None:
                if will.at <= now:
                    will.handle_timeout(now)  # its delay has passed, the timer would have come within its slot
                else:
                    will.cancel()
                    session.will = None
        connection.client_id = client_id
        connection.session = session
        session.username = connection.username
        session.expiry_interval = expiry_interval
        session.attach(connection, now)
        self.timers.schedule(connection)
        return session, present

    def close_connection(self, connection: Connection, reason_code: int, text: str, now: float) -> None:
        """End one connection from our side or after the client's; the shell closes the socket when it sees `closed`."""
        if connection.closed:
            return
        self._write_reason(connection, reason_code, text)
        connection.closed = True
        connection.close_text = text
        connection.pending = None
        connection.pending_size = 0
        connection.topic_aliases = None
        self.timers.cancel(connection)
        self.counters.connections_closed += 1
        connection.call_again()
        session = connection.session
        connection.session = None
        if session is None:
            if reason_code != NO_REASON:  # who only looks whether the port is open was not refused
                self.counters.connections_refused += 1
            return
        will = connection.will
        connection.will = None
        session.detach(now)
        if will is not None:
            pending = PendingWill(self, session, will, now + min(will.delay_interval, session.expiry_interval))
            session.will = pending
            if pending.at <= now:
                pending.handle_timeout(now)
            else:
                self.timers.schedule(pending)
        if session.expiry_interval == 0:
            self.end_session(session, now)

    def _write_reason(self, connection: Connection, reason_code: int, text: str) -> None:
        """CONNACK for a refusal, DISCONNECT in MQTT 5; nothing before CONNECT and nothing for MQTT 3 afterwards."""
        if reason_code < 0 or connection.version == 0:
            return
        if connection.version < 5 and reason_code in (MALFORMED_PACKET, PROTOCOL_ERROR):
            return  # MQTT 3.1.1 answers only what it has a return code for (3.1.4, 4.8)
        properties: dict[int, int | str | bytes | list[tuple[str, str]]] = {}
        if connection.request_problem_information and reason_code != NORMAL_DISCONNECTION:
            properties[REASON_STRING] = text
        if connection.connecting:
            data = encode_packet(
                ConnAck(False, reason_code, properties), connection.version, connection.maximum_packet_size
            )
        elif connection.version == 5 and connection.session is not None:
            data = encode_packet(Disconnect(reason_code, properties), 5, connection.maximum_packet_size)
        else:
            return
        connection.write_packets(data, 1)

    def end_session(self, session: Session, now: float) -> None:
        """The session state goes: its will is due now [MQTT-3.1.2-8], its subscriptions leave the tree. What it was to
        get for a shared group goes to others of the group."""
        will = session.will
        if will is not None:
            will.handle_timeout(now)
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        left_behind = [] if self.shutting_down else take_left_behind(self.router.tree, session, now)
        for full in list(session.subscriptions):
            self._remove_subscription(session, full)
        session.end()
        self.timers.cancel(session)
        self.counters.sessions_terminated += 1
        for group, message in left_behind:
            self.router.deliver_group(group, message, now)

    def session_expired(self, session: Session, now: float) -> None:
        self.counters.sessions_expired += 1
        self.end_session(session, now)

    def close_client(self, client_id: str, end_session: bool, now: float) -> bool:
        """Disconnect a client by hand; False when it is unknown."""
        session = self.sessions.get(client_id)
        if session is None:
            return False
        if session.connection is not None:
            self.close_connection(session.connection, ADMINISTRATIVE_ACTION, "disconnected by an administrator", now)
        if end_session and self.sessions.get(client_id) is session:
            self.end_session(session, now)
        return True

    def shut_down(self, now: float) -> None:
        """Every client is told; wills without delay are published, sessions stay as they are."""
        self.shutting_down = True
        for session in list(self.sessions.values()):
            if session.connection is not None:
                self.close_connection(session.connection, SERVER_SHUTTING_DOWN, "server is shutting down", now)

    # --- publishing ---

    def publish(self, message: Message, now: float) -> bool:
        """The one way for every publish of the server itself: API, wills. Raises MqttError for a bad topic name."""
        self.now = now
        self.router.lookup(message.topic)
        self.counters.count_received(message.qos)
        return self.router.route(message, now)

    def publish_will(self, will: Will, client_id: str, now: float) -> None:
        """Its topic was looked at with the CONNECT; one that new settings no longer allow is dropped, and counted."""
        try:
            self.publish(will_message(will, client_id, now), now)
        except MqttError:
            self.counters.drop(DROP_WILL_REFUSED, 1)
        else:
            self.counters.wills_published += 1

    # --- subscriptions ---

    def subscribe(self, client_id: str, requests: list[SubscribeFilter], identifier: int, now: float) -> list[int]:
        """For the API: reason codes as in SUBACK; KeyError for an unknown client. Retained messages are sent."""
        session = self.sessions[client_id]
        known = self.known_filters(session, requests)
        codes = self.subscribe_session(session, requests, identifier)
        self.send_retained(session, requests, codes, known, now)
        return codes

    def unsubscribe(self, client_id: str, full_filters: list[bytes], now: float) -> list[int]:
        """For the API: reason codes as in UNSUBACK; KeyError for an unknown client."""
        return self.unsubscribe_session(self.sessions[client_id], full_filters)

    def known_filters(self, session: Session, requests: list[SubscribeFilter]) -> list[bool]:
        """Which of the filters are subscribed already, each request after the one before it [MQTT-3.8.4-5]."""
        known: list[bool] = []
        seen: set[bytes] = set()
        for request in requests:
            known.append(request.topic_filter in session.subscriptions or request.topic_filter in seen)
            seen.add(request.topic_filter)
        return known

    def subscribe_session(self, session: Session, requests: list[SubscribeFilter], identifier: int) -> list[int]:
        """Reason codes of SUBACK [MQTT5 3.9.3], one a request."""
        codes: list[int] = []
        for request in requests:
            code = self._subscribe_one(session, request, identifier)
            if code >= 0x80:
                self.counters.subscriptions_refused += 1
                if session.version < 5:
                    code = 0x80  # the only one that MQTT 3.1.1 knows
            codes.append(code)
        return codes

    def _subscribe_one(self, session: Session, request: SubscribeFilter, identifier: int) -> int:
        settings = self.settings
        full = request.topic_filter
        try:
            check_topic_filter(full)
            share_name, topic_filter = parse_filter(full)
        except MqttError:
            return TOPIC_FILTER_INVALID
        if topic_filter.count(b"/") >= settings.max_topic_levels:
            return TOPIC_FILTER_INVALID
        if share_name and not settings.shared_subscription_available:
            return SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        wildcard = has_wildcard(topic_filter)
        if wildcard and not settings.wildcard_subscription_available:
            return WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
        known = session.subscriptions.get(full)
        if known is None and len(session.subscriptions) >= settings.max_subscriptions_per_client:
            return QUOTA_EXCEEDED
        qos = min(request.qos, settings.maximum_qos)
        if known is not None:
            known.qos = qos
            known.no_local = request.no_local
            known.retain_as_published = request.retain_as_published
            known.retain_handling = request.retain_handling
            known.identifier = identifier
            self._forget(topic_filter, wildcard)
            return qos
        subscription = Subscription(
            session,
            share_name,
            topic_filter,
            qos,
            request.no_local,
            request.retain_as_published,
            request.retain_handling,
            identifier,
        )
        session.subscriptions[full] = subscription
        session.subscriptions_total += 1
        self.counters.subscriptions_total += 1
        first = add_subscription(self.router.tree, subscription)
        self._forget(topic_filter, wildcard)
        if first:
            self.forwarder.interest_added(share_name, topic_filter)
        return qos

    def _forget(self, topic_filter: bytes, wildcard: bool) -> None:
        if wildcard:
            self.router.forget_routes()
        else:
            self.router.forget_topic(topic_filter)

    def unsubscribe_session(self, session: Session, full_filters: list[bytes]) -> list[int]:
        """Reason codes of UNSUBACK [MQTT5 3.11.3]."""
        return [
            SUCCESS if self._remove_subscription(session, full) else NO_SUBSCRIPTION_EXISTED for full in full_filters
        ]

    def _remove_subscription(self, session: Session, full: bytes) -> bool:
        subscription = session.subscriptions.pop(full, None)
        if subscription is None:
            return False
        if session.backlog is not None:
            session.backlog.remove(full)
        topic_filter = subscription.topic_filter
        last = remove_subscription(self.router.tree, subscription)
        self._forget(topic_filter, has_wildcard(topic_filter))
        if last:
            self.forwarder.interest_removed(subscription.share_name, topic_filter)
        return True

    def local_interest(self) -> list[tuple[bytes, bytes]]:
        """(share_name, topic_filter) of everything that is subscribed here, each once."""
        return interest(self.router.tree)

    def send_retained(
        self, session: Session, requests: list[SubscribeFilter], codes: list[int], known: list[bool], now: float
    ) -> None:
        """Retained messages for new subscriptions, by Retain Handling [MQTT-3.3.1-9..11]; none for shared ones."""
        for index, request in enumerate(requests):
            if codes[index] >= 0x80:
                continue
            subscription = session.subscriptions.get(request.topic_filter)
            if subscription is None or subscription.share_name:
                continue
            if request.retain_handling == 2 or (request.retain_handling == 1 and known[index]):
                continue
            topic_filter = subscription.topic_filter
            if len(self.retained) == 0 or (not has_wildcard(topic_filter) and self.retained.get(topic_filter) is None):
                continue  # most subscriptions bring nothing
            identifiers = (subscription.identifier,) if subscription.identifier else ()
            without = session.client_id if request.no_local else ""  # [MQTT-3.8.3-3]
            if session.connection is not None:
                walk = RetainedWalk(self.retained, topic_filter)
                portion = Portion(request.topic_filter, walk, subscription.qos, identifiers, without)
                session.deliver_retained(portion, now)
                continue
            for message in self.retained.match(topic_filter, now):
                if not without or message.client_id != without:
                    session.deliver(message, min(subscription.qos, message.qos), True, identifiers, now)
