"""Queries of any node, as this one handles them: acks, answers, relays of answers (wire-gossip 8.8)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from federation.gossip.addresses import ip_text
from federation.gossip.counters import Counters, DropReason
from federation.gossip.gossip import Gossip
from federation.gossip.keyring import Keyring
from federation.gossip.msgpack_fields import as_text
from federation.serf import messages
from federation.serf.asked_queries import NANOSECONDS, AskedQueries
from federation.serf.events import Event, KeysChanged, MemberStatus, QueryReceived
from federation.serf.key_queries import QUERY_KEYS, QUERY_LIST_KEYS, do_key_query
from federation.serf.lamport import LamportClock
from federation.serf.messages import FLAG_ACK, ConflictResponse, KeyResponse, Query, QueryResponse, RelayMessage
from federation.serf.queries import QueryFilters
from federation.serf.recent import RecentMessages
from federation.serf.roster import Roster

QUERY_CONFLICT: Final = "_serf_conflict"
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
        keyring: Keyring | None,
        keeps_keys: bool,
        takes_plain: bool,
    ) -> None:
        self._keyring = keyring
        self._takes_plain = takes_plain
        self._keeps_keys = keeps_keys
        self._gossip = gossip
        self._roster = roster
        self._asked = asked
        self._events = events
        self._rng = rng
        self._counters = counters
        self._recent = RecentMessages(counters)
        self._filters = QueryFilters(counters)
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
        if not self._filters.match(query.filters, own.name, self._roster.tags(own), now):
            return True
        if query.flags & FLAG_ACK:
            self._send(query, FLAG_ACK, None, now)
        if query.name == QUERY_CONFLICT:
            self._answer_conflict(query, as_text(query.payload or b"", b"name in conflict"), now)
        elif query.name in QUERY_KEYS:
            self._receive_key_query(query, now)
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

    # --- keys

    def _receive_key_query(self, query: Query, now: float) -> None:
        response = do_key_query(self._keyring, self._takes_plain, query.name, query.payload or b"")
        if self._keyring is not None and response.result and query.name != QUERY_LIST_KEYS:
            self._events.append(KeysChanged(query, self._keyring.keys, self._keeps_keys))
            if self._keeps_keys:
                return
        self._send_key_response(query, response, now)

    def keys_kept(self, changed: KeysChanged, error: str, now: float) -> None:
        """Answer a change of keys. `error`: why they were not kept, "" when they were."""
        self._send_key_response(changed.query, KeyResponse(None, error, "", not error), now)

    def _send_key_response(self, query: Query, response: KeyResponse, now: float) -> None:
        """Send the response, with as many keys of a list as fit."""
        keys = response.keys or ()
        for count in range(len(keys), 0, -1):
            if self._fits(query, response.encode()):
                break
            text = f"its response has room for {count - 1} of its {len(keys)} keys"
            response = replace(response, keys=keys[: count - 1], message=text)
        self._send(query, 0, response.encode(), now)

    def _fits(self, query: Query, payload: bytes) -> bool:
        return len(self._response(query, 0, payload).encode()) <= QUERY_RESPONSE_BYTES_MAX

    # --- responses

    def _response(self, query: Query, flags: int, payload: bytes | None) -> QueryResponse:
        return QueryResponse(query.lamport_time, query.query_id, self._roster.own.facts.name, flags, payload)

    def _send(self, query: Query, flags: int, payload: bytes | None, now: float) -> bool:
        """Send an ack or a response to the node that asks, and through members that relay it."""
        own = self._roster.own.facts
        response = self._response(query, flags, payload)
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
