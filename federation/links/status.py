"""The states of a link, what leads from one to the next, and its status for operators: one frozen row for each link of a node.

event         from                        to
WAIT          not draining                WAITING     the link does not know all filters yet
CONNECT       not draining                CONNECTING
OPENED        CONNECTING                  GREETING    the network connection is open, CONNECT is sent
ACCEPTED      GREETING                    PROVING     CONNACK came: a round trip and the first subscriptions follow
PROVED        PROVING                     RUNNING
REFUSED       a connection                ERROR       until the next try; likewise LOST and FAULT
TAKEN         a connection                BLOCKED     another client has the session
VERSION       a connection                CONNECTING  at once: the upstream has another version of MQTT
NOT_WANTED    anywhere                    IDLE
DRAIN         PROVING, RUNNING            DRAINING    another node runs the link soon
STOP          anywhere                    SHUTDOWN
GIVE_UP       not draining                INVALID     the link cannot run as it is defined

A link that drains does not try again: whatever ends its connection leads to SHUTDOWN.

Times are monotonic seconds of the node (`now` of the cores). A core.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.broker import Broker
from broker.codec.reason_codes import reason_name
from broker.message import NEVER
from broker.metrics.metric import Kind
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import Direction
from federation.links.handshake import End, Note, local_client_id
from federation.links.relay import Relay

ROUND_TRIP_SECONDS_MAX: Final = 30.0
"""Longest age of the upstream's last answer while a link counts as running. A link asks (PINGREQ) in time for it."""
ERROR_CHARS_MAX: Final = 500
"""Most characters of an error text in a status."""
QUEUE: Final = "queue"
"""Why a message is dropped: the queue of a link that pushes had no room, or the message expired there."""

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class LinkState(Enum):
    """The values are what the API and `gmqttctl` show; `next_step` says what ends the state.

    STARTING   the connection, the session or the subscriptions are being made
    RUNNING    the upstream has answered within ROUND_TRIP_SECONDS_MAX
    IDLE       no subscription matches the policies: no session is open
    BLOCKED    another node holds the session, or this node is held
    PAUSED     a federated queue without free local consumers
    DRAINING   the link ends: messages in flight are finished
    SHUTDOWN   stopped with a cause
    ERROR      failed; `last_error` says how
    INVALID    the definition cannot work; no address is tried
    """

    _value_: str
    next_step: str

    def __new__(cls, value: str, next_step: str) -> LinkState:
        state = object.__new__(cls)
        state._value_ = value
        state.next_step = next_step
        return state

    STARTING = "starting", "fails at the deadline unless the upstream answers before"
    RUNNING = "running", "fails at the deadline unless the upstream answers again before"
    IDLE = "idle", "starts when a client subscribes to a topic of the policies"
    BLOCKED = "blocked", "looks again at the deadline"
    PAUSED = "paused", "goes on when a consumer of the queue has credit"
    DRAINING = "draining", "stops when the messages in flight are finished, at the latest at the deadline"
    SHUTDOWN = "shutdown", "starts after a restart of the link or a change of its definition"
    ERROR = "error", "connects again at the deadline"
    INVALID = "invalid", "starts after a change of its definition"


class State(Enum):
    """`shown` is what an operator sees of it."""

    WAITING = auto()
    CONNECTING = auto()
    GREETING = auto()
    PROVING = auto()
    RUNNING = auto()
    DRAINING = auto()
    IDLE = auto()
    ERROR = auto()
    BLOCKED = auto()
    SHUTDOWN = auto()
    INVALID = auto()

    @property
    def shown(self) -> LinkState:
        return LinkState.STARTING if self in STARTING else LinkState[self.name]


class Event(Enum):
    """Those that do not end a connection; the others are End."""

    WAIT = auto()
    CONNECT = auto()
    OPENED = auto()
    ACCEPTED = auto()
    PROVED = auto()
    NOT_WANTED = auto()
    DRAIN = auto()
    STOP = auto()
    GIVE_UP = auto()


STARTING: Final = frozenset({State.WAITING, State.CONNECTING, State.GREETING, State.PROVING})
WITH_CONNECTION: Final = frozenset({State.CONNECTING, State.GREETING, State.PROVING, State.RUNNING, State.DRAINING})
"""States in which the shell has a socket, or opens one."""
STOPPED: Final = frozenset({State.SHUTDOWN, State.INVALID})
"""States that only the owner of the link ends."""

_ANYWHERE: Final[Mapping[Event | End, State]] = {
    Event.WAIT: State.WAITING,
    Event.CONNECT: State.CONNECTING,
    Event.NOT_WANTED: State.IDLE,
    Event.STOP: State.SHUTDOWN,
    Event.GIVE_UP: State.INVALID,
}
_CONNECTED: Final = {
    **_ANYWHERE,
    End.REFUSED: State.ERROR,
    End.LOST: State.ERROR,
    End.FAULT: State.ERROR,
    End.FULL: State.ERROR,
    End.TAKEN: State.BLOCKED,
    End.VERSION: State.CONNECTING,
}
_ENDING: Final = (*End, Event.NOT_WANTED, Event.STOP)

TRANSITIONS: Final[Mapping[State, Mapping[Event | End, State]]] = {
    State.IDLE: _ANYWHERE,
    State.WAITING: _ANYWHERE,
    State.ERROR: _ANYWHERE,
    State.BLOCKED: _ANYWHERE,
    State.SHUTDOWN: _ANYWHERE,
    State.INVALID: _ANYWHERE,
    State.CONNECTING: {**_CONNECTED, Event.OPENED: State.GREETING},
    State.GREETING: {**_CONNECTED, Event.ACCEPTED: State.PROVING},
    State.PROVING: {**_CONNECTED, Event.PROVED: State.RUNNING, Event.DRAIN: State.DRAINING},
    State.RUNNING: {**_CONNECTED, Event.DRAIN: State.DRAINING},
    State.DRAINING: {**dict.fromkeys(_ENDING, State.SHUTDOWN), Event.DRAIN: State.DRAINING},
}


# States in which a link does not carry the messages that are wanted of it. Words, because a newer node may have states that are
# not known here.
_DOWN_STATES: Final = tuple(
    state.value for state in (LinkState.BLOCKED, LinkState.SHUTDOWN, LinkState.ERROR, LinkState.INVALID)
)
DOWN: Final = "down"
"""The word for all of them."""
STATES: Final = (DOWN, *(state.value for state in LinkState))


def has_state(state: str, asked: str) -> bool:
    """Return whether a row with this state is asked for. `asked`: one of STATES, "" for all."""
    return state in _DOWN_STATES if asked == DOWN else asked in ("", state)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link on one node.

    plan              what the definitions say
    since             start of the present state
    changed_at        last change of anything but the figures: state, address, subscriptions, error
    upstream_name     what the link is called at the upstream: its client id; "" for one that does not run yet
    uri               the address that is tried or used, without secrets; "" before the first
    local_connection  client id of the connection to the local broker; "" while there is none
    deadline          when the next step happens at the latest; NEVER: it waits for an event
    next_step         what ends the state; "" for that of the state
    last_error        without secrets; "" for none. error_at: NEVER for none
    answered_at       the upstream's last answer; NEVER before the first
    round_trip_seconds  from the last question to its answer; -1.0 before the first
    lag_seconds       since the oldest message in flight was stored and waits for other nodes (in), or was sent (out); 0.0 for
                      none in flight, -1.0 where it is not known
    waiting           messages that wait for the link and are not in flight; -1 where they wait at the upstream
    oldest_waiting_seconds  since the oldest of them came; 0.0 for none, -1.0 where they wait at the upstream
    in_flight         messages that were received (in) or sent (out) and are not acknowledged
    received          messages that came from the upstream; sent: messages that were pushed to it
    dropped           by reason: of the received ones those that were not published; of those to be pushed those that were not
                      sent, or were refused there
    reconnects        connections after the first; sessions_lost: sessions that the upstream no longer had
    subscriptions     filters that are subscribed at the upstream
    notes             what the upstream grants less than asked, or cannot do
    node, epoch       the owner of the link and its epoch; "" and 0 before one is known
    """

    plan: LinkPlan
    state: LinkState
    since: float
    changed_at: float
    upstream_name: str = ""
    uri: str = ""
    local_connection: str = ""
    deadline: float = NEVER
    next_step: str = ""
    last_error: str = ""
    error_at: float = NEVER
    answered_at: float = NEVER
    round_trip_seconds: float = -1.0
    lag_seconds: float = -1.0
    waiting: int = -1
    oldest_waiting_seconds: float = -1.0
    in_flight: int = 0
    received: int = 0
    sent: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: _NONE)
    reconnects: int = 0
    sessions_lost: int = 0
    subscriptions: int = 0
    notes: tuple[Note, ...] = ()
    node: str = ""
    epoch: int = 0

    @property
    def link_id(self) -> str:
        return self.plan.link_id


class Figure(NamedTuple):
    """A field of LinkStatus that the API and the metrics show. A negative one is not known, and not shown. `is_column`: it is
    one of the table of `gmqttctl links`, too."""

    name: str
    kind: Kind
    text: str
    is_column: bool = False

    @property
    def metric(self) -> str:
        return f"gmqtt_link_{self.name}" + ("_total" if self.kind is Kind.COUNTER else "")


FIGURES: Final = (
    Figure("round_trip_seconds", Kind.GAUGE, "Time from a question to the upstream to its answer, the last time."),
    Figure("lag_seconds", Kind.GAUGE, "Age of the oldest message in flight on a link."),
    Figure("in_flight", Kind.GAUGE, "Messages of a link that are not acknowledged.", True),
    Figure("waiting", Kind.GAUGE, "Messages that wait for a link, where that is known here."),
    Figure(
        "oldest_waiting_seconds",
        Kind.GAUGE,
        "Age of the oldest message that waits for a link, where that is known here.",
    ),
    Figure("subscriptions", Kind.GAUGE, "Filters of a link that are subscribed at the upstream."),
    Figure("epoch", Kind.GAUGE, "Epoch of this node as the owner of a link."),
    Figure("received", Kind.COUNTER, "Messages that a link got from its upstream.", True),
    Figure("sent", Kind.COUNTER, "Messages that a link pushed to its upstream.", True),
    Figure("reconnects", Kind.COUNTER, "Connections of a link after the first."),
    Figure("sessions_lost", Kind.COUNTER, "Sessions of a link that the upstream did not have any more."),
)


def next_step(status: LinkStatus, now: float) -> str:
    """The sentence about what comes next, with the seconds until the deadline."""
    text = status.next_step or status.state.next_step
    if status.deadline == NEVER:
        return text
    return f"{text} (in {max(0.0, status.deadline - now):.1f} s)"


# What follows `=` is a secret where the key says so.
_SECRET_KEY: Final = re.compile(r"(?i)\b(pass(?:word|phrase)?|secret|token)=[^\s&;]+")


def without_secrets(text: str) -> str:
    """The text without user names, passwords and secret query keys of URIs, cut to ERROR_CHARS_MAX characters. Characters that
    would do something to a terminal are escaped.

    An error text may quote an address or what another broker has answered. What follows `://` goes up to the last @ before
    white space, also where a password has characters that a URI must not have.
    """
    words = re.split(r"(\s)", text)
    for index, word in enumerate(words):
        scheme, separator, rest = word.partition("://")
        if separator and "@" in rest:
            words[index] = f"{scheme}://{rest.rpartition('@')[2]}"
    text = _SECRET_KEY.sub(r"\1=***", "".join(words))
    text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text if len(text) <= ERROR_CHARS_MAX else f"{text[: ERROR_CHARS_MAX - 3]}..."


class Totals(NamedTuple):
    """Messages of connections.

    received  from the upstream, with those that were dropped
    sent      to the upstream, with those that it refused
    dropped   by reason, without those that the broker here refused
    """

    received: int = 0
    sent: int = 0
    dropped: Mapping[str, int] = _NONE

    def plus(self, relay: Relay | None) -> Totals:
        """With what this connection has carried."""
        if relay is None:
            return self
        dropped = Counter(self.dropped)
        for code, count in relay.incoming.refused.items():
            dropped[reason_name(code).lower().replace(" ", "_")] += count
        if surplus := relay.surplus():  # of topics that do not belong to the link
            dropped["surplus"] += surplus
        return Totals(self.received + relay.messages_received(), self.sent + relay.messages_sent(), dropped)


def with_figures(row: LinkStatus, relay: Relay | None, broker: Broker) -> LinkStatus:
    """The status with what is on its way. `relay`: None while the link has no connection."""
    if row.plan.upstream.direction is Direction.OUT:
        session = broker.sessions.get(local_client_id(row.plan))
        if session is None:
            return replace(row, waiting=0, oldest_waiting_seconds=0.0, lag_seconds=0.0)
        sent = None if session.inflight is None else session.inflight.first()
        queued = None if session.queue is None else session.queue.first()
        return replace(
            row,
            in_flight=session.inflight_length(),
            lag_seconds=0.0 if sent is None else max(0.0, broker.now - sent.sent_at),
            waiting=session.queue_length(),
            oldest_waiting_seconds=0.0 if queued is None else max(0.0, broker.now - queued.sent_at),
            dropped={QUEUE: session.messages_dropped, **row.dropped} if session.messages_dropped else row.dropped,
        )
    if relay is None:
        return row
    in_flight = relay.in_flight()
    oldest_at = relay.oldest_at()
    if oldest_at != NEVER:
        lag = max(0.0, broker.now - oldest_at)
    else:
        lag = -1.0 if in_flight else 0.0  # when the store's part began is not known
    return replace(row, in_flight=in_flight, lag_seconds=lag)
