"""Queries: other nodes' are answered; this node asks one itself, which node keeps its name (wire-gossip 8.6 and 8.8)."""

from __future__ import annotations

import math
from random import Random
from typing import Final

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.errors import WireError
from federation.gossip.gossip import Gossip
from federation.gossip.msgpack_fields import as_text
from federation.serf import messages
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberStatus, NameConflict
from federation.serf.lamport import LamportClock
from federation.serf.messages import FLAG_ACK, ConflictResponse, Query, QueryResponse
from federation.serf.queries import filters_match
from federation.serf.recent import RecentMessages
from federation.serf.roster import Roster

QUERY_CONFLICT: Final = "_serf_conflict"
QUERY_KEYS: Final = ("_serf_install-key", "_serf_use-key", "_serf_remove-key", "_serf_list-keys")
QUERY_PING: Final = "_serf_ping"
QUERY_INTERNAL_PREFIX: Final = "_serf_"

QUERY_TIMEOUT_MULT: Final = 16
"""Timeout of the query: QUERY_TIMEOUT_MULT * gossip_interval * ceil(log10(alive members + 1))."""
QUERY_RESPONSE_BYTES_MAX: Final = 1024
"""Largest encoded response; a longer one is dropped and counted."""
RESPONSES_MAX: Final = 16_384
"""Responses kept; further ones are ignored."""

NANOSECONDS: Final = 1_000_000_000


class QueryHandler:
    """`clock` is the query clock. Responses are sent through `gossip`, directly to the node that asked."""

    def __init__(
        self, config: SerfConfig, gossip: Gossip, roster: Roster, events: list[Event], rng: Random, counters: Counters
    ) -> None:
        self._config = config
        self._gossip = gossip
        self._roster = roster
        self._events = events
        self._rng = rng
        self._counters = counters
        self._name = config.node_name
        self._asked: Query | None = None
        self._deadline = 0.0
        self._responses: dict[str, bytes] = {}
        self._recent = RecentMessages(counters)
        self.clock = LamportClock()

    # --- queries of other nodes

    def receive(self, query: Query) -> bool:
        """Handle a query of any node, this one included. True when it is new: pass it on."""
        self.clock.witness(query.lamport_time)
        key = ("", query.query_id.to_bytes(4, "big"))
        if not self._recent.add(query.lamport_time, key, self.clock.time):
            return False
        if not filters_match(query.filters, self._name, self._roster.tags(self._roster.own.facts)):
            return True
        if query.flags & FLAG_ACK:
            self._answer(query, FLAG_ACK, None)
        if query.name == QUERY_CONFLICT:
            self._answer_conflict(query, as_text(query.payload or b"", b"name in conflict"))
        elif query.name in QUERY_KEYS:
            refusal = messages.encode_key_refusal("this node has no keyring; its gossip is not encrypted")
            self._answer(query, 0, refusal)
        elif query.name.startswith(QUERY_INTERNAL_PREFIX) and query.name != QUERY_PING:
            self._counters.drop(DropReason.UNKNOWN_QUERY)
        return True

    def _answer_conflict(self, query: Query, name: str) -> None:
        if name == self._name:
            return  # this node is one of the two
        record = self._roster.records.get(name)
        if record is None:
            self._answer(query, 0, messages.encode_unknown_name())
            return
        facts = record.facts
        tags = self._roster.tags(facts)
        member = ConflictResponse(facts.name, facts.addr, facts.port, tags, record.status, facts.versions)
        self._answer(query, 0, member.encode())

    def _answer(self, query: Query, flags: int, payload: bytes | None) -> None:
        encoded = QueryResponse(query.lamport_time, query.query_id, self._name, flags, payload).encode()
        if len(encoded) > QUERY_RESPONSE_BYTES_MAX:  # a member with long tags and a long name
            self._counters.drop(DropReason.MESSAGE_TOO_LARGE)
        else:
            self._gossip.send_user_message(encoded, (ip_text(query.addr), query.port))

    # --- the query about this node's name

    @property
    def asks_about_name(self) -> bool:
        return self._asked is not None

    def ask_about_name(self, now: float) -> bytes:
        """Ask which node keeps this node's name. Gives the message to broadcast; the event NameConflict may follow."""
        own = self._roster.own.facts
        factor = QUERY_TIMEOUT_MULT * math.ceil(math.log10(self._roster.alive_count() + 1))
        timeout = self._config.profile.gossip_interval * max(1, factor)
        query = Query(
            self.clock.time,
            self._rng.getrandbits(31),
            own.addr,
            own.port,
            self._name,
            None,
            0,
            0,
            int(timeout * NANOSECONDS),
            QUERY_CONFLICT,
            self._name.encode(),
        )
        self._asked = query
        self._deadline = now + timeout
        self.receive(query)
        return query.encode()

    def receive_response(self, response: QueryResponse, now: float) -> None:
        """Keep the first response of each member until the deadline."""
        query = self._asked
        if query is None or (response.lamport_time, response.query_id) != (query.lamport_time, query.query_id):
            return
        if now <= self._deadline and not response.flags & FLAG_ACK and len(self._responses) < RESPONSES_MAX:
            self._responses.setdefault(response.origin, response.payload or b"")

    def next_timeout(self) -> float | None:
        return None if self._asked is None else self._deadline

    def handle_timeout(self, now: float) -> None:
        if self._asked is not None and self._deadline <= now:
            self._asked = None
            self._decide_conflict()
            self._responses.clear()

    def _decide_conflict(self) -> None:
        """Decide by majority which node keeps the name (wire-gossip 8.6). Without responses this node keeps it.

        Only responses that name an alive or leaving member count.
        """
        own = self._roster.own.facts
        claims = 0
        matching = 0
        other: ConflictResponse | None = None
        for payload in self._responses.values():
            if not payload or payload[0] != messages.CONFLICT_RESPONSE:
                continue
            try:
                claim = ConflictResponse.decode(payload[1:])
            except WireError:
                self._counters.drop(DropReason.MALFORMED_SERF)
                continue
            if claim is None or claim.status not in (MemberStatus.ALIVE, MemberStatus.LEAVING):
                continue
            claims += 1
            if ip_text(claim.addr) == own.ip and claim.port == own.port:
                matching += 1
            else:
                other = claim
        if other is not None and matching < claims // 2 + 1:
            self._events.append(NameConflict(self._name, ip_text(other.addr), other.port, True, True))
