"""The core of one node: sessions by client id, connections, subscriptions, wills, retained messages.

Five doors (docs/architecture.md): input comes by a connection's `receive_data`; `take_dirty` and `take_reading_changes`
tell the shell what to do; `next_timeout`, `handle_timeout` and `go_on` are the clock.
"""

# compiled with mypyc
from __future__ import annotations

import random
from typing import Final, cast

from broker.bridge_end import NOTHING_ALONG, limits_of
from broker.codec.packets import SubscribeFilter, Will
from broker.codec.reason_codes import (
    ADMINISTRATIVE_ACTION,
    NO_SUBSCRIPTION_EXISTED,
    QUOTA_EXCEEDED,
    SERVER_SHUTTING_DOWN,
    SERVER_UNAVAILABLE,
    SESSION_TAKEN_OVER,
    SUCCESS,
    reason_name,
)
from broker.config.settings_mqtt import MqttSettings
from broker.context import NO_STORE, Context
from broker.counters import DROP_WILL_REFUSED
from broker.errors import MqttError
from broker.hooks import SESSION_ENDED, SESSION_EXPIRED, SESSION_REPLACED
from broker.memory_limit import MEMORY_FREE, MEMORY_FULL
from broker.message import NEVER, Message
from broker.origin import NAME
from broker.publisher import Publisher
from broker.routing.interest import note_added, note_changed, note_removed, tell_members
from broker.routing.names import FEED_PREFIX, has_wildcard
from broker.routing.router import Router
from broker.routing.shared import SharedGroup
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription, add_subscription, interest, remove_subscription
from broker.session.answers import write_reason
from broker.session.brought import bring_retained
from broker.session.commits import Commits
from broker.session.draining import drain, give_back, join_groups, leave_group, redeliver_all
from broker.session.durable import attach_records, end_records, note_change, note_subscription, note_unsubscribed
from broker.session.fed import is_fed
from broker.session.feeding import begin_feed
from broker.session.filter_work import FilterWork
from broker.session.left_behind import take_left_behind
from broker.session.output import CLOSED, CONNECTING, Output
from broker.session.session import Session
from broker.session.subscribable import judge_filter
from broker.session.will import PendingWill, judged_will, take_will
from broker.store.journal import Journal
from broker.wrappers import SubscribeRequest

NO_REASON: Final = -1  # close without a DISCONNECT or CONNACK
MEMORY_IS_FULL: Final = "the memory of the node is above max_memory"
SUBSCRIPTION_STEPS: Final = 8  # steps of a slice for adding or removing a subscription


class Broker(Context):
    """The broker of one node.

    sessions         by client id
    connecting       connections whose CONNECT is not decided yet, at most max_connections
    """

    def __init__(self, settings: MqttSettings, rng: random.Random, now: float) -> None:
        super().__init__(settings, rng, now)
        self.router = Router(self)
        self.commits = Commits()
        self.sessions: dict[str, Session] = {}
        self.connecting: dict[Output, None] = {}
        self.shutting_down = False

    def apply_settings(self, settings: MqttSettings) -> None:
        """Take over new settings while the node runs."""
        self.take_limits(settings)
        tell_members(self, self.router.tree)
        for session in self.sessions.values():
            session.take_limits(settings)
        self.router.forget_routes()

    # --- the shell's doors ---

    def connection_lost(self, connection: Output, now: float) -> None:
        """The network connection has ended. A second call does nothing. All that end in one turn share its slice."""
        self.close_connection(connection, NO_REASON, "connection lost", now)

    def connection_writable(self, connection: Output, now: float) -> None:
        """The transport has room again: send queued messages."""
        session = self.session_of(connection)
        connection.writable = session is None or connection.phase is not CONNECTING  # messages wait for CONNACK
        connection.stalled_bytes = 0
        self.now = now
        if connection.output_held:
            connection.output_held = False
            self.release(connection)
        if session is not None:
            session.pump(now)
            self.drain_groups(session.queued_groups)

    def session_of(self, connection: Output) -> Session | None:
        """The session of the connection; None before CONNECT is accepted and after the close."""
        session = self.sessions.get(connection.client_id)
        return session if session is not None and session.connection is connection else None

    def next_timeout(self) -> float | None:
        """Return when to call `handle_timeout`; None without deadlines."""
        at = self.timers.next_timeout()
        look_at = self.next_peer_timeout()
        if look_at == NEVER or (at is not None and at <= look_at):
            return at
        return look_at

    def handle_timeout(self, now: float) -> None:
        """Handle what is due: Keep Alive, expiries, will delays, holds."""
        self.now = now
        self.slices.begin()
        self.timers.handle_timeout(now)
        self.release_for_peers(now)
        self.retained.expire(now)

    def go_on(self, now: float) -> None:
        """Do one slice of queued work. The shell calls it once in each turn while `slices` has work."""
        self.now = now
        self.slices.go_on(now)

    def set_journal(self, journal: Journal) -> None:
        """From now on durable state is told to the journal. The sessions that a store holds are restored."""
        self.commits.journal = self.retained.journal = journal

    def write_after_commit(self, connection: Publisher, data: bytes) -> None:
        self.commits.write_stored(cast(Output, connection), data)

    def begun_commit(self) -> int:
        return NO_STORE if self.commits.journal is None else self.commits.begun()

    def is_committed(self, number: int) -> bool:
        return self.commits.is_finished(number)

    # --- connections and sessions ---

    def has_room(self) -> bool:
        """Return whether a client with a new session would be let in."""
        is_stored = not self.commits.takes_nothing()
        return is_stored and self.memory_level == MEMORY_FREE and len(self.sessions) < self.settings.max_sessions

    def open_session(
        self, connection: Output, client_id: str, clean_start: bool, expiry_interval: int, now: float
    ) -> tuple[Session, bool]:
        """(session, Session Present) for a CONNECT: take over, resume or create the session [MQTT5 3.1.4]."""
        if self.shutting_down:
            raise MqttError(SERVER_UNAVAILABLE, "server is shutting down")
        session = self.sessions.get(client_id)
        if (
            session is None
            and self.memory_level > MEMORY_FREE
            and not (connection.listener.is_own or connection.listener.is_node)
        ):
            self.counters.sessions_without_memory += 1
            raise MqttError(QUOTA_EXCEEDED, MEMORY_IS_FULL)
        if session is not None and session.connection is not None:
            self.counters.connections_taken_over += 1
            self.close_connection(session.connection, SESSION_TAKEN_OVER, "taken over by a new connection", now)
            session = self.sessions.get(client_id)
        elif session is not None and session.deadline() <= now:
            self.session_expired(client_id, now)  # its timer is due within the slot
            session = None
        present = False
        if session is not None and clean_start:
            self.counters.sessions_replaced += 1
            self.end_session(session, now, SESSION_REPLACED)
            session = None
        if session is None:
            if len(self.sessions) >= self.settings.max_sessions:
                raise MqttError(QUOTA_EXCEEDED, f"max_sessions, {self.settings.max_sessions}, is reached")
            session = Session(self, client_id, now)
            session.is_new = True
            self.sessions[client_id] = session
            self.counters.sessions_created += 1
        else:
            present = not session.is_new
            self.counters.sessions_resumed += 1
            will = session.will
            if will is not None:
                if will.at <= now:
                    will.handle_timeout(now)  # its timer is due within the slot
                else:
                    will.cancel()
                    session.will = None
        connection.client_id = client_id
        self.identify(session, connection)
        session.expiry_interval = expiry_interval
        session.attach(connection, now)
        self.counters.clients_connected += 1
        connection.listener.clients[connection.version] += 1
        if self.commits.journal is not None:
            attach_records(session, self.commits.journal)
        observer = self.observer
        if observer is not None:
            observer.session_opened(client_id, present)
            observer.client_connected(
                client_id, connection.remote_addr, connection.version, connection.username, connection.keep_alive
            )
        return session, present

    def identify(self, session: Session, connection: Output) -> None:
        """The connection's client was authenticated: routes and interest follow where its access, or the broker at its other
        end, may have changed."""
        connection.allowed_number = -1
        has_other_access = session.identify(connection.username, connection.remote_addr, connection.access)
        has_other_end = session.set_bridge_end(connection.bridge_end)
        if session.subscriptions and (has_other_end or (has_other_access and self.authorization is not None)):
            self.router.forget_routes()
        if has_other_end:
            for subscription in session.subscriptions.values():
                note_changed(self, self.router.tree, subscription)

    def close_connection(self, connection: Output, reason_code: int, text: str, now: float) -> None:
        """End one connection. The shell closes the socket when it sees `closed`."""
        if connection.phase is CLOSED:
            return
        session = self.session_of(connection)
        if session is not None and connection.phase is CONNECTING and reason_code != NO_REASON:
            reason_code = SERVER_UNAVAILABLE  # CONNACK waits for the store, and has no code for a session that moves on
        write_reason(connection, reason_code, text)
        connection.close(text)
        observer = self.observer
        self.connecting.pop(connection, None)
        if session is None:
            if reason_code != NO_REASON:  # a port scan is not a refused client
                self.counters.connections_refused += 1
                if observer is not None:
                    observer.client_refused(connection.client_id, connection.remote_addr, connection.username, text)
            return
        self.counters.clients_disconnected += 1
        connection.listener.clients[connection.version] -= 1
        if observer is not None:
            observer.client_disconnected(connection.client_id, connection.remote_addr, text)
        will = take_will(connection, self.commits.journal)
        session.detach(now)
        give_back(self.router, session, now)
        if will is not None:
            at = now + min(will.delay_interval, session.expiry_interval)
            pending = session.will = PendingWill(self, session, will, at)
            if pending.at <= now:
                pending.handle_timeout(now)
            else:
                self.timers.schedule(pending)
        note_change(session)
        if session.expiry_interval == 0:
            self.end_session(session, now)

    def end_session(self, session: Session, now: float, reason: str = SESSION_ENDED) -> None:
        """Delete the session state. The will is published [MQTT-3.1.2-8], the subscriptions are removed, and queued messages
        of shared groups go to other members."""
        will = session.will
        if will is not None:
            will.handle_timeout(now)
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            if self.ownership is not None:
                self.ownership.ended(session)
        left_behind = [] if self.shutting_down else take_left_behind(self.router.tree, session, now)
        end_records(session)
        session.end()
        self.timers.cancel(session)
        self.counters.sessions_terminated += 1
        for full, subscription in list(session.subscriptions.items()):
            if subscription.share_name:  # at once, so that the group chooses no member that has ended
                self.unsubscribe_one(session, full)
        self.unsubscribe_all(session, now)
        redeliver_all(self.router, left_behind, now)
        if self.observer is not None:
            self.observer.session_terminated(session.client_id, reason)

    def session_expired(self, client_id: str, now: float) -> None:
        session = self.sessions.get(client_id)
        if session is not None and session.deadline() <= now:  # it may be another one than that of the timer
            self.counters.sessions_expired += 1
            self.end_session(session, now, SESSION_EXPIRED)

    def close_client(self, client_id: str, end_session: bool, now: float) -> bool:
        """Disconnect a client for the API. False when the client id is unknown."""
        session = self.sessions.get(client_id)
        if session is None:
            return False
        if session.connection is not None:
            self.close_connection(session.connection, ADMINISTRATIVE_ACTION, "disconnected by an administrator", now)
        if end_session and self.sessions.get(client_id) is session:
            self.end_session(session, now)
        return True

    def shut_down(self, now: float) -> None:
        """Disconnect every client, but no connection of the node itself: a plugin ends those. Wills without delay are
        published; sessions stay as they are."""
        self.shutting_down = True
        for connection in list(self.connecting):
            self.close_connection(connection, SERVER_UNAVAILABLE, "server is shutting down", now)
        for session in list(self.sessions.values()):
            if session.connection is not None and not session.connection.listener.is_own:
                self.close_connection(session.connection, SERVER_SHUTTING_DOWN, "server is shutting down", now)

    # --- publishing ---

    def publish(self, message: Message, now: float, publisher: Publisher | None = None) -> int:
        """Publish a message of the server itself: API, wills, plugins, whose `publisher` may be held. Returns the reason code
        of `Router.route`. Raises MqttError for an invalid topic name, and when the tap or the memory is full."""
        self.now = now
        if message.properties and NAME in message.properties:
            message.properties = self.stripped(message.properties)
        route = self.router.lookup(message.topic)
        if self.tap is not None and self.tap.refuses(message.topic):
            raise MqttError(QUOTA_EXCEEDED, "the event log has no room")
        if message.qos and self.memory_level == MEMORY_FULL:
            self.counters.publishes_without_memory += 1
            raise MqttError(QUOTA_EXCEEDED, MEMORY_IS_FULL)
        self.counters.count_received(message.qos)
        return self.router.route(route, message, publisher, now)

    def publish_will(self, will: Will, session: Subscriber, now: float) -> None:
        """Publish a will. Drop and count it when the client may not publish to the topic, or when the settings no longer allow
        the topic that CONNECT had."""
        owner = cast(Session, session)
        pending = owner.will
        if pending is not None and pending.will is will:
            owner.will = None
            note_change(owner)
            pending.forget(self.commits.journal)
        message = judged_will(self, session, will, now)
        if message is None:
            return
        try:
            self.publish(message, now)
        except MqttError:
            self.counters.drop_for_client(DROP_WILL_REFUSED, 1, will.qos, session.client_id)
            return
        self.counters.wills_published += 1
        if self.observer is not None:
            self.observer.will_published(session.client_id, message)

    # --- who may do what ---

    def authorization_changed(self) -> None:
        super().authorization_changed()
        self.router.forget_routes()

    # --- subscriptions ---

    def subscribe(self, client_id: str, requests: list[SubscribeFilter], identifier: int, now: float) -> list[int]:
        """Subscribe for the API. Returns the reason codes of SUBACK; KeyError for an unknown client. Sends retained
        messages."""
        session = self.sessions[client_id]
        codes = [self.subscribe_one(session, request, identifier) for request in requests]
        session.pump(now)
        return codes

    def unsubscribe(self, client_id: str, full_filters: list[bytes], now: float) -> list[int]:
        """Unsubscribe for the API. Returns the reason codes of UNSUBACK; KeyError for an unknown client."""
        session = self.sessions[client_id]
        return [self.unsubscribe_one(session, full) for full in full_filters]

    def subscribe_one(
        self, session: Session, request: SubscribeFilter, identifier: int, along: tuple[bytes, ...] = NOTHING_ALONG
    ) -> int:
        """Add one filter of a SUBSCRIBE. Returns its reason code [MQTT5 3.9.3]. `along` as in Subscription."""
        self.refusal = ""
        code = self._subscribe_one(session, request, identifier, along)
        if code >= 0x80:
            self.counters.subscriptions_refused += 1
            if self.observer is not None:
                reason = self.refusal or reason_name(code)
                self.observer.subscription_refused(session.client_id, request.topic_filter, reason)
            if session.version < 5:
                code = 0x80  # the only error code of MQTT 3.1.1
        return code

    def _subscribe_one(
        self, session: Session, request: SubscribeFilter, identifier: int, along: tuple[bytes, ...]
    ) -> int:
        settings = self.settings
        if self.subscribing is not None:
            wrapped = SubscribeRequest(session.identity(), request, identifier)
            if not self.subscribing.run(wrapped):
                return wrapped.reason_code
            request = wrapped.filter
        full = request.topic_filter
        known = session.subscriptions.get(full)
        share_name = b""
        topic_filter = full
        position = b""
        if full.startswith(FEED_PREFIX):
            code, position, self.refusal = begin_feed(self, session, request, known)
        else:
            code, share_name, topic_filter = judge_filter(self, session, full)
        if code:
            return code
        if known is None and len(session.subscriptions) >= limits_of(settings, session.bridge_end).subscriptions:
            return QUOTA_EXCEEDED
        self.slices.steps += SUBSCRIPTION_STEPS
        qos = min(request.qos, settings.maximum_qos)
        if known is not None:
            known.take_options(request, qos, identifier)
            if known.along != along:
                known.along = along
                note_changed(self, self.router.tree, known)
            if position != known.current_position():
                session.made_fed().place(self, known, position)
            note_subscription(session, known)
            self.router.forget_filter(topic_filter, has_wildcard(topic_filter))
        else:
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
            subscription.along = along
            subscription.position = position
            self.insert_subscription(session, full, subscription)
            note_subscription(session, subscription)
        if self.observer is not None:
            self.observer.subscribed(session.client_id, full, qos)
        if not share_name and not position:
            bring_retained(self, session, request, topic_filter, qos, identifier, known is None)
        return qos

    def insert_subscription(self, session: Session, full: bytes, subscription: Subscription) -> None:
        """Add a new subscription. Other nodes are told of the first one of a filter."""
        session.subscriptions[full] = subscription
        session.subscriptions_total += 1
        self.counters.subscriptions_total += 1
        self.counters.subscriptions += 1
        if is_fed(subscription):
            session.made_fed().add(self, subscription)
            return
        topic_filter = subscription.topic_filter
        first = add_subscription(self.router.tree, subscription)
        self.router.forget_filter(topic_filter, has_wildcard(topic_filter))
        note_added(self, self.router.tree, subscription, first)
        join_groups(self.router, session, self.commits.journal, self.now)

    def drain_groups(self, groups: dict[SharedGroup, None] | None) -> None:
        for group in list(groups or ()):
            drain(self.router, group, self.now)

    def unsubscribe_one(self, session: Session, full: bytes) -> int:
        """Remove one filter of an UNSUBSCRIBE. Returns its reason code [MQTT5 3.11.3]."""
        subscription = session.subscriptions.pop(full, None)
        if subscription is None:
            return NO_SUBSCRIPTION_EXISTED
        self.counters.subscriptions -= 1
        self.slices.steps += SUBSCRIPTION_STEPS
        leave_group(session, full, subscription)
        note_unsubscribed(session, subscription)
        if is_fed(subscription):
            subscription.stop_feed()
            session.made_fed().remove(full)
        else:
            if session.backlog is not None:
                session.backlog.remove(full)
            topic_filter = subscription.topic_filter
            last = remove_subscription(self.router.tree, subscription)
            self.router.forget_filter(topic_filter, has_wildcard(topic_filter))
            note_removed(self, self.router.tree, subscription, last)
        if self.observer is not None:
            self.observer.unsubscribed(session.client_id, full)
        return SUCCESS

    def unsubscribe_all(self, session: Session, now: float) -> None:
        """Remove the subscriptions of a session that has ended, in later turns where there are many."""
        removal = Unsubscribing(self, session, list(session.subscriptions))
        if not removal.go_on(now):
            self.slices.later(removal)

    def local_interest(self) -> list[tuple[bytes, bytes]]:
        """(share_name, topic_filter) of all subscriptions on this node, each once."""
        return interest(self.router.tree)


class Unsubscribing(FilterWork):
    """Removes filters of one session."""

    def __init__(self, broker: Broker, session: Session, full_filters: list[bytes]) -> None:
        super().__init__(broker.slices, session, len(full_filters))
        self.broker = broker
        self.full_filters = full_filters

    def handle(self, index: int) -> int:
        return self.broker.unsubscribe_one(self.session, self.full_filters[index])
