"""Queries: asking, answering, collecting responses, and the vote on a name in conflict (wire-gossip 8.6 and 8.8)."""

from __future__ import annotations

import math
from random import Random
from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters
from federation.gossip.errors import WireError
from federation.gossip.gossip import Gossip
from federation.serf import messages
from federation.serf.config import SerfConfig
from federation.serf.event_queue import EventQueue
from federation.serf.events import MemberStatus, NameConflict, QueryFinished, QueryReceived
from federation.serf.lamport import LamportClock
from federation.serf.messages import FLAG_ACK, ConflictResponse, Query, QueryResponse
from federation.serf.queries import PENDING_QUERIES_MAX, PendingQuery, conflict_name, filters_match
from federation.serf.recent import RecentMessages, is_new
from federation.serf.roster import Roster

QUERY_PING: Final = "_serf_ping"
QUERY_CONFLICT: Final = "_serf_conflict"
QUERY_INTERNAL_PREFIX: Final = "_serf_"
QUERY_KEYS: Final = ("_serf_install-key", "_serf_use-key", "_serf_remove-key", "_serf_list-keys")

NANOSECONDS: Final = 1_000_000_000


class QueryHandler:
    """`clock` is the query clock. Responses are sent through `gossip`, directly to the node that asked."""

    __slots__ = (
        "_config",
        "_counters",
        "_events",
        "_gossip",
        "_name",
        "_queries",
        "_recent",
        "_rng",
        "_roster",
        "clock",
    )

    def __init__(
        self, config: SerfConfig, gossip: Gossip, roster: Roster, events: EventQueue, rng: Random, counters: Counters
    ) -> None:
        self._config = config
        self._gossip = gossip
        self._roster = roster
        self._events = events
        self._rng = rng
        self._counters = counters
        self._name = config.node_name
        self._queries: dict[tuple[int, int], PendingQuery] = {}
        self._recent = RecentMessages()
        self.clock = LamportClock()

    def next_timeout(self) -> float | None:
        first: float | None = None
        for query in self._queries.values():
            if first is None or query.deadline < first:
                first = query.deadline
        return first

    def is_full(self) -> bool:
        return len(self._queries) >= PENDING_QUERIES_MAX

    def ask(
        self,
        name: str,
        payload: bytes,
        now: float,
        timeout: float = 0.0,
        want_acks: bool = False,
        conflict: bool = False,
    ) -> tuple[int, bytes]:
        """Begin a query of this node. Gives its id and the message to broadcast.

        `conflict`: the query asks which node keeps this node's name. ValueError when it is too long or too many are under way.
        """
        if len(self._queries) >= PENDING_QUERIES_MAX:
            raise ValueError(f"{PENDING_QUERIES_MAX} queries are under way; a query ends after its timeout")
        own = self._roster.own.facts
        query = Query(
            self.clock.time,
            self._rng.getrandbits(31),
            own.addr,
            own.port,
            self._name,
            [],
            FLAG_ACK if want_acks else 0,
            0,
            int((timeout or self._default_query_timeout()) * NANOSECONDS),
            name,
            payload,
        )
        encoded = query.encode()
        if len(encoded) > self._config.query_bytes_max:
            raise ValueError(f"the query has {len(encoded)} bytes; at most {self._config.query_bytes_max} are allowed")
        deadline = now + query.timeout_ns / NANOSECONDS
        self._queries[query.lamport_time, query.query_id] = PendingQuery(
            query.lamport_time, query.query_id, deadline, conflict
        )
        self.receive(query, now)
        return query.query_id, encoded

    def respond(self, query: QueryReceived, payload: bytes, now: float) -> None:
        """Answer a query; after its deadline nothing is sent. ValueError when the answer is too long."""
        if now <= query.deadline:
            self._answer(query.lamport_time, query.query_id, query.addr, query.port, 0, payload)

    def receive(self, query: Query, now: float) -> bool:
        """Handle a query of any node, this one included. True when it is new: pass it on."""
        self.clock.witness(query.lamport_time)
        key = ("", query.query_id.to_bytes(4, "big"))
        if not is_new(self._recent.add(query.lamport_time, key, self.clock.time), self._counters):
            return False
        tags = self._roster.tags(self._roster.own.facts)
        if not filters_match(query.filters, self._name, tags):
            return True
        if query.flags & FLAG_ACK:
            self._answer(query.lamport_time, query.query_id, query.addr, query.port, FLAG_ACK, None)
        if query.name.startswith(QUERY_INTERNAL_PREFIX):
            self._receive_internal_query(query)
        else:
            deadline = now + query.timeout_ns / NANOSECONDS
            self._events.offer(
                QueryReceived(
                    query.lamport_time,
                    query.query_id,
                    query.name,
                    query.payload or b"",
                    query.addr,
                    query.port,
                    deadline,
                )
            )
        return True

    def _receive_internal_query(self, query: Query) -> None:
        if query.name == QUERY_PING:
            return  # the ack is the answer
        if query.name == QUERY_CONFLICT:
            name = conflict_name(query.payload or b"")
            if name == self._name:
                return  # this node is one of the two
            record = self._roster.records.get(name)
            if record is None:
                payload = messages.encode_unknown_name()
            else:
                facts = record.facts
                payload = ConflictResponse(
                    facts.name,
                    facts.addr,
                    facts.port,
                    self._roster.tags(facts),
                    record.status,
                    facts.versions,
                ).encode()
        elif query.name in QUERY_KEYS:
            payload = messages.encode_key_refusal("this node has no keyring; its gossip is not encrypted")
        else:
            self._counters.drop(reasons.UNKNOWN_QUERY)
            return
        try:
            self._answer(query.lamport_time, query.query_id, query.addr, query.port, 0, payload)
        except ValueError:  # a member with long tags and a long name
            self._counters.drop(reasons.MESSAGE_TOO_LARGE)

    def _answer(
        self, lamport_time: int, query_id: int, addr: bytes, port: int, flags: int, payload: bytes | None
    ) -> None:
        response = QueryResponse(lamport_time, query_id, self._name, flags, payload)
        encoded = response.encode()
        if len(encoded) > self._config.query_response_bytes_max:
            raise ValueError(
                f"the answer has {len(encoded)} bytes; at most {self._config.query_response_bytes_max} are allowed"
            )
        pending = self._queries.get((lamport_time, query_id))
        if pending is not None:
            pending.receive(response)  # this node's own query needs no packet
        else:
            self._gossip.send_user_message(encoded, (ip_text(addr), port))

    def receive_response(self, response: QueryResponse, now: float) -> None:
        query = self._queries.get((response.lamport_time, response.query_id))
        if query is not None and now <= query.deadline:
            query.receive(response)

    def _default_query_timeout(self) -> float:
        factor = self._config.query_timeout_mult * math.ceil(math.log10(self._roster.alive_count() + 1))
        return self._config.profile.gossip_interval * max(1, factor)

    def handle_timeout(self, now: float) -> None:
        if not self._queries:
            return
        finished = [key for key, query in self._queries.items() if query.deadline <= now]
        for key in finished:
            query = self._queries.pop(key)
            if query.conflict:
                self._decide_conflict(query)
            else:
                self._events.add(QueryFinished(query.query_id, list(query.acks), query.responses))

    def _decide_conflict(self, query: PendingQuery) -> None:
        """Decide by majority which node keeps the name (wire-gossip 8.6). Without responses this node keeps it.

        Only responses that name an alive or leaving member count.
        """
        own = self._roster.own.facts
        claims = 0
        matching = 0
        other: ConflictResponse | None = None
        for payload in query.responses.values():
            if not payload or payload[0] != messages.CONFLICT_RESPONSE:
                continue
            try:
                claim = ConflictResponse.decode(payload[1:])
            except WireError:
                self._counters.drop(reasons.MALFORMED_SERF)
                continue
            if claim is None or claim.status not in (MemberStatus.ALIVE, MemberStatus.LEAVING):
                continue
            claims += 1
            if ip_text(claim.addr) == own.ip and claim.port == own.port:
                matching += 1
            else:
                other = claim
        if other is not None and matching < claims // 2 + 1:
            self._events.add(NameConflict(self._name, ip_text(other.addr), other.port, True, True))
