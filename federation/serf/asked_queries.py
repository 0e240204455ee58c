"""Queries of this node: what was asked, and the acks and responses that came (wire-gossip 8.8)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import Final

from federation.gossip.counters import Counters, DropReason
from federation.gossip.msgpack_fields import INT64_MAX, UINT8_MAX
from federation.serf.config import SerfConfig
from federation.serf.events import Event, QueryEnded, QueryResponded
from federation.serf.lamport import LamportClock
from federation.serf.messages import FLAG_ACK, Query, QueryResponse
from federation.serf.queries import encode_filters
from federation.serf.roster import Roster

QUERY_TIMEOUT_MULT: Final = 16
"""Default timeout of a query: QUERY_TIMEOUT_MULT * gossip_interval * ceil(log10(alive members + 1))."""
QUERY_BYTES_MAX: Final = 1024
"""Longest encoded query; less where packets are smaller."""
ASKED_QUERIES_MAX: Final = 256
"""Queries of this node under way; a further one is refused. Quiet ones are few and always have room."""
RESPONSES_MAX: Final = 16_384
"""Acks of one query, and responses; further ones are dropped and counted."""
RESPONSE_BYTES_MAX: Final = 16 << 20
"""Bytes of the responses kept for all queries together; further ones are dropped and counted."""
NANOSECONDS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class QueryParameters:
    """`filter_nodes`: only these members answer; empty: all. `filter_tags`: only members whose tag matches the expression.
    `relay_factor`: members that send each response once more, 0 to 255. `timeout`: seconds; 0: the default."""

    filter_nodes: tuple[str, ...] = ()
    filter_tags: dict[str, str] = field(default_factory=dict)
    request_ack: bool = False
    relay_factor: int = 0
    timeout: float = 0.0


@dataclass(slots=True, eq=False)
class AskedQuery:
    """The collector of one query. `number`: that of its events. `acks` and `responses` have one entry for each member.

    `is_quiet`: no events tell of it; its owner looks at `is_over`.
    """

    number: int
    query: Query
    deadline: float
    is_quiet: bool
    acks: dict[str, None] = field(default_factory=dict)
    responses: dict[str, bytes] = field(default_factory=dict)
    response_bytes: int = 0
    is_over: bool = False


class AskedQueries:
    """Queries under way. `clock` is the query clock."""

    def __init__(
        self,
        config: SerfConfig,
        roster: Roster,
        clock: LamportClock,
        events: list[Event],
        rng: Random,
        counters: Counters,
        broadcast_bytes_max: int,
    ) -> None:
        """`broadcast_bytes_max`: longest message that fits into a packet; a longer query would never leave."""
        self._config = config
        self._bytes_max = min(QUERY_BYTES_MAX, broadcast_bytes_max)
        self._roster = roster
        self.clock = clock
        self._events = events
        self._rng = rng
        self._counters = counters
        self._last_number = 0
        self._response_bytes = 0
        self._asked: dict[tuple[int, int], AskedQuery] = {}  # by Lamport time and id

    def __len__(self) -> int:
        return len(self._asked)

    def default_timeout(self) -> float:
        """In seconds."""
        factor = max(1, math.ceil(math.log10(self._roster.alive_count() + 1)))
        return self._config.profile.gossip_interval * QUERY_TIMEOUT_MULT * factor

    def ask(self, name: str, payload: bytes, parameters: QueryParameters, is_quiet: bool, now: float) -> AskedQuery:
        """A new query: handle its message here and broadcast it. ValueError: too long, or too many are under way."""
        if len(self._asked) >= ASKED_QUERIES_MAX and not is_quiet:
            raise ValueError(f"{ASKED_QUERIES_MAX} queries of this node are under way; wait until some end")
        if not 0 <= parameters.relay_factor <= UINT8_MAX:
            raise ValueError(f"the relay factor {parameters.relay_factor} is not between 0 and {UINT8_MAX}")
        timeout = parameters.timeout or self.default_timeout()
        if not 0 < timeout <= INT64_MAX / NANOSECONDS - 1:
            raise ValueError(f"the timeout of {timeout:g} s is negative or too long")
        own = self._roster.own.facts
        query = Query(
            self.clock.time,
            self._rng.getrandbits(31),
            own.addr,
            own.port,
            own.name,
            encode_filters(parameters.filter_nodes, parameters.filter_tags),
            FLAG_ACK if parameters.request_ack else 0,
            parameters.relay_factor,
            int(timeout * NANOSECONDS),
            name,
            payload,
        )
        size = len(query.encode())
        if size > self._bytes_max:
            raise ValueError(f"query exceeds limit of {self._bytes_max} bytes: it has {size}")
        self._last_number += 1
        asked = AskedQuery(self._last_number, query, now + timeout, is_quiet)
        self._asked[query.lamport_time, query.query_id] = asked
        self._counters.queries_sent += 1
        return asked

    def receive_response(self, response: QueryResponse, now: float) -> None:
        """Keep the first ack and the first response of each member until the deadline."""
        asked = self._asked.get((response.lamport_time, response.query_id))
        if asked is None or now > asked.deadline:
            self._counters.query_responses_late += 1
            return
        is_ack = bool(response.flags & FLAG_ACK)
        if is_ack and not asked.query.flags & FLAG_ACK:  # nobody asked for it
            self._counters.query_responses_late += 1
            return
        payload = response.payload or b""
        size = len(response.origin) + len(payload)
        known = asked.acks if is_ack else asked.responses
        if response.origin in known:
            self._counters.query_responses_repeated += 1
            return
        if len(known) >= RESPONSES_MAX or self._response_bytes + size > RESPONSE_BYTES_MAX:
            self._counters.drop(DropReason.RESPONSES_FULL)
            return
        if is_ack:
            asked.acks[response.origin] = None
        else:
            asked.responses[response.origin] = payload
        asked.response_bytes += size
        self._response_bytes += size
        self._counters.query_responses_received += 1
        if not asked.is_quiet:
            self._events.append(QueryResponded(asked.number, response.origin, b"" if is_ack else payload, is_ack))

    def end(self, asked: AskedQuery) -> None:
        """End a query before its deadline. What it has collected stays in the caller's hands."""
        if not asked.is_over:
            asked.is_over = True
            self._response_bytes -= asked.response_bytes
            del self._asked[asked.query.lamport_time, asked.query.query_id]
            if not asked.is_quiet:
                self._events.append(QueryEnded(asked.number))

    def end_number(self, number: int) -> None:
        """End the query with this number, if it is under way."""
        for asked in [asked for asked in self._asked.values() if asked.number == number]:
            self.end(asked)

    def next_timeout(self) -> float | None:
        return min((asked.deadline for asked in self._asked.values()), default=None)

    def handle_timeout(self, now: float) -> None:
        for asked in [asked for asked in self._asked.values() if asked.deadline <= now]:
            self.end(asked)
