"""The status of a link for operators: one frozen row for each link of a node.

state      evidence                                                          ends
STARTING   the connection, the session or the subscriptions are being made   running, or error at the deadline
RUNNING    an answer of the upstream within ROUND_TRIP_SECONDS_MAX           error at the deadline, unless a newer answer comes
IDLE       no subscription matches the policies: no session is open          starting, with the first subscription
BLOCKED    another node holds the session, or this node is held              starting or running; looks again at the deadline
PAUSED     a federated queue without free local consumers                    running, as soon as a consumer has room
DRAINING   the link ends: messages in flight are finished                    shutdown, at the latest at the deadline
SHUTDOWN   stopped with a cause                                              starting, after a change or a restart of the link
ERROR      failed; `last_error` says how                                     starting at the deadline
INVALID    the definition cannot work; no address is tried                   starting, after a change of the definition

Times are monotonic seconds of the node (`now` of the cores). A core."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.broker import Broker
from broker.codec.reason_codes import reason_name
from broker.message import NEVER
from broker.metrics.metric import Kind
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import Direction
from federation.links.handshake import local_client_id
from federation.links.relay import Relay

ROUND_TRIP_SECONDS_MAX: Final = 30.0
"""Longest age of the upstream's last answer while a link counts as running. A link asks (PINGREQ) in time for it."""
ERROR_CHARS_MAX: Final = 500
"""Most characters of an error text in a status."""

_NONE: Final[Mapping[str, int]] = MappingProxyType({})


class LinkState(Enum):
    """The table above. The values are what the API and `gmqttctl` show."""

    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    BLOCKED = "blocked"
    PAUSED = "paused"
    DRAINING = "draining"
    SHUTDOWN = "shutdown"
    ERROR = "error"
    INVALID = "invalid"


DOWN_STATES: Final = frozenset({LinkState.BLOCKED, LinkState.SHUTDOWN, LinkState.ERROR, LinkState.INVALID})
"""States in which a link does not carry the messages that are wanted of it."""
DOWN: Final = "down"
"""The word for all of them."""
STATES: Final = (DOWN, *(state.value for state in LinkState))
# Words, because a newer node may have states that are not known here.
_DOWN_WORDS: Final = frozenset(state.value for state in DOWN_STATES)


def has_state(state: str, asked: str) -> bool:
    """Return whether a row with this state is asked for. `asked`: one of STATES, "" for all."""
    return state in _DOWN_WORDS if asked == DOWN else asked in ("", state)


NEXT_STEPS: Final[Mapping[LinkState, str]] = MappingProxyType(
    {
        LinkState.STARTING: "fails at the deadline unless the upstream answers before",
        LinkState.RUNNING: "fails at the deadline unless the upstream answers again before",
        LinkState.IDLE: "starts when a client subscribes to a topic of the policies",
        LinkState.BLOCKED: "looks again at the deadline",
        LinkState.PAUSED: "goes on when a consumer of the queue has room",
        LinkState.DRAINING: "stops when the messages in flight are finished, at the latest at the deadline",
        LinkState.SHUTDOWN: "starts after a restart of the link or a change of its definition",
        LinkState.ERROR: "connects again at the deadline",
        LinkState.INVALID: "starts after a change of its definition",
    }
)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link on one node.

    link_id           8 hexadecimal digits, the same on every node
    kind              `topics` or `queues`
    direction         `in` (pulls) or `out` (pushes)
    upstream          the name of the upstream
    upstream_name     what the link is called there: its client id
    mapping           topics here and there, as written in `exchange`; "" where they are equal
    policies          the names of the policies, patterns their filters, in the same order
    uri               the address that is tried or used, without secrets; "" before the first
    local_connection  client id of the connection to the local broker; "" while there is none
    since             start of the present state
    changed_at        last change of anything but the figures: state, address, subscriptions, error
    deadline          when the next step happens at the latest; NEVER: it waits for an event
    next_step         what ends the state; "" for the sentence in NEXT_STEPS
    last_error        without secrets; "" for none. error_at: NEVER for none
    answered_at       the upstream's last answer; NEVER before the first
    round_trip        seconds from the last question to its answer; -1.0 before the first
    lag               seconds since the oldest message in flight was stored and waits for other nodes (in), or was sent (out);
                      0.0 for none in flight, -1.0 where it is not known
    waiting           messages that wait for the link and are not in flight; -1 where they wait at the upstream
    oldest_waiting    seconds since the oldest of them came; 0.0 for none, -1.0 where they wait at the upstream
    in_flight         messages that were received (in) or sent (out) and are not acknowledged
    received          messages that came from the upstream; sent: messages that were pushed to it
    dropped           by reason: of the received ones those that were not published; of those to be pushed those that were not
                      sent, or were refused there
    reconnects        connections after the first; sessions_lost: sessions that the upstream no longer had
    subscriptions     filters that are subscribed at the upstream
    notes             sentences about what the upstream grants less than asked, or cannot do
    node, epoch       the owner of the link and its epoch; "" and 0 before one is known
    """

    link_id: str
    kind: str
    upstream: str
    state: LinkState
    since: float
    changed_at: float
    direction: str = "in"
    upstream_name: str = ""
    mapping: str = ""
    policies: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    uri: str = ""
    local_connection: str = ""
    deadline: float = NEVER
    next_step: str = ""
    last_error: str = ""
    error_at: float = NEVER
    answered_at: float = NEVER
    round_trip: float = -1.0
    lag: float = -1.0
    waiting: int = -1
    oldest_waiting: float = -1.0
    in_flight: int = 0
    received: int = 0
    sent: int = 0
    dropped: Mapping[str, int] = field(default_factory=lambda: _NONE)
    reconnects: int = 0
    sessions_lost: int = 0
    subscriptions: int = 0
    notes: tuple[str, ...] = ()
    node: str = ""
    epoch: int = 0


class Figure(NamedTuple):
    """A figure of LinkStatus, as the API and the metrics show it. A negative one is not known, and not shown. `is_column`: it
    is one of the table of `gmqttctl federation_status`, too."""

    field: str
    shown: str
    kind: Kind
    text: str
    is_column: bool = False

    @property
    def metric(self) -> str:
        return f"gmqtt_link_{self.shown}" + ("_total" if self.kind is Kind.COUNTER else "")


FIGURES: Final = (
    Figure(
        "round_trip",
        "round_trip_seconds",
        Kind.GAUGE,
        "Time from a question to the upstream to its answer, the last time.",
    ),
    Figure("lag", "lag_seconds", Kind.GAUGE, "Age of the oldest message in flight on a link."),
    Figure("in_flight", "in_flight", Kind.GAUGE, "Messages of a link that are not acknowledged.", True),
    Figure("waiting", "waiting", Kind.GAUGE, "Messages that wait for a link, where that is known here."),
    Figure(
        "oldest_waiting",
        "oldest_waiting_seconds",
        Kind.GAUGE,
        "Age of the oldest message that waits for a link, where that is known here.",
    ),
    Figure("subscriptions", "subscriptions", Kind.GAUGE, "Filters of a link that are subscribed at the upstream."),
    Figure("epoch", "epoch", Kind.GAUGE, "Epoch of this node as the owner of a link."),
    Figure("received", "received", Kind.COUNTER, "Messages that a link got from its upstream.", True),
    Figure("sent", "sent", Kind.COUNTER, "Messages that a link pushed to its upstream.", True),
    Figure("reconnects", "reconnects", Kind.COUNTER, "Connections of a link after the first."),
    Figure(
        "sessions_lost", "sessions_lost", Kind.COUNTER, "Sessions of a link that the upstream did not have any more."
    ),
)
TIMES: Final = (
    ("since", "since"),
    ("changed_at", "changed"),
    ("deadline", "deadline"),
    ("error_at", "error_at"),
    ("answered_at", "answered"),
)
"""Instants of LinkStatus, and their names in the API; NEVER is not shown."""


def next_step(status: LinkStatus, now: float) -> str:
    """The sentence about what comes next, with the seconds until the deadline."""
    text = status.next_step or NEXT_STEPS[status.state]
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


class Totals:
    """received  messages that came from the upstream, with those that were dropped
    sent      messages that were given to the upstream, with those that it refused
    """

    def __init__(self) -> None:
        self.received = 0
        self.sent = 0
        self._surplus = 0  # of topics that do not belong to the link
        self._refused: dict[int, int] = {}  # by the upstream, by reason code

    def add(self, relay: Relay) -> None:
        """Count what a connection has carried."""
        self.received += relay.messages_received()
        self.sent += relay.messages_sent()
        self._surplus += relay.surplus()
        for code, count in relay.incoming.refused.items():
            self._refused[code] = self._refused.get(code, 0) + count

    def with_open(self, relay: Relay | None) -> Totals:
        """These and those of the open connection."""
        found = Totals()
        found.received = self.received
        found.sent = self.sent
        found._surplus = self._surplus
        found._refused = dict(self._refused)
        if relay is not None:
            found.add(relay)
        return found

    def dropped(self) -> dict[str, int]:
        """Messages that did not cross the link, by reason, without those that the broker here refused."""
        found = {reason_name(code).lower().replace(" ", "_"): count for code, count in self._refused.items()}
        if self._surplus:
            found["surplus"] = self._surplus
        return found


QUEUE: Final = (
    "queue"  # why a message is dropped: the queue of a link that pushes had no room, or the message expired there
)


def planned(plan: LinkPlan, state: LinkState, since: float, changed_at: float) -> LinkStatus:
    """The status of a link that has carried nothing yet."""
    upstream = plan.upstream
    return LinkStatus(
        plan.link_id,
        plan.kind,
        upstream.name,
        state,
        since,
        changed_at,
        direction=upstream.direction.value,
        mapping="; ".join(upstream.exchange),
        policies=tuple(policy.name for policy in plan.policies),
        patterns=tuple(policy.pattern for policy in plan.policies),
    )


def with_figures(row: LinkStatus, plan: LinkPlan, relay: Relay | None, broker: Broker) -> LinkStatus:
    """The status with what is on its way. `relay`: None while the link has no connection."""
    if plan.upstream.direction is Direction.OUT:
        session = broker.sessions.get(local_client_id(plan))
        if session is None:
            return replace(row, waiting=0, oldest_waiting=0.0, lag=0.0)
        sent = None if session.inflight is None else session.inflight.first()
        queued = None if session.queue is None else session.queue.first()
        dropped = {QUEUE: session.messages_dropped} if session.messages_dropped else {}
        return replace(
            row,
            in_flight=session.inflight_length(),
            lag=0.0 if sent is None else max(0.0, broker.now - sent.sent_at),
            waiting=session.queue_length(),
            oldest_waiting=0.0 if queued is None else max(0.0, broker.now - queued.sent_at),
            dropped=dropped,
        )
    if relay is None:
        return row
    in_flight = relay.in_flight()
    oldest_at = relay.oldest_at()
    if oldest_at != NEVER:
        lag = max(0.0, broker.now - oldest_at)
    else:
        lag = -1.0 if in_flight else 0.0  # when the store's part began is not known
    return replace(row, in_flight=in_flight, lag=lag)
