"""One link without I/O: its address, its session at the upstream, its state.

Doors: `start`, `send_interest`, `restart`, `stop` from its owner; `connected`, `receive_data`, `connection_lost` from its
shell, each with the number of the attempt; `next_timeout`, `handle_timeout`. After every call the shell looks at `attempt` and
`wants_connection`: another attempt means that its socket is closed, once the output is written. The states are a table
(link_states.py).
"""

from __future__ import annotations

from typing import Final

from broker.codec.packets import MQTT_5, Connect
from broker.message import NEVER
from broker.origin import HeaderError
from federation.definitions.policy import ApplyTo
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import Direction, ResourceCleanupMode
from federation.definitions.uri import LinkUri
from federation.links import handshake
from federation.links.bridging.headers import LinkWelcome
from federation.links.client import CONNACK_SECONDS_MAX, Client
from federation.links.handshake import Accepted, End
from federation.links.interest import Domain
from federation.links.reconnecting import COMPETING, Addresses, Backoff, CompetingSession
from federation.links.relay import NOT_NOW, Effects, Relay
from federation.links.status import (
    ROUND_TRIP_SECONDS_MAX,
    STOPPED,
    TRANSITIONS,
    WITH_CONNECTION,
    Event,
    LinkState,
    LinkStatus,
    State,
    Totals,
    with_figures,
    without_secrets,
)
from federation.links.subscriptions import Subscriptions

CONNECT_SECONDS_MAX: Final = 15.0  # until the network connection is open, unless the URI has connection_timeout
BLOCKED_SECONDS: Final = 30.0
NO_ECHOES: Final = "keep the directions apart with prefixes in `exchange`"
IDLE_SECONDS: Final = 5.0  # without interest, until the session ends: clients that come back find it


class Link:
    """The base of links for topics (topic_link.py) and for queues (queue_link.py).

    plan              what the definitions say
    dropped           messages that came and were not published here, by reason
    relays            what comes in may go on to domains that do not say so: messages need numbers
    epoch             of this node as the owner of the link
    attempt           number of the connection that the shell should have while `wants_connection`
    client_id         client identifier at the upstream
    effects           what its shell is to do
    last_error        why the last connection failed, without secrets; "" for none
    """

    def __init__(self, plan: LinkPlan, relays: bool, domain: Domain, now: float) -> None:
        self.plan = plan
        self.dropped: dict[str, int] = {}
        self.relays = relays
        self.epoch = 0
        self.attempt = 0
        self.effects = Effects(plan.link_id, domain.due)
        self.subscriptions = Subscriptions()
        self._domain = domain
        self._own_id = handshake.client_id_of(plan, domain.name, domain.bridging.home.node_name)
        self.client_id = self._own_id
        self._other_end: bytes | None = None  # domain of an upstream of ours
        self._checks_topics = False  # the broker has ended a connection: maybe for a message that it does not take
        self._broker = domain.broker
        self._addresses = Addresses(plan.upstream.uris, self.client_id, plan.kind == ApplyTo.QUEUES.value)
        self._competing = CompetingSession()
        self._backoff = Backoff(plan.upstream.reconnect_delay, domain.rng)
        self._client: Client | None = None
        self._relay: Relay | None = None
        self._deadline = NEVER  # of the state
        self._idle_at = NEVER
        self._state = State.IDLE
        self._since = now
        self._changed_at = now
        self.last_error = ""
        self._error_at = NEVER
        self._notes: tuple[handshake.Note, ...] = ()
        self._last_output: dict[int, bytes] = {}  # by attempt: of the last connection that is over
        self._totals = Totals()  # of earlier connections
        self._connects = 0

    # --- what the owner asks ---

    @property
    def state(self) -> LinkState:
        return self._state.shown

    @property
    def wants_connection(self) -> bool:
        return self._state in WITH_CONNECTION

    @property
    def notes(self) -> tuple[handshake.Note, ...]:
        """Return what the upstream grants less than asked."""
        return (*self._notes, *handshake.refusals(self.subscriptions.refused))

    @property
    def address(self) -> LinkUri:
        """Return where the shell connects to."""
        return self._addresses.current

    def follow(self, before: Link) -> None:
        """Before `start`: the definition of the link was another one. It goes on with its session."""
        if before._own_id == self._own_id:
            self.client_id = before.client_id
            self._addresses.follow(before._addresses)
            self.subscriptions.follow(before.subscriptions)

    def start(self, now: float) -> None:
        """Run from now on: at once where it needs a session, or where one is left that is to be ended."""
        if self.plan.error:
            self._give_up(self.plan.error, now)
            return
        self._take_interest()
        if self._needs_session() or self._addresses.has_own_session():
            self._connect(now)
        else:
            self._move(Event.NOT_WANTED, NEVER, now)

    def send_interest(self, now: float) -> None:
        """Tell the upstream what `interest` has changed."""
        if self._take_interest():
            self._interest_changed(now)

    def _interest_changed(self, now: float) -> None:
        self._changed_at = now
        if self._state in STOPPED:
            return
        if not self._needs_session():
            self._idle_at = min(self._idle_at, now + IDLE_SECONDS)
        else:
            self._idle_at = NEVER
            if self._state is State.IDLE:
                self._connect(now)
        if self._client is not None:
            self._client.send_subscriptions(now)
        self.effects.move()

    def restart(self, now: float) -> None:
        """Connect anew, without a delay."""
        self._backoff.reset()
        self._drop("restarted", False, now)
        self.start(now)

    def stop(self, reason: str, ends_link: bool, now: float) -> None:
        """Close the connection. The session stays at the upstream, unless the link ends and resource-cleanup-mode says so."""
        cleans = self.plan.upstream.resource_cleanup_mode is ResourceCleanupMode.DEFAULT
        self._drop(reason, ends_link and cleans, now)
        self._move(Event.STOP, NEVER, now)

    def drain(self, deadline: float, now: float) -> None:
        """Take nothing new from the upstream; push what waits for it."""
        if self._relay is None:
            self.stop("this node runs the link no longer", False, now)
            return
        self._move(Event.DRAIN, deadline, now)

    def is_drained(self) -> bool:
        """After `drain`, at the end of a turn: whether nothing is in flight."""
        return self._relay is None or self._relay.is_drained()

    def _give_up(self, fault: str, now: float) -> None:
        """The link cannot run as it is defined."""
        self.last_error = fault
        self._error_at = now
        self._move(Event.GIVE_UP, NEVER, now)

    # --- what the kind of a link decides

    def _needs_session(self) -> bool:
        """Return whether the link needs a session at the upstream."""
        raise AssertionError("a subclass implements this")

    def _take_interest(self) -> bool:
        """True when the filters have changed."""
        raise AssertionError("a subclass implements this")

    def _subscription_options(self) -> tuple[int, bool]:
        """Return the QoS of subscriptions, and whether they are for retained messages, too."""
        raise AssertionError("a subclass implements this")

    def _begin_session(self, welcome: LinkWelcome | None, is_present: bool, now: float) -> bool:
        """The upstream has accepted the link, and has its earlier session or not. False where the link ends the connection."""
        raise AssertionError("a subclass implements this")

    def _made_relay(self, client: Client, accepted: Accepted, connect: Connect, now: float) -> Relay:
        """The local connection."""
        raise AssertionError("a subclass implements this")

    # --- what the shell reports ---

    def connected(self, attempt: int, now: float) -> None:
        """The network connection of this attempt is open."""
        if attempt != self.attempt or self._state is not State.CONNECTING:
            return
        upstream = self.plan.upstream
        bytes_max = self._broker.max_packet_size
        header = handshake.header_of(upstream, self._domain.name, self.relays, self.epoch)
        connect = handshake.upstream_connect(
            upstream, self.address, self.client_id, self._addresses.version.current, bytes_max, header
        )
        # connection_timeout is for all of the attempt: what the network has left of it is for CONNACK.
        left = CONNACK_SECONDS_MAX if self.address.connection_timeout is None else max(0.0, self._deadline - now)
        qos, retain = self._subscription_options()
        client = self._client = Client(connect, self.subscriptions, qos, retain, bytes_max, now, left)
        self._move(Event.OPENED, client.next_timeout(), now)

    def receive_data(self, attempt: int, data: bytes, now: float) -> None:
        """The upstream has sent this."""
        client = self._client
        if attempt != self.attempt or client is None:
            return
        client.receive_data(data, now)
        relay = self._relay
        if relay is not None:
            relay.pass_in(now)
        if client.has_news:
            self._handle_news(client, now)

    def connection_lost(self, attempt: int, reason: str, now: float, says_why: bool = False) -> None:
        """The network connection of this attempt failed or ended. `says_why`: the other end has said so."""
        if attempt != self.attempt or not self.wants_connection:
            return
        client = self._client
        if client is None:
            self._fail(End.LOST, reason, now)
            return
        if client.received_bytes == 0 and not says_why:
            reason += " before CONNACK"
            self._addresses.version.unanswered()
        client.connection_lost(reason)
        self._handle_news(client, now)

    def set_writable(self, attempt: int, is_writable: bool, now: float) -> None:
        """The network takes more, or does not."""
        if attempt == self.attempt and self._relay is not None:
            self._relay.set_writable(is_writable, now)

    def release(self) -> None:
        """Other nodes may have acknowledged events by now, for which acknowledgements to the upstream wait."""
        if self._relay is not None:
            self._relay.release()

    def take_output(self, attempt: int) -> bytes:
        """The bytes for the upstream on the connection of an attempt; of one that is over the last ones."""
        if attempt == self.attempt:
            return b"" if self._client is None else self._client.take_output()
        return self._last_output.pop(attempt, b"")

    def holds_upstream(self) -> bool:
        """Return whether the upstream is not to be read now."""
        relay = self._relay
        is_in = self.plan.upstream.direction is Direction.IN  # the acknowledgements of what is pushed come in
        return relay is not None and (relay.is_held() or (is_in and self._state is State.DRAINING))

    def settle(self, now: float) -> None:
        """The end of a turn, in which the broker may have ended the local connection."""
        reason, self.effects.local_end = self.effects.local_end, ""
        if reason and self._relay is not None:
            self._checks_topics = True
            end = End.FULL if reason in NOT_NOW else End.FAULT
            self._hang_up(end, f"the broker ends the local connection: {reason}", now)

    # --- time ---

    def next_timeout(self) -> float:
        at = min(self._deadline, self._idle_at)
        return at if self._client is None else min(at, self._client.next_timeout())

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        client = self._client
        if client is not None and now >= client.next_timeout():
            client.handle_timeout(now)
            self._handle_news(client, now)
        if now >= self._idle_at:
            self._become_idle(now)
        if now < self._deadline:
            return
        if self._state in (State.ERROR, State.BLOCKED):
            self._connect(now)
        elif self._state is State.CONNECTING:
            self._fail(End.LOST, "the network connection is not open in time", now)
        else:
            self._deadline = NEVER  # that of the client, or of the owner that drains the link, is as early

    # --- the connection ---

    def _connect(self, now: float) -> None:
        self._idle_at = NEVER if self._needs_session() else now + IDLE_SECONDS
        self.attempt += 1
        seconds = self.address.connection_timeout or CONNECT_SECONDS_MAX
        self._move(Event.CONNECT, now + seconds, now)

    def _handle_news(self, client: Client, now: float) -> None:
        if client.accepted is not None and self._state is State.GREETING:
            self._accepted(client, client.accepted, now)
            if self._client is not client:
                return
        if client.ended is not None:  # maybe by what came with CONNACK
            if client.ended.end is End.VERSION:
                self._addresses.version.refused()
            self._fail(*client.ended, now)
            return
        client.has_news = False
        self._prove(now)
        self.effects.note()

    def _accepted(self, client: Client, accepted: Accepted, now: float) -> None:
        self._move(Event.ACCEPTED, self._deadline, now)
        was_ours = self._addresses.has_own_session()
        self._addresses.accepted(accepted.session_present)
        if not self._addresses.version.accepted():
            self._drop("the upstream may have MQTT 5", False, now)
            self._connect(now)
            return
        self._connects += 1
        try:
            welcome = handshake.welcome_of(accepted)
        except HeaderError as error:
            self._hang_up(End.FAULT, f"the header in CONNACK cannot be read: {error.text}", now)
            return
        if self.plan.echo and client.version != MQTT_5:
            self._addresses.forget_session()
            self._addresses.version.refused()  # it may get MQTT 5
            self._hang_up(End.FAULT, f"{self.plan.echo}, and a broker without MQTT 5 does not say so; {NO_ECHOES}", now)
            return
        self._notes = handshake.notes_on(self.plan.upstream, client.version, accepted, welcome)
        if self._begin_session(welcome, accepted.session_present and was_ours, now):
            self._open_relay(client, accepted, now)
            client.send_subscriptions(now)

    def _open_relay(self, client: Client, accepted: Accepted, now: float) -> None:
        connect = handshake.local_connect(self.plan, client.version, accepted)
        relay = self._relay = self._made_relay(client, accepted, connect, now)
        client.receive_data(b"", now)
        relay.pass_in(now)

    def _prove(self, now: float) -> None:
        """RUNNING needs a round trip, and the answers to the first subscriptions."""
        client = self._client
        if client is None or client.accepted is None:
            return
        if self._state is State.PROVING:
            if client.round_trip >= 0 and self.subscriptions.has_begun():
                self.last_error = ""
                self._error_at = NEVER
                self._move(Event.PROVED, client.answered_at + ROUND_TRIP_SECONDS_MAX, now)
            else:
                self._deadline = NEVER  # that of the client counts
        elif self._state is State.RUNNING:
            self._deadline = client.answered_at + ROUND_TRIP_SECONDS_MAX
        if self._relay is not None:
            self._relay.ping(now)

    def _become_idle(self, now: float) -> None:
        """There is no interest: no session stays open. One at an upstream that is away would collect messages, so the link
        tries on until it has ended that, unless another node has it."""
        cleans = self.plan.upstream.resource_cleanup_mode is ResourceCleanupMode.DEFAULT
        # Without an answer to the last UNSUBSCRIBE the connection may be dead, and the end of the session lost with it.
        is_away = self._client is None or self._client.accepted is None or not self.subscriptions.is_settled()
        if cleans and is_away and self._addresses.has_session() and self._state is not State.BLOCKED:
            self._idle_at = now + IDLE_SECONDS
            return
        self._idle_at = NEVER
        self._drop("no subscription matches", cleans, now)
        self._move(Event.NOT_WANTED, NEVER, now)

    def _drop(self, reason: str, ends_session: bool, now: float) -> None:
        """Close the connection, if there is one."""
        client = self._client
        if client is not None and not client.is_closed:
            if ends_session:
                self._addresses.forget_session()
            client.close(ends_session)
        self._end_connection(reason, now)

    def _hang_up(self, end: End, reason: str, now: float, ends_session: bool = False) -> None:
        """Close a connection that works, for this reason."""
        if self._client is not None:
            self._client.close(ends_session)
        self._fail(end, reason, now)

    def _fail(self, end: End, reason: str, now: float) -> None:
        ran_for = now - self._since if self._state is State.RUNNING else 0.0
        accepted = None if self._client is None else self._client.accepted
        is_resumed = accepted is not None and accepted.session_present
        if self._competing.has_session(end, is_resumed, ran_for) and self._other_end is None:
            end = End.TAKEN
            reason = f"{reason}; {COMPETING}"
        if end is End.VERSION and self._addresses.version.current == MQTT_5:
            end = End.REFUSED  # the upstream has neither version
        self._end_connection(reason, now)
        self.last_error = without_secrets(reason)
        self._error_at = now
        state = TRANSITIONS[self._state][end]
        if state is State.CONNECTING:
            self._connect(now)
            return
        if state is State.ERROR and self._addresses.next(now):
            self.last_error += "; its session is lost"
        deadline = NEVER
        if state in (State.ERROR, State.BLOCKED):
            delay = self._backoff.delay(end, ran_for)
            deadline = now + (max(delay, BLOCKED_SECONDS) if state is State.BLOCKED else delay)
        self._move(end, deadline, now)

    def _end_connection(self, reason: str, now: float) -> None:
        client, self._client = self._client, None
        relay, self._relay = self._relay, None
        if client is not None:
            self._last_output = {self.attempt: client.take_output()}
        self.attempt += 1
        if relay is not None:
            relay.close(reason, now)
            self._totals = self._totals.plus(relay)
        if client is not None and client.accepted is not None:
            self._addresses.version.ended()
            granted = client.accepted.session_expiry
            self._addresses.lost(handshake.expiry_of(self.plan.upstream) if granted < 0 else granted, now)

    def _move(self, event: Event | End, deadline: float, now: float) -> None:
        before = self._state
        self._state = TRANSITIONS[before][event]
        self._deadline = deadline
        if self._state in STOPPED:
            self._idle_at = NEVER
        if self._state.shown is not before.shown:
            self._since = now
            self._changed_at = now
        self.effects.move()

    # --- status ---

    def status(self, now: float) -> LinkStatus:
        client = self._client
        relay = self._relay
        totals = self._totals.plus(relay)
        row = LinkStatus(
            self.plan,
            self.state,
            self._since,
            self._changed_at,
            upstream_name=self.client_id,
            uri=self.address.redacted() if self.attempt else "",
            local_connection="" if relay is None else relay.connection.client_id,
            deadline=self._deadline,
            last_error=self.last_error,
            error_at=self._error_at,
            answered_at=NEVER if client is None else client.answered_at,
            round_trip_seconds=-1.0 if client is None else client.round_trip,
            received=totals.received,
            sent=totals.sent,
            dropped={**totals.dropped, **self.dropped},
            reconnects=max(0, self._connects - 1),
            sessions_lost=self._addresses.sessions_lost,
            subscriptions=self.subscriptions.there(),
            notes=self.notes,
            node=self._domain.bridging.home.node_name,
            epoch=self.epoch,
        )
        return with_figures(row, relay, self._broker)
