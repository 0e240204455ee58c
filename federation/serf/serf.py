"""A Serf node without input and output: members with status, intents, events, queries, leave (section 8).

The five doors of a core: `receive_packet`, `packets_to_send` and the streams; `next_timeout`, `handle_timeout`;
`take_events`. `now` is monotonic seconds. Ask for packets, stream requests, events and the next timeout after every call.
"""

from __future__ import annotations

import math
from enum import IntEnum
from random import Random
from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.addresses import Address, ip_text, pack_ip
from federation.gossip.broadcasts import Broadcast, BroadcastQueue, retransmit_limit
from federation.gossip.counters import Counters
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.exchange import IncomingStream, StreamRequest
from federation.gossip.gossip import Gossip
from federation.gossip.members import FactsPool, NodeFacts
from federation.gossip.messages import OUR_VERSIONS
from federation.serf import messages
from federation.serf.config import SerfConfig
from federation.serf.events import (
    Event,
    JoinResult,
    Left,
    Member,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
    NameConflict,
    QueryFinished,
    QueryReceived,
    UserEvent,
)
from federation.serf.joins import JOIN_ADDRESSES_MAX, PendingJoin
from federation.serf.lamport import LamportClock
from federation.serf.member_list import MemberRecord, to_member
from federation.serf.messages import (
    FLAG_ACK,
    FLAG_NO_BROADCAST,
    ConflictResponse,
    JoinIntent,
    LeaveIntent,
    Query,
    QueryResponse,
    Relay,
    SerfState,
    UserEventMessage,
)
from federation.serf.queries import PENDING_QUERIES_MAX, PendingQuery, conflict_name, filters_match
from federation.serf.recent import SEEN_FULL, SEEN_NEW, SEEN_TOO_OLD, RecentIntents, RecentMessages
from federation.serf.tags import encode_tags

EVENTS_PENDING_MAX: Final = 65_536
"""Events that nobody has taken; further user events and queries are dropped and counted, member events never."""
USER_EVENT_HARD_MAX: Final = 9216
"""Name and payload of a user event from anybody (section 8.8)."""
CONFLICT_REPORT_INTERVAL: Final = 30.0
"""One name's conflict is told once in this time, however often it is seen."""
CONFLICT_REPORTS_MAX: Final = 128

QUERY_PING: Final = "_serf_ping"
QUERY_CONFLICT: Final = "_serf_conflict"
QUERY_INTERNAL_PREFIX: Final = "_serf_"
QUERY_KEYS: Final = ("_serf_install-key", "_serf_use-key", "_serf_remove-key", "_serf_list-keys")

NANOSECONDS: Final = 1_000_000_000


class SerfPhase(IntEnum):
    """A node is alive; a leave spreads the intent, then the death, then waits; then it has left and may join again."""

    ALIVE = 0
    SPREADING_INTENT = 1
    SPREADING_DEATH = 2
    PROPAGATING = 3
    LEFT = 4


class Serf(GossipDelegate):
    """One node. `pool` may be shared by many nodes in one process to save memory."""

    def __init__(self, config: SerfConfig, rng: Random, now: float, pool: FactsPool | None = None) -> None:
        self.config = config
        self.counters = Counters()
        self._rng = rng
        self._name = config.node_name
        self._pool = pool if pool is not None else FactsPool()
        facts = self._pool.get(
            config.node_name,
            pack_ip(config.advertise_ip),
            config.advertise_port,
            encode_tags(config.tags),
            OUR_VERSIONS,
        )
        self.gossip = Gossip(facts, config.profile, rng, self.counters, self, self._pool, now)
        self._clock = LamportClock()
        self._event_clock = LamportClock()
        self._query_clock = LamportClock()
        self._own = MemberRecord(facts, MemberStatus.ALIVE, 0)
        self._members: dict[str, MemberRecord] = {self._name: self._own}
        self._recent_intents = RecentIntents()
        self._recent_events = RecentMessages()
        self._recent_queries = RecentMessages()
        self._intent_queue = BroadcastQueue()
        self._query_queue = BroadcastQueue()
        self._event_queue = BroadcastQueue()
        self._events: list[Event] = [MemberJoin(self.local_member)]
        self._joins: dict[int, PendingJoin] = {}
        self._last_join_id = 0
        self._queries: dict[tuple[int, int], PendingQuery] = {}
        self._prunes: list[tuple[float, str]] = []
        self._conflict_reports: dict[str, float] = {}
        self.phase = SerfPhase.ALIVE
        self._phase_deadline = 0.0
        self._leave_broadcast: Broadcast | None = None
        self._reap_at = now + config.reap_interval
        self._reconnect_at = now + config.reconnect_interval

    # --- doors

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        self.gossip.receive_packet(data, source, now)

    def packets_to_send(self) -> list[tuple[bytes, Address]]:
        return self.gossip.packets_to_send()

    def take_stream_requests(self) -> list[StreamRequest]:
        """Streams to be opened: write the data, pass everything that comes back to `receive_stream_reply`."""
        return self.gossip.take_stream_requests()

    def receive_stream_reply(self, request_id: int, data: bytes | None, error: str, now: float) -> bool:
        """A piece of an answer, or None and why there is none (more). True: done, close the stream."""
        return self.gossip.receive_stream_reply(request_id, data, error, now)

    def open_incoming_stream(self) -> IncomingStream | None:
        """For an accepted stream; None: too many, close it."""
        return self.gossip.open_incoming_stream()

    def take_events(self) -> list[Event]:
        events = self._events
        if events:
            self._events = []
        return events

    def next_timeout(self) -> float:
        first = min(self.gossip.next_timeout(), self._reap_at, self._reconnect_at)
        if self._leave_broadcast is not None or self.phase == SerfPhase.PROPAGATING:
            first = min(first, self._phase_deadline)
        for query in self._queries.values():
            first = min(first, query.deadline)
        for prune_at, _ in self._prunes:
            first = min(first, prune_at)
        return first

    def handle_timeout(self, now: float) -> None:
        self.gossip.handle_timeout(now)
        self._advance_leave(now)
        if self._queries:
            self._finish_queries(now)
        if self._prunes:
            self._prune_due(now)
        if now >= self._reap_at:
            self._reap_at = now + self.config.reap_interval
            self._reap(now)
        if now >= self._reconnect_at:
            self._reconnect_at = now + self.config.reconnect_interval
            self._reconnect(now)

    # --- what the owner asks

    @property
    def local_member(self) -> Member:
        return to_member(self._own, self.counters)

    def members(self) -> list[Member]:
        """All known members by name, the failed and left ones included until they are reaped."""
        return [to_member(self._members[name], self.counters) for name in sorted(self._members)]

    def member(self, name: str) -> Member | None:
        record = self._members.get(name)
        return None if record is None else to_member(record, self.counters)

    def alive_others(self) -> int:
        """Members other than this node that gossip holds for alive."""
        return self.gossip.alive_others()

    def join(self, addresses: list[Address], now: float) -> int:
        """Exchange state with each address; the event JoinResult with this id tells what came of it.

        A node that has left is alive again first. ValueError for too many addresses.
        """
        unique = list(dict.fromkeys(addresses))
        if len(unique) > JOIN_ADDRESSES_MAX:
            raise ValueError(f"a join takes at most {JOIN_ADDRESSES_MAX} addresses, not {len(unique)}")
        self._last_join_id += 1
        join_id = self._last_join_id
        if self.phase == SerfPhase.LEFT:
            self.rejoin(now)
        if self.phase != SerfPhase.ALIVE:
            self._events.append(JoinResult(join_id, 0, dict.fromkeys(unique, "this node is leaving")))
            return join_id
        if not unique:
            self._events.append(JoinResult(join_id, 0, {}))
            return join_id
        self._joins[join_id] = PendingJoin(join_id, unique)
        for index, address in enumerate(unique):
            self.gossip.join(address, join_id, index, now)
        return join_id

    def leave(self, now: float) -> None:
        """Go gracefully (section 8.6); the event Left comes when others know, after about two seconds."""
        if self.phase == SerfPhase.LEFT:
            self._events.append(Left())
            return
        if self.phase != SerfPhase.ALIVE:
            return
        self.phase = SerfPhase.SPREADING_INTENT
        intent = LeaveIntent(self._clock.increment(), self._name, False)
        self._apply_leave_intent(intent, now)
        self._phase_deadline = now + self.config.broadcast_timeout
        if self.gossip.alive_others() > 0:
            self._leave_broadcast = self._queue(self._intent_queue, intent.encode())
        self._advance_leave(now)

    def rejoin(self, now: float) -> None:
        """Alive again after a leave, with a new incarnation and a newer intent than the leave's."""
        if self.phase != SerfPhase.LEFT:
            return
        self.phase = SerfPhase.ALIVE
        self.gossip.membership.rejoin(now)
        self._announce_join(now)

    def force_leave(self, name: str, now: float, prune: bool = False) -> None:
        """Tell all that a failed member is gone for good; one that is in fact alive will object. ValueError for ourselves."""
        if name == self._name:
            raise ValueError(f"{name!r} is this node: use leave")
        intent = LeaveIntent(self._clock.increment(), name, prune)
        self._apply_leave_intent(intent, now)
        self._queue(self._intent_queue, intent.encode())

    def set_tags(self, tags: dict[str, str], now: float) -> None:
        """New tags of this node; ValueError when they are too long."""
        self.gossip.membership.update_own(encode_tags(tags), now)
        self._own.facts = self.gossip.membership.own.facts

    def user_event(self, name: str, payload: bytes, now: float, coalesce: bool = False) -> None:
        """Send an event to all members; it comes out of `take_events` here too. ValueError when it is too long."""
        event = UserEventMessage(self._event_clock.time, name, payload, coalesce)
        encoded = event.encode()
        if len(encoded) > self.config.user_event_bytes_max:
            raise ValueError(
                f"the user event has {len(encoded)} bytes, at most {self.config.user_event_bytes_max} may be"
            )
        self._receive_user_event(event)
        self._queue(self._event_queue, encoded)

    def query(
        self,
        name: str,
        payload: bytes,
        now: float,
        timeout: float = 0.0,
        want_acks: bool = False,
        conflict: bool = False,
    ) -> int:
        """Ask all members; the event QueryFinished with this id brings the answers. 0 seconds: the default timeout."""
        if len(self._queries) >= PENDING_QUERIES_MAX:
            raise ValueError(f"{PENDING_QUERIES_MAX} queries are under way already")
        own = self._own.facts
        query = Query(
            self._query_clock.time,
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
        if len(encoded) > self.config.query_bytes_max:
            raise ValueError(f"the query has {len(encoded)} bytes, at most {self.config.query_bytes_max} may be")
        deadline = now + query.timeout_ns / NANOSECONDS
        self._queries[query.lamport_time, query.query_id] = PendingQuery(
            query.lamport_time, query.query_id, deadline, conflict
        )
        self._receive_query(query, now)
        self._queue(self._query_queue, encoded)
        return query.query_id

    def respond(self, query: QueryReceived, payload: bytes, now: float) -> None:
        """Answer a query; too late is not sent. ValueError when the answer is too long."""
        if now <= query.deadline:
            self._answer(query.lamport_time, query.query_id, query.addr, query.port, 0, payload)

    # --- gossip tells (GossipDelegate)

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        record = self._members.get(facts.name)
        if record is None:
            record = MemberRecord(facts, MemberStatus.ALIVE, 0)
            self._members[facts.name] = record
            intent = self._recent_intents.take(facts.name)
            if intent is not None:
                record.status_time = intent.lamport_time
                if intent.leave:
                    record.status = MemberStatus.LEAVING
        else:
            record.facts = facts
            record.status = MemberStatus.ALIVE
            record.gone_at = 0.0
        self._events.append(MemberJoin(to_member(record, self.counters)))

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        record = self._members.get(facts.name)
        if record is not None:
            record.facts = facts
            self._events.append(MemberUpdate(to_member(record, self.counters)))

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        record = self._members.get(facts.name)
        if record is None:
            return
        # Serf itself only believes a leave intent. But its spreading is not waited for, so where it comes late, or gets
        # lost, a graceful leave would show as a failure; a member's own word of its death is word enough.
        if record.status == MemberStatus.LEAVING or (gracefully and record.status == MemberStatus.ALIVE):
            record.status = MemberStatus.LEFT
            record.gone_at = now
            self._events.append(MemberLeave(to_member(record, self.counters)))
        elif record.status == MemberStatus.ALIVE:
            record.status = MemberStatus.FAILED
            record.gone_at = now
            self._events.append(MemberFailed(to_member(record, self.counters)))

    def node_conflict(self, existing: NodeFacts, other: NodeFacts, now: float) -> None:
        ours = existing.name == self._name
        last = self._conflict_reports.get(existing.name)
        if last is not None and now - last < CONFLICT_REPORT_INTERVAL:
            return
        self._conflict_reports.pop(existing.name, None)
        if len(self._conflict_reports) >= CONFLICT_REPORTS_MAX:
            del self._conflict_reports[next(iter(self._conflict_reports))]
        self._conflict_reports[existing.name] = now
        self._events.append(NameConflict(existing.name, other.ip, other.port, ours, False))
        if ours and self.phase == SerfPhase.ALIVE and len(self._queries) < PENDING_QUERIES_MAX:
            self.query(QUERY_CONFLICT, self._name.encode(), now, conflict=True)

    def name_taken(self, ip: str, port: int, now: float) -> None:
        self._events.append(NameConflict(self._name, ip, port, True, True))

    def join_finished(self, join_id: int, index: int, error: str, now: float) -> None:
        join = self._joins.get(join_id)
        if join is None:
            return  # a try to reconnect
        finished = join.finished(index, error)
        if not error and self.phase == SerfPhase.ALIVE:
            if join.joined == 1:
                self._announce_join(now)
        if finished:
            del self._joins[join_id]
            self._events.append(join.result())

    def take_broadcasts(self, overhead: int, budget: int, count_max: int) -> list[bytes]:
        limit = retransmit_limit(self.config.profile.retransmit_mult, len(self._members))
        found: list[bytes] = []
        for queue in (self._intent_queue, self._query_queue, self._event_queue):
            if len(queue) == 0:
                continue
            for message in queue.take(overhead + 1, budget, count_max - len(found), limit):
                budget -= overhead + 1 + len(message)
                found.append(b"\x08" + message)
        return found

    def user_message(self, message: bytes, now: float) -> None:
        if not message:
            self.counters.drop(reasons.MALFORMED_SERF)
            return
        try:
            self._receive_message(message, now)
        except WireError:
            self.counters.drop(reasons.MALFORMED_SERF)

    def local_state(self, join: bool) -> bytes:
        status_times: dict[str, int] = {}
        left: list[str] = []
        for name, record in self._members.items():
            if record.status in (MemberStatus.LEFT, MemberStatus.LEAVING):
                # The receiver makes a leave intent one higher than this of it: exactly the one that we applied. Serf itself
                # reports the full time, and a leaving member as not left: then exchanges push the time up for ever, and
                # one during a leave makes the receiver ignore the real intent and hold the member for failed.
                status_times[name] = max(0, record.status_time - 1)
                left.append(name)
            else:
                status_times[name] = record.status_time
        return SerfState(
            self._clock.time,
            self._event_clock.time,
            self._query_clock.time,
            status_times,
            left,
            self._recent_events.messages(),
        ).encode()

    def merge_remote_state(self, state: bytes, join: bool, now: float) -> None:
        if state[0] != messages.PUSH_PULL:
            raise WireError(f"Serf state of type {state[0]} instead of {messages.PUSH_PULL}")
        remote = SerfState.decode(state[1:])
        self._clock.witness(remote.lamport_time - 1)
        self._event_clock.witness(remote.event_time - 1)
        self._query_clock.witness(remote.query_time - 1)
        # These intents are made up here from the other side's knowledge, so they are not passed on.
        left = dict.fromkeys(remote.left_members)
        for name in left:
            time = remote.status_times.get(name, 0)
            self._apply_leave_intent(LeaveIntent(time + 1, name, False), now)
        for name, time in remote.status_times.items():
            if name not in left:
                self._apply_join_intent(JoinIntent(time, name), now)
        for time, event_name, payload in remote.events:
            self._receive_user_event(UserEventMessage(time, event_name, payload, False))

    # --- messages

    def _receive_message(self, message: bytes, now: float) -> None:
        kind = message[0]
        body = message[1:]
        if kind == messages.JOIN:
            if self._apply_join_intent(JoinIntent.decode(body), now):
                self._queue(self._intent_queue, message)
        elif kind == messages.LEAVE:
            if self._apply_leave_intent(LeaveIntent.decode(body), now):
                self._queue(self._intent_queue, message)
        elif kind == messages.USER_EVENT:
            if self._receive_user_event(UserEventMessage.decode(body)):
                self._queue(self._event_queue, message)
        elif kind == messages.QUERY:
            query = Query.decode(body)
            if self._receive_query(query, now) and not query.flags & FLAG_NO_BROADCAST:
                self._queue(self._query_queue, message)
        elif kind == messages.QUERY_RESPONSE:
            self._receive_query_response(QueryResponse.decode(body), now)
        elif kind == messages.RELAY:
            relay = Relay.decode(body)
            if not relay.message or relay.message[0] == messages.RELAY:
                raise WireError("relay of nothing or of a relay")
            self.gossip.send_user_message(relay.message, (ip_text(relay.addr), relay.port))
        else:
            self.counters.drop(reasons.UNKNOWN_MESSAGE)

    def _queue(self, queue: BroadcastQueue, message: bytes) -> Broadcast:
        dropped = queue.dropped
        broadcast = queue.queue(message)
        if queue.dropped != dropped:
            self.counters.drop(reasons.BROADCASTS_FULL, queue.dropped - dropped)
        return broadcast

    # --- intents (section 8.3)

    def _apply_join_intent(self, intent: JoinIntent, now: float) -> bool:
        """True when it is news and must be passed on."""
        self._clock.witness(intent.lamport_time)
        record = self._members.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, False, intent.lamport_time, now)
        if intent.lamport_time <= record.status_time:
            return False
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.LEAVING:
            record.status = MemberStatus.ALIVE
        return True

    def _apply_leave_intent(self, intent: LeaveIntent, now: float) -> bool:
        """True when it is news and must be passed on."""
        self._clock.witness(intent.lamport_time)
        record = self._members.get(intent.node)
        if record is None:
            return self._remember_intent(intent.node, True, intent.lamport_time, now)
        if intent.lamport_time <= record.status_time:
            return False
        if record is self._own and self.phase == SerfPhase.ALIVE:
            self._announce_join(now)  # somebody thinks that we go: we do not
            return False
        record.status_time = intent.lamport_time
        if record.status == MemberStatus.ALIVE:
            record.status = MemberStatus.LEAVING
        elif record.status == MemberStatus.FAILED:
            record.status = MemberStatus.LEFT
            self._events.append(MemberLeave(to_member(record, self.counters)))
        if intent.prune:
            self._prune(record, now)
        return True

    def _remember_intent(self, name: str, leave: bool, lamport_time: int, now: float) -> bool:
        if self._recent_intents.add(name, leave, lamport_time, now):
            return True
        if self._recent_intents.is_full():
            self.counters.drop(reasons.INTENTS_FULL)
        return False

    def _announce_join(self, now: float) -> None:
        """Our own join intent: newer than anything said about us so far."""
        intent = JoinIntent(self._clock.time, self._name)
        self._apply_join_intent(intent, now)
        self._queue(self._intent_queue, intent.encode())

    def _prune(self, record: MemberRecord, now: float) -> None:
        if record.status == MemberStatus.LEAVING:
            # It is still going: forget it when it has gone.
            wait = self.config.broadcast_timeout + self.config.leave_propagate_delay
            self._prunes.append((now + wait, record.facts.name))
        elif record is not self._own:
            self._forget(record)

    def _prune_due(self, now: float) -> None:
        due = [name for prune_at, name in self._prunes if prune_at <= now]
        self._prunes = [prune for prune in self._prunes if prune[0] > now]
        for name in due:
            record = self._members.get(name)
            if (
                record is not None
                and record is not self._own
                and record.status in (MemberStatus.LEFT, MemberStatus.FAILED)
            ):
                self._forget(record)

    def _forget(self, record: MemberRecord) -> None:
        del self._members[record.facts.name]
        self._events.append(MemberReap(to_member(record, self.counters)))

    # --- events and queries

    def _receive_user_event(self, event: UserEventMessage) -> bool:
        self._event_clock.witness(event.lamport_time)
        if len(event.name) + len(event.payload) > USER_EVENT_HARD_MAX:
            self.counters.drop(reasons.MESSAGE_TOO_LARGE)
            return False
        seen = self._recent_events.add(event.lamport_time, (event.name, event.payload), self._event_clock.time)
        if not self._is_new(seen):
            return False
        self._deliver(UserEvent(event.lamport_time, event.name, event.payload, event.coalesce))
        return True

    def _is_new(self, seen: int) -> bool:
        if seen == SEEN_TOO_OLD:
            self.counters.drop(reasons.EVENT_TOO_OLD)
        elif seen == SEEN_FULL:
            self.counters.drop(reasons.EVENT_SLOT_FULL)
        return seen == SEEN_NEW

    def _deliver(self, event: UserEvent | QueryReceived) -> None:
        if len(self._events) >= EVENTS_PENDING_MAX:
            self.counters.drop(reasons.EVENTS_FULL)
        else:
            self._events.append(event)

    def _receive_query(self, query: Query, now: float) -> bool:
        self._query_clock.witness(query.lamport_time)
        key = ("", query.query_id.to_bytes(4, "big"))
        if not self._is_new(self._recent_queries.add(query.lamport_time, key, self._query_clock.time)):
            return False
        tags = self.local_member.tags
        if not filters_match(query.filters, self._name, tags):
            return True
        if query.flags & FLAG_ACK:
            self._answer(query.lamport_time, query.query_id, query.addr, query.port, FLAG_ACK, None)
        if query.name.startswith(QUERY_INTERNAL_PREFIX):
            self._receive_internal_query(query)
        else:
            deadline = now + query.timeout_ns / NANOSECONDS
            self._deliver(
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
                return  # we are a party
            record = self._members.get(name)
            if record is None:
                payload = messages.encode_nobody()
            else:
                facts = record.facts
                payload = ConflictResponse(
                    facts.name,
                    facts.addr,
                    facts.port,
                    to_member(record, self.counters).tags,
                    record.status,
                    facts.versions,
                ).encode()
        elif query.name in QUERY_KEYS:
            payload = messages.encode_key_refusal("this node has no keyring: its gossip is not encrypted")
        else:
            self.counters.drop(reasons.UNKNOWN_QUERY)
            return
        self._answer(query.lamport_time, query.query_id, query.addr, query.port, 0, payload)

    def _answer(
        self, lamport_time: int, query_id: int, addr: bytes, port: int, flags: int, payload: bytes | None
    ) -> None:
        response = QueryResponse(lamport_time, query_id, self._name, flags, payload)
        encoded = response.encode()
        if len(encoded) > self.config.query_response_bytes_max:
            raise ValueError(
                f"the answer has {len(encoded)} bytes, at most {self.config.query_response_bytes_max} may be"
            )
        pending = self._queries.get((lamport_time, query_id))
        if pending is not None:
            pending.receive(response)  # our own query: no packet to ourselves
        else:
            self.gossip.send_user_message(encoded, (ip_text(addr), port))

    def _receive_query_response(self, response: QueryResponse, now: float) -> None:
        query = self._queries.get((response.lamport_time, response.query_id))
        if query is not None and now <= query.deadline:
            query.receive(response)

    def _default_query_timeout(self) -> float:
        alive = 0
        for record in self._members.values():
            if record.status == MemberStatus.ALIVE:
                alive += 1
        factor = self.config.query_timeout_mult * math.ceil(math.log10(alive + 1))
        return self.config.profile.gossip_interval * max(1, factor)

    def _finish_queries(self, now: float) -> None:
        finished = [key for key, query in self._queries.items() if query.deadline <= now]
        for key in finished:
            query = self._queries.pop(key)
            if query.conflict:
                self._judge_conflict(query)
            else:
                self._events.append(QueryFinished(query.query_id, list(query.acks), query.responses))

    def _judge_conflict(self, query: PendingQuery) -> None:
        """Who bears our name by majority (section 8.7). Nobody answering is no majority against us: we stay.

        An answer that knows nobody, or somebody who is not alive, is no claim of another living node.
        """
        own = self._own.facts
        claims = 0
        matching = 0
        other: ConflictResponse | None = None
        for payload in query.responses.values():
            if not payload or payload[0] != messages.CONFLICT_RESPONSE:
                continue
            try:
                claim = ConflictResponse.decode(payload[1:])
            except WireError:
                self.counters.drop(reasons.MALFORMED_SERF)
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

    # --- leave, reap, reconnect

    def _advance_leave(self, now: float) -> None:
        if self.phase in (SerfPhase.ALIVE, SerfPhase.LEFT):
            return
        alone = self.gossip.alive_others() == 0
        if self.phase == SerfPhase.SPREADING_INTENT and self._is_spread(now, alone):
            self.phase = SerfPhase.SPREADING_DEATH
            self._leave_broadcast = self.gossip.leave(now)
            self._phase_deadline = now + self.config.broadcast_timeout
        if self.phase == SerfPhase.SPREADING_DEATH and self._is_spread(now, alone):
            self.phase = SerfPhase.PROPAGATING
            self._leave_broadcast = None
            self._phase_deadline = now + self.config.leave_propagate_delay
        if self.phase == SerfPhase.PROPAGATING and (alone or now >= self._phase_deadline):
            self.phase = SerfPhase.LEFT
            self._events.append(Left())

    def _is_spread(self, now: float, alone: bool) -> bool:
        """Whether the broadcast of this phase was sent to the limit, or there is nobody to hear it, or it takes too long."""
        broadcast = self._leave_broadcast
        return alone or broadcast is None or broadcast.finished or now >= self._phase_deadline

    def _reap(self, now: float) -> None:
        self._recent_intents.expire(now - self.config.recent_intent_timeout)
        for record in list(self._members.values()):
            if record is self._own:
                continue
            gone_for = now - record.gone_at
            if (record.status == MemberStatus.FAILED and gone_for > self.config.reconnect_timeout) or (
                record.status == MemberStatus.LEFT and gone_for > self.config.tombstone_timeout
            ):
                self._forget(record)

    def _reconnect(self, now: float) -> None:
        """Try one failed member again, all members together about one try for each failed one (section 8.10)."""
        if self.phase != SerfPhase.ALIVE:
            return
        failed: list[MemberRecord] = []
        alive = 0
        for record in self._members.values():
            if record.status == MemberStatus.FAILED:
                failed.append(record)
            elif record.status == MemberStatus.ALIVE:
                alive += 1
        if not failed or self._rng.random() > len(failed) / max(1, alive):
            return
        record = failed[self._rng.randrange(len(failed))]
        self.gossip.join(record.facts.address(), 0, 0, now)
