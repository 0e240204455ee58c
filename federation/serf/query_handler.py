"""Queries of any node, as this one handles them: acks, answers, relays of answers (wire-gossip 8.8)."""

from __future__ import annotations

from random import Random
from typing import Final

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.gossip import Gossip
from federation.gossip.msgpack_fields import as_text
from federation.serf import messages
from federation.serf.asked_queries import NANOSECONDS, AskedQueries
from federation.serf.events import Event, MemberStatus, QueryReceived
from federation.serf.lamport import LamportClock
from federation.serf.messages import FLAG_ACK, ConflictResponse, Query, QueryResponse, RelayMessage
from federation.serf.queries import filters_match
from federation.serf.recent import RecentMessages
from federation.serf.roster import Roster

QUERY_CONFLICT: Final = "_serf_conflict"
QUERY_KEYS: Final = ("_serf_install-key", "_serf_use-key", "_serf_remove-key", "_serf_list-keys")
QUERY_PING: Final = "_serf_ping"
QUERY_INTERNAL_PREFIX: Final = "_serf_"

QUERY_RESPONSE_BYTES_MAX: Final = 1024
"""Largest encoded response; a longer one is dropped and counted."""
RELAYS_OF_RESPONSE_MAX: Final = 16
"""Members that are asked to relay one ack or response. A query may ask for 255: one packet would make that many everywhere."""
_RELAY_PROTOCOL: Final = 5
"""The protocol version (PMax) of members that relay."""


class QueryHandler:
    """`clock` is the query clock. Queries before `min_time` are old ones and are dropped."""

    def __init__(
        self,
        gossip: Gossip,
        roster: Roster,
        asked: AskedQueries,
        clock: LamportClock,
        events: list[Event],
        rng: Random,
        counters: Counters,
    ) -> None:
        self._gossip = gossip
        self._roster = roster
        self._asked = asked
        self._events = events
        self._rng = rng
        self._counters = counters
        self._recent = RecentMessages(counters)
        self.clock = clock
        self.min_time = 0

    def receive(self, query: Query, now: float) -> bool:
        """Handle a query of any node, this one included. True when it is new: pass it on."""
        self.clock.witness(query.lamport_time)
        if query.lamport_time < self.min_time:
            return False
        key = ("", query.query_id.to_bytes(4, "big"))
        if not self._recent.add(query.lamport_time, key, self.clock.time):
            return False
        self._counters.queries_received += 1
        own = self._roster.own.facts
        if not filters_match(query.filters, own.name, self._roster.tags(own)):
            return True
        if query.flags & FLAG_ACK:
            self._send(query, FLAG_ACK, None, now)
        if query.name == QUERY_CONFLICT:
            self._answer_conflict(query, as_text(query.payload or b"", b"name in conflict"), now)
        elif query.name in QUERY_KEYS:
            refusal = messages.encode_key_refusal("this node has no keyring; its gossip is not encrypted")
            self._send(query, 0, refusal, now)
        elif not query.name.startswith(QUERY_INTERNAL_PREFIX):
            self._events.append(QueryReceived(query, now + query.timeout_ns / NANOSECONDS))
        elif query.name != QUERY_PING:
            self._counters.drop(DropReason.UNKNOWN_QUERY)
        return True

    def answer(self, received: QueryReceived, payload: bytes, now: float) -> None:
        """Send this node's one answer. ValueError: it was answered, it is too late, or the payload is too long."""
        if received.is_answered:
            raise ValueError("response already sent")
        if now > received.deadline:
            raise ValueError("response is past the deadline")
        if not self._send(received.query, 0, payload, now):
            raise ValueError(f"response exceeds limit of {QUERY_RESPONSE_BYTES_MAX} bytes")
        received.is_answered = True

    def _answer_conflict(self, query: Query, name: str, now: float) -> None:
        if name == self._roster.own.facts.name:
            return  # this node is one of the two
        record = self._roster.records.get(name)
        if record is None:
            self._send(query, 0, messages.encode_unknown_name(), now)
            return
        facts = record.facts
        status = MemberStatus(record.status)
        member = ConflictResponse(facts.name, facts.addr, facts.port, self._roster.tags(facts), status, facts.versions)
        self._send(query, 0, member.encode(), now)

    def _send(self, query: Query, flags: int, payload: bytes | None, now: float) -> bool:
        """Send an ack or a response to the node that asks, and through members that relay it."""
        own = self._roster.own.facts
        response = QueryResponse(query.lamport_time, query.query_id, own.name, flags, payload)
        encoded = response.encode()
        if len(encoded) > QUERY_RESPONSE_BYTES_MAX:  # a member with long tags and a long name
            self._counters.drop(DropReason.MESSAGE_TOO_LARGE)
            return False
        if query.addr == own.addr and query.port == own.port:
            self._asked.receive_response(response, now)
            return True
        self._gossip.send_user_message(encoded, (ip_text(query.addr), query.port))
        if query.relay_factor:
            self._relay(query, encoded)
        return True

    def _relay(self, query: Query, response: bytes) -> None:
        count = min(query.relay_factor, RELAYS_OF_RESPONSE_MAX)
        own = self._roster.own
        relays = [
            record.facts
            for record in self._roster.records.values()
            if record.status == MemberStatus.ALIVE and record is not own and record.facts.versions[1] >= _RELAY_PROTOCOL
        ]
        if len(self._roster.records) < count + 1:
            return
        message = RelayMessage(query.addr, query.port, response).encode(query.source_node)
        if len(message) > QUERY_RESPONSE_BYTES_MAX:
            self._counters.drop(DropReason.MESSAGE_TOO_LARGE)
            return
        for facts in self._rng.sample(relays, min(count, len(relays))):
            self._gossip.send_user_message(message, facts.address())
