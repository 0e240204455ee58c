"""A Serf node without input and output: members with status, intents, leave (wire-gossip 8).

User events and queries are in modules of their own; what comes of them is among the events.

The doors of a core: `receive_packet`, `packets_to_send` and the streams; `next_timeout`, `handle_timeout`; `take_events`.
`now` is monotonic seconds. Ask for packets, stream requests, events and the next timeout after every call.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Final

from federation.gossip.addresses import Address, ip_text, pack_ip
from federation.gossip.broadcasts import retransmit_limit
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.exchange import IncomingStream, StreamRequest
from federation.gossip.gossip import Gossip
from federation.gossip.keyring import Keyring
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT, FactsPool, NodeFacts
from federation.gossip.messages import OUR_VERSIONS
from federation.gossip.msgpack_fields import LEAVE_TIME_MAX, NAME_BYTES_MAX
from federation.gossip.sealing import Sealing
from federation.serf import messages
from federation.serf.asked_queries import AskedQueries, AskedQuery, QueryParameters
from federation.serf.broadcasts import SerfBroadcasts
from federation.serf.config import SerfConfig
from federation.serf.coordinates import Coordinates
from federation.serf.events import Event, JoinResult, KeysChanged, Left, Member, MemberJoin, NameConflict, QueryReceived
from federation.serf.joins import JOIN_ADDRESSES_MAX, PendingJoin
from federation.serf.lamport import LamportClock
from federation.serf.leaving import Leaving, SerfPhase
from federation.serf.messages import (
    FLAG_NO_BROADCAST,
    JoinIntent,
    KeyRequest,
    LeaveIntent,
    Query,
    QueryResponse,
    RelayMessage,
    UserEvent,
)
from federation.serf.name_conflict import NameConflicts
from federation.serf.query_handler import QUERY_CONFLICT, QueryHandler
from federation.serf.roster import INTENT_ABOUT_SELF, INTENT_NEW, Roster
from federation.serf.state import SerfState
from federation.serf.tags import encode_tags
from federation.serf.user_events import UserEvents

MERGE_SLICE_ENTRIES: Final = 2048
"""Names or events of a push-pull that one turn merges, each in 1 to 3 µs."""

_DEFAULTS = QueryParameters()


class Serf(GossipDelegate):
    """One node. Many nodes in one process may share `pool` to save memory. `rng` draws the nonces of encryption, too."""

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
        self._events: list[Event] = []
        self.roster = Roster(facts, config, self.counters, self._events)
        self.roster.own.since = now
        self.keyring = Keyring(config.encrypt_keys, rng) if config.encrypt_keys else None
        sealing = Sealing(self.keyring, config.label, config.verify_incoming, config.verify_outgoing)
        self.gossip = Gossip(facts, config.profile, rng, self.counters, self, self._pool, now, sealing)
        query_clock = LamportClock()
        bytes_max = self.gossip.broadcast_bytes_max
        self.asked_queries = AskedQueries(config, self.roster, query_clock, self._events, rng, self.counters, bytes_max)
        self._queries = QueryHandler(
            self.gossip,
            self.roster,
            self.asked_queries,
            query_clock,
            self._events,
            rng,
            self.counters,
            self.keyring,
            config.keeps_keys,
            not config.verify_incoming,
        )
        self.user_events = UserEvents(self._events, self.counters)
        self.broadcasts = SerfBroadcasts(bytes_max, self.counters)
        self._conflicts = NameConflicts(self.roster, self._events, self.counters)
        self.coordinates = Coordinates(config.node_name, rng, self.counters)
        self._leaving = Leaving(config, self.gossip, self._events)
        self._joins: dict[int, PendingJoin] = {}
        self._last_join_id = 0
        self._reap_at = now + config.reap_interval
        self._reconnect_at = now + config.reconnect_interval
        self._events.append(MemberJoin(self.local_member))

    # --- doors

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        self.gossip.receive_packet(data, source, now)

    def packets_to_send(self) -> list[tuple[bytes, Address]]:
        return self.gossip.packets_to_send()

    def take_stream_requests(self) -> list[StreamRequest]:
        """Streams to open: write the data, pass everything that comes back to `receive_stream_reply`."""
        return self.gossip.exchanges.take_requests()

    def receive_stream_reply(self, request_id: int, data: bytes | None, error: str, now: float) -> bool:
        """A piece of an answer, or None and the error that ended the stream. True: close the stream."""
        return self.gossip.exchanges.receive_reply(request_id, data, error, now)

    def stream_is_behind(self, request_id: int) -> bool:
        """Return whether a part of an answer waits: call `receive_stream_reply` without bytes, in another turn of the loop."""
        return self.gossip.exchanges.is_behind(request_id)

    def admits(self, ip: str) -> bool:
        """Return whether streams from this address are taken; it is counted when they are not."""
        return self.gossip.exchanges.admits(ip)

    def open_incoming_stream(self) -> IncomingStream | None:
        """For an accepted stream; None: too many are open, close it."""
        return self.gossip.exchanges.open_incoming()

    def take_events(self) -> list[Event]:
        events = self._events.copy()
        self._events.clear()
        return events

    def next_timeout(self) -> float:
        first = min(self.gossip.next_timeout(), self._reap_at, self._reconnect_at)
        for part in (self._leaving, self.asked_queries, self.roster):
            at = part.next_timeout()
            if at is not None:
                first = min(first, at)
        return first

    def handle_timeout(self, now: float) -> None:
        self.gossip.handle_timeout(now)
        self._leaving.advance(now)
        self.asked_queries.handle_timeout(now)
        self._conflicts.handle_timeout()
        self.roster.prune_due(now)
        if now >= self._reap_at:
            self._reap_at = now + self.config.reap_interval
            self.roster.reap(now)
            self.coordinates.keep(self.roster.records)
        if now >= self._reconnect_at:
            self._reconnect_at = now + self.config.reconnect_interval
            self._reconnect(now)

    # --- calls of the owner

    @property
    def phase(self) -> SerfPhase:
        return self._leaving.phase

    @property
    def local_member(self) -> Member:
        return self.roster.member(self.roster.own)

    def members(self) -> list[Member]:
        """All known members by name. Failed and left members are included until they are reaped."""
        records = self.roster.records
        return [self.roster.member(records[name]) for name in sorted(records)]

    def member(self, name: str) -> Member | None:
        record = self.roster.records.get(name)
        return None if record is None else self.roster.member(record)

    def is_suspected(self, name: str) -> bool:
        """Return whether gossip suspects the member."""
        node = self.gossip.table.get(name)
        return node is not None and node.state == STATE_SUSPECT

    def alive_addresses(self) -> set[Address]:
        """Return the gossip addresses of members that are alive and not suspected."""
        return {node.facts.address() for node in self.gossip.table.nodes.values() if node.state == STATE_ALIVE}

    def alive_others(self) -> int:
        """Number of members other than this node that gossip holds for alive or suspected."""
        return self.gossip.table.alive_others

    def last_times(self) -> tuple[int, int, int]:
        """The last Lamport times seen, for a snapshot: of members, user events and queries."""
        return (self.roster.clock.time - 1, self.user_events.clock.time - 1, self._queries.clock.time - 1)

    def restore_times(self, member: int, event: int, query: int) -> None:
        """Go on after the times of a snapshot. User events and queries of up to then do not come again."""
        self.roster.clock.witness(member)
        self.user_events.clock.witness(event)
        self._queries.clock.witness(query)
        self.user_events.min_time = event + 1
        self._queries.min_time = query + 1

    def join(self, addresses: list[Address], now: float, ignores_old: bool = False) -> int:
        """Push-pull with each address. Gives the id of the event JoinResult that follows.

        `ignores_old`: user events of before the join are not delivered. A node that has left becomes alive again first.
        ValueError for more than JOIN_ADDRESSES_MAX addresses.
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
        self._joins[join_id] = PendingJoin(join_id, unique, ignores_old)
        for index, address in enumerate(unique):
            self.gossip.exchanges.join(address, join_id, index, now)
        return join_id

    def leave(self, now: float) -> None:
        """Leave gracefully (wire-gossip 8.5). The event Left follows after about two seconds, when others know of it."""
        if self.phase == SerfPhase.LEFT:
            self._events.append(Left())
            return
        if self.phase != SerfPhase.ALIVE:
            return
        self._leaving.phase = SerfPhase.SPREADING_INTENT
        intent = LeaveIntent(self.roster.clock.increment(), self._name, False, False)
        self._apply_leave_intent(intent, now)
        has_others = self.gossip.table.alive_others > 0
        self._leaving.begin(
            self.broadcasts.queue(self.broadcasts.intents, intent.encode()) if has_others else None, now
        )

    def set_tags(self, tags: dict[str, str], now: float) -> None:
        """Tell other tags of this node from now on. ValueError when they are too long."""
        self.gossip.membership.set_meta(encode_tags(tags), now)

    def rejoin(self, now: float) -> None:
        """Become alive again after a leave, with a new incarnation and an intent that is newer than the leave's."""
        if self.phase != SerfPhase.LEFT:
            return
        self._leaving.phase = SerfPhase.ALIVE
        self.gossip.membership.rejoin(now)
        self._announce_join(now)

    def force_leave(self, name: str, now: float, prune: bool = False) -> None:
        """Announce that a failed member has left; an alive member refutes it. A name that this node does not know may be known
        to others, as in Serf. ValueError for this node's own name, and for what is no name."""
        if name == self._name:
            raise ValueError(f"{name!r} is this node itself; use leave")
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise ValueError(f"the name has {len(name.encode())} bytes; names of members have 1 to {NAME_BYTES_MAX}")
        intent = LeaveIntent(self.roster.clock.increment(), name, prune, True)
        self._apply_leave_intent(intent, now)
        self.broadcasts.queue(self.broadcasts.intents, intent.encode())

    def user_event(self, name: str, payload: bytes, coalesce: bool = False) -> None:
        """Send a user event to all members, this node included. ValueError when it is too long."""
        self.broadcasts.queue(self.broadcasts.events, self.user_events.send(name, payload, coalesce))

    def query(
        self,
        name: str,
        payload: bytes,
        now: float,
        parameters: QueryParameters = _DEFAULTS,
        is_quiet: bool = False,
    ) -> AskedQuery:
        """Ask all members, this node included. Gives the collector of acks and responses, which fills until its deadline.

        The events QueryResponded and QueryEnded have its number; `is_quiet`: there are none. ValueError: it is too long, or
        too many queries are under way.
        """
        asked = self.asked_queries.ask(name, payload, parameters, is_quiet, now)
        self._queries.receive(asked.query, now)
        self.broadcasts.queue(self.broadcasts.queries, asked.query.encode())
        return asked

    def answer(self, received: QueryReceived, payload: bytes, now: float) -> None:
        """Respond to a query, once. ValueError: it is too late, or the payload is too long."""
        self._queries.answer(received, payload, now)

    def ask_keys(self, name: str, key: bytes, now: float) -> AskedQuery:
        """Ask all members, this node included, one of QUERY_KEYS; without a key for a list. `count_key_responses` counts
        what comes. ValueError: too many queries are under way."""
        return self.query(name, KeyRequest(key).encode(), now)

    def keys_kept(self, changed: KeysChanged, error: str, now: float) -> None:
        """Answer a change of keys that awaits it. `error`: why they were not kept, "" when they were."""
        self._queries.keys_kept(changed, error, now)

    # --- calls of gossip (GossipDelegate)

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        self.roster.node_joined(facts, now)

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        self.roster.node_updated(facts, now)

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        self.roster.node_left(facts, gracefully, now)

    def node_conflict(self, existing: NodeFacts, other: NodeFacts, now: float) -> None:
        if not self._conflicts.report(existing, other, now):
            return
        if existing.name != self._name:
            self.gossip.tell_conflict(existing, other)
        elif self.phase == SerfPhase.ALIVE and self._conflicts.vote is None:
            self._conflicts.vote = self.query(QUERY_CONFLICT, self._name.encode(), now, is_quiet=True)

    def name_taken(self, ip: str, port: int, now: float) -> None:
        self._events.append(NameConflict(self._name, ip, port, True, True))

    def join_finished(self, join_id: int, index: int, error: str, now: float) -> None:
        join = self._joins.get(join_id)
        if join is None:
            return  # of `_reconnect`
        finished = join.finished(index, error)
        if not error and self.phase == SerfPhase.ALIVE:
            if join.joined == 1:
                self._announce_join(now)
        if finished:
            del self._joins[join_id]
            self._events.append(join.result())

    def take_broadcasts(self, overhead: int, budget: int, count_max: int) -> list[bytes]:
        limit = retransmit_limit(self.config.profile.retransmit_mult, len(self.roster.records))
        return self.broadcasts.take(overhead, budget, count_max, limit)

    def has_broadcasts(self) -> bool:
        return not self.broadcasts.is_empty()

    def ack_payload(self) -> bytes | None:
        return self.coordinates.ack_payload()

    def ping_completed(self, facts: NodeFacts, round_trip: float, payload: bytes | None) -> None:
        self.coordinates.ping_completed(facts.name, round_trip, payload)

    def user_message(self, message: bytes, now: float) -> None:
        if not message:
            self.counters.drop(DropReason.MALFORMED_SERF)
            return
        try:
            self._receive_message(message, now)
        except WireError:
            self.counters.drop(DropReason.MALFORMED_SERF)

    def local_state(self) -> bytes:
        status_times, left = self.roster.status_times()
        return SerfState(
            self.roster.clock.time,
            self.user_events.clock.time,
            self._queries.clock.time,
            status_times,
            left,
            self.user_events.recent(),
        ).encode()

    def merge_remote_state(self, state: bytes, now: float) -> Generator[None, float, None]:
        if state[0] != messages.PUSH_PULL:
            raise WireError(f"Serf state of type {state[0]} instead of {messages.PUSH_PULL}")
        remote = SerfState()
        for _ in remote.read(state[1:]):
            now = yield
        self.counters.drop(DropReason.MALFORMED_SERF, remote.refused)
        self.roster.clock.witness(remote.lamport_time - 1)
        self.user_events.clock.witness(remote.event_time - 1)
        self._queries.clock.witness(remote.query_time - 1)
        # These intents are derived from the other side's state. They are not passed on.
        left = dict.fromkeys(remote.left_members)
        for number, name in enumerate(left, 1):
            time = min(remote.status_times.get(name, 0) + 1, LEAVE_TIME_MAX)
            self._apply_leave_intent(LeaveIntent(time, name, False, False), now)
            if number % MERGE_SLICE_ENTRIES == 0:
                now = yield
        for number, (name, time) in enumerate(remote.status_times.items(), 1):
            if name not in left:
                self.roster.apply_join(JoinIntent(time, name), now)
            if number % MERGE_SLICE_ENTRIES == 0:
                now = yield
        if any(join.ignores_old for join in self._joins.values()):
            self.user_events.min_time = max(self.user_events.min_time, remote.event_time)
        for number, (time, name, payload) in enumerate(remote.events, 1):
            self.user_events.receive(UserEvent(time, name, payload, False))
            if number % MERGE_SLICE_ENTRIES == 0:
                now = yield

    # --- messages

    def _receive_message(self, message: bytes, now: float) -> None:
        kind = message[0]
        body = message[1:]
        if kind == messages.JOIN:
            if self.roster.apply_join(JoinIntent.decode(body), now) == INTENT_NEW:
                self.broadcasts.pass_on(self.broadcasts.intents, message)
        elif kind == messages.LEAVE:
            if self._apply_leave_intent(LeaveIntent.decode(body), now):
                self.broadcasts.pass_on(self.broadcasts.intents, message)
        elif kind == messages.USER_EVENT:
            if self.user_events.receive(UserEvent.decode(body)):
                self.broadcasts.pass_on(self.broadcasts.events, message)
        elif kind == messages.QUERY:
            query = Query.decode(body)
            if self._queries.receive(query, now) and not query.flags & FLAG_NO_BROADCAST:
                self.broadcasts.pass_on(self.broadcasts.queries, message)
        elif kind == messages.QUERY_RESPONSE:
            self.asked_queries.receive_response(QueryResponse.decode(body), now)
        elif kind == messages.RELAY:
            relay = RelayMessage.decode(body)
            if not relay.message or relay.message[0] == messages.RELAY:
                raise WireError("relay of nothing or of a relay")
            self.gossip.send_user_message(relay.message, (ip_text(relay.addr), relay.port))
        else:
            self.counters.drop(DropReason.UNKNOWN_MESSAGE)

    # --- intents (wire-gossip 8.3)

    def _apply_leave_intent(self, intent: LeaveIntent, now: float) -> bool:
        """True when the intent is new: pass it on."""
        outcome = self.roster.apply_leave(intent, self.phase != SerfPhase.ALIVE, now)
        if outcome == INTENT_ABOUT_SELF:
            self._announce_join(now, intent.lamport_time + 1)
        return outcome == INTENT_NEW

    def _announce_join(self, now: float, time_min: int = 0) -> None:
        """Broadcast a join intent of this node, newer than all intents about it.

        `time_min`: the lowest time, for a leave intent whose time the clock did not follow.
        """
        intent = JoinIntent(max(self.roster.clock.time, time_min), self._name)
        self.roster.apply_join(intent, now)
        self.broadcasts.queue(self.broadcasts.intents, intent.encode())

    # --- reconnect

    def _reconnect(self, now: float) -> None:
        """Try to reach one random failed member; the members together make about one attempt for each (wire-gossip 8.9)."""
        if self.phase != SerfPhase.ALIVE:
            return
        failed = self.roster.failed()
        if not failed or self._rng.random() > len(failed) / max(1, self.roster.alive_count()):
            return
        record = failed[self._rng.randrange(len(failed))]
        self.gossip.exchanges.join(record.facts.address(), 0, 0, now)
