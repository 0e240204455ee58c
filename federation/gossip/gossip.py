"""The gossip of one node: packets, probes, broadcasts and push-pulls over the membership rules (sections 3, 4 and 6).

Five doors: `receive_packet`, `packets_to_send`, streams, `next_timeout` and `handle_timeout`. What happened goes to the
delegate. Knows no socket, no clock, no task.
"""

from __future__ import annotations

from random import Random
from typing import Final

from federation.gossip import counters as reasons
from federation.gossip.addresses import Address, ip_text
from federation.gossip.broadcasts import Broadcast, retransmit_limit
from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.exchange import (
    PURPOSE_JOIN,
    PURPOSE_NAME,
    PURPOSE_PROBE,
    PURPOSE_PUSH_PULL,
    STREAMS_MAX,
    Exchange,
    IncomingStream,
    StreamRequest,
    stream_fault,
)
from federation.gossip.members import STATE_ALIVE, STATE_SUSPECT, FactsPool, NodeFacts
from federation.gossip.membership import Membership
from federation.gossip.messages import (
    ACK,
    ALIVE,
    DEAD,
    ERROR,
    INDIRECT_PING,
    NACK,
    PING,
    PUSH_PULL,
    SUSPECT,
    USER,
    Accusation,
    Ack,
    Alive,
    IndirectPing,
    Nack,
    Ping,
    PushPull,
    decode_error,
    encode_error,
)
from federation.gossip.msgpack_fields import UINT32_MAX
from federation.gossip.probe import Probe, Relay, Relays
from federation.gossip.push_pull import VersionRange, find_namesake, push_pull_scale
from federation.gossip.streams import StreamDecoder
from federation.gossip.wire import (
    COMPOUND_OVERHEAD,
    COMPOUND_PARTS_MAX,
    PART_OVERHEAD,
    add_crc,
    make_compound,
    open_packet,
    seal_packet,
)

PACKETS_PENDING_MAX: Final = 8192
"""Packets that the shell has not taken yet; further ones are dropped and counted."""
_CRC_OVERHEAD: Final = 5

# The parts of the protocol range (PMax) that a peer must reach.
_STREAM_PING_PROTOCOL: Final = 3
_NACK_PROTOCOL: Final = 4
_CRC_PROTOCOL: Final = 5


class Gossip:
    """`name`, address and meta are in `facts`; `pool` may be shared by many nodes of one process."""

    def __init__(
        self,
        facts: NodeFacts,
        config: GossipConfig,
        rng: Random,
        counters: Counters,
        delegate: GossipDelegate,
        pool: FactsPool,
        now: float,
    ) -> None:
        self._config = config
        self._rng = rng
        self._delegate = delegate
        self._name = facts.name
        self.counters = counters
        self.membership = Membership(facts, config, rng, counters, delegate, pool, now)
        self.table = self.membership.table
        self.incoming_bytes = 0
        self.incoming_streams = 0
        self._packets: list[tuple[bytes, Address]] = []
        self._sequence = 0
        self._probe: Probe | None = None
        self._relays = Relays()
        self._request_id = 0
        self._exchanges: dict[int, Exchange] = {}
        self._requests: list[StreamRequest] = []
        # Periodic tasks start at random moments, so that nodes started together do not act together.
        self._probe_at = now + rng.random() * config.probe_interval
        self._gossip_at = now + rng.random() * config.gossip_interval
        self._push_pull_at = now + rng.random() * config.push_pull_interval
        self._ask_stranger_at = now

    # --- packets

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        self.counters.packets_received += 1
        for message in open_packet(data, self.counters):
            try:
                self._receive_message(message, source, now)
            except WireError:
                self.counters.drop(reasons.MALFORMED_MESSAGE)

    def packets_to_send(self) -> list[tuple[bytes, Address]]:
        packets = self._packets
        if packets:
            self._packets = []
            self.counters.packets_sent += len(packets)
        return packets

    def send_user_message(self, message: bytes, address: Address) -> None:
        """A user message straight to one address."""
        self._send(b"\x08" + message, address)

    def tell_conflict(self, existing: NodeFacts, other: NodeFacts) -> None:
        """Somebody claims a name that we hold for another member's: that one should hear, and ask who it belongs to."""
        node = self.table.get(existing.name)
        if node is not None and node.state <= STATE_SUSPECT:
            # The incarnation does not matter: another address is a conflict whatever it is.
            alive = Alive(1, other.name, other.addr, other.port, other.meta, other.versions)
            self._send(alive.encode(), existing.address())

    def _receive_message(self, message: bytes, source: Address, now: float) -> None:
        kind = message[0]
        body = message[1:]
        if kind == USER:
            self._delegate.user_message(body, now)
        elif kind == ALIVE:
            self.membership.receive_alive(Alive.decode(body), message, now)
        elif kind == PING:
            self._receive_ping(Ping.decode(body), source, now)
        elif kind == ACK:
            self._receive_ack(Ack.decode(body), now)
        elif kind == SUSPECT:
            self.membership.receive_suspect(Accusation.decode(body), message, now)
        elif kind == DEAD:
            self.membership.receive_dead(Accusation.decode(body), message, now)
        elif kind == INDIRECT_PING:
            self._receive_indirect_ping(IndirectPing.decode(body), source, now)
        elif kind == NACK:
            self._receive_nack(Nack.decode(body))
        else:
            self.counters.drop(reasons.UNKNOWN_MESSAGE)

    def _receive_ping(self, ping: Ping, source: Address, now: float) -> None:
        if ping.node and ping.node != self._name:
            self.counters.drop(reasons.PING_FOR_OTHER)
            return
        if ping.source_node and ping.source_addr and ping.source_port and self.table.get(ping.source_node) is None:
            self._pinged_by_stranger((ip_text(ping.source_addr), ping.source_port), now)
        # Coordinates (section 9) would be the payload.
        self._send(Ack(ping.sequence, None).encode(), self._answer_address(ping.source_addr, ping.source_port, source))

    def _pinged_by_stranger(self, address: Address, now: float) -> None:
        """Somebody counts us among its members, and we know nobody: we were started again before our end was noticed.
        Nothing that is gossiped would tell us (section 6.6), so we ask there, and not only when a push-pull finds us."""
        if now < self._ask_stranger_at or self.membership.leaving or self.table.alive_others():
            return
        self._ask_stranger_at = now + self._config.probe_interval
        state = self._encode_state(False)
        self._open(PURPOSE_PUSH_PULL, address, state, self._config.tcp_timeout, 0, 0, now)

    def _answer_address(self, addr: bytes, port: int, source: Address) -> Address:
        if addr and port:
            return (ip_text(addr), port)
        return source

    def _receive_indirect_ping(self, request: IndirectPing, source: Address, now: float) -> None:
        if not request.target or request.port == 0:
            raise WireError("indirect ping without an address")
        if self._relays.is_full():
            self.counters.drop(reasons.RELAYS_FULL)
            return
        requester = self._answer_address(request.source_addr, request.source_port, source)
        sequence = self._next_sequence()
        relay = Relay(requester, request.sequence, request.nack, now + self._config.probe_timeout)
        self._relays.add(sequence, relay)
        self._send(self._ping(sequence, request.node), (ip_text(request.target), request.port))

    def _receive_ack(self, ack: Ack, now: float) -> None:
        probe = self._probe
        if probe is not None and probe.sequence == ack.sequence:
            self._probe = None
            self.membership.awareness.adjust(-1)
            return
        relay = self._relays.take(ack.sequence)
        if relay is not None:
            self._send(Ack(relay.sequence, None).encode(), relay.requester)

    def _receive_nack(self, nack: Nack) -> None:
        probe = self._probe
        if probe is not None and probe.sequence == nack.sequence:
            probe.nacks += 1

    def _next_sequence(self) -> int:
        self._sequence = (self._sequence + 1) & UINT32_MAX
        return self._sequence

    def _ping(self, sequence: int, node: str) -> bytes:
        own = self.membership.own.facts
        # After a leave we still look who is alive, but nobody should take us for a member.
        name = "" if self.membership.leaving else self._name
        return Ping(sequence, node, own.addr, own.port, name).encode()

    def _send(self, message: bytes, address: Address) -> None:
        """A directed message, with broadcasts in what room is left."""
        budget = self._config.packet_bytes_max - COMPOUND_OVERHEAD - PART_OVERHEAD - len(message)
        riders = self._take_broadcasts(budget, COMPOUND_PARTS_MAX - 1)
        if riders:
            message = make_compound([message, *riders])
        self._send_packet(message, address)

    def _send_packet(self, data: bytes, address: Address) -> None:
        if len(self._packets) >= PACKETS_PENDING_MAX:
            self.counters.drop(reasons.PACKETS_FULL)
        elif address[0] and address[1]:
            self._packets.append((seal_packet(data), address))

    def _take_broadcasts(self, budget: int, count_max: int) -> list[bytes]:
        limit = retransmit_limit(self._config.retransmit_mult, len(self.table))
        messages = self.membership.queue.take(PART_OVERHEAD, budget, count_max, limit)
        for message in messages:
            budget -= PART_OVERHEAD + len(message)
        if len(messages) < count_max:
            messages += self._delegate.take_broadcasts(PART_OVERHEAD, budget, count_max - len(messages))
        return messages

    # --- streams that others open

    def open_incoming_stream(self) -> IncomingStream | None:
        """For a stream that was accepted; None when there are too many: close it."""
        if self.incoming_streams >= STREAMS_MAX:
            self.counters.drop(reasons.STREAMS_FULL)
            return None
        self.incoming_streams += 1
        return IncomingStream(self)

    def receive_stream(self, decoder: StreamDecoder, now: float) -> bytes:
        """A complete message on a stream; what to answer."""
        kind = decoder.message_type
        self.counters.drop(reasons.MALFORMED_MESSAGE, decoder.nodes_refused)
        if kind == PING:
            ping = Ping.from_fields(decoder.fields)
            if ping.node and ping.node != self._name:
                self.counters.drop(reasons.PING_FOR_OTHER)
                return b""
            return Ack(ping.sequence, None).encode()
        if kind == PUSH_PULL:
            remote = decoder.push_pull
            assert remote is not None
            if remote.join and self.membership.leaving:
                # A join through us would count as done, and the joiner would not come back after our return.
                self.counters.drop(reasons.STREAM_REFUSED)
                return encode_error(f"node {self._name!r} has left")
            # Our own state first, then the merge: the answer to a join does not contain the joiner (section 4.1).
            reply = self._encode_state(remote.join)
            self._merge(remote, now)
            return reply
        if kind == USER:
            self._delegate.user_message(decoder.user_message, now)
            return b""
        self.counters.drop(reasons.STREAM_REFUSED)
        return b""

    def _encode_state(self, join: bool) -> bytes:
        return PushPull(join, self.membership.encode_nodes(), self._delegate.local_state(join)).encode()

    def _merge(self, remote: PushPull, now: float) -> str:
        """Take over the other side's state. "" or why it is refused."""
        versions = VersionRange()
        for remote_node in remote.nodes:
            versions.add(remote_node.name, remote_node.versions, remote_node.state == STATE_ALIVE)
        for node in self.table.nodes.values():
            versions.add(node.facts.name, node.facts.versions, node.state == STATE_ALIVE)
        refused = versions.refused()
        if refused:
            self.counters.drop(reasons.BAD_VERSION)
            return refused
        self.counters.push_pulls += 1
        self.membership.merge(remote.nodes, now)
        if remote.user_state:
            try:
                self._delegate.merge_remote_state(remote.user_state, remote.join, now)
            except WireError as error:
                self.counters.drop(reasons.MALFORMED_SERF)
                return f"its Serf state does not decode: {error}"
        return ""

    # --- streams that we open

    def join(self, address: Address, join_id: int, index: int, now: float) -> None:
        """Push-pull with one address; the delegate hears the result in `join_finished`."""
        self._open(PURPOSE_JOIN, address, self._encode_state(True), self._config.tcp_timeout, join_id, index, now)

    def take_stream_requests(self) -> list[StreamRequest]:
        requests = self._requests
        if requests:
            self._requests = []
        return requests

    def receive_stream_reply(self, request_id: int, data: bytes | None, error: str, now: float) -> bool:
        """Bytes from a stream that we opened, or None with the error that ended it. True: we are done with it, close it."""
        exchange = self._exchanges.get(request_id)
        if exchange is None:
            return True
        if data is None:
            self._finish(request_id, exchange, error or "closed without an answer", now)
            return True
        try:
            exchange.decoder.receive_data(data)
            if not exchange.decoder.complete:
                return False
            failure = self._receive_reply(exchange, now)
        except WireError as wire_error:
            self.counters.drop(stream_fault(wire_error))
            failure = f"does not speak this gossip: {wire_error}"
        self._finish(request_id, exchange, failure, now)
        return True

    def _open(
        self, purpose: int, address: Address, data: bytes, timeout: float, number: int, index: int, now: float
    ) -> None:
        exchange = Exchange(purpose, address, number, index)
        if len(self._exchanges) >= STREAMS_MAX:
            self.counters.drop(reasons.STREAMS_FULL)
            self._tell(exchange, "too many streams are open", now)
            return
        self._request_id += 1
        self._exchanges[self._request_id] = exchange
        self._requests.append(StreamRequest(self._request_id, address, data, timeout))

    def _receive_reply(self, exchange: Exchange, now: float) -> str:
        """A complete answer; "" or what is wrong with it."""
        decoder = exchange.decoder
        self.counters.drop(reasons.MALFORMED_MESSAGE, decoder.nodes_refused)
        if decoder.message_type == ERROR:
            return f"refused: {decode_error(decoder.fields)}"
        if exchange.purpose in (PURPOSE_PROBE, PURPOSE_NAME):
            if decoder.message_type != ACK:
                return "answered a ping with something else"
            if exchange.purpose == PURPOSE_NAME:
                self._delegate.name_taken(exchange.address[0], exchange.address[1], now)
            else:
                probe = self._probe
                sequence = Ack.from_fields(decoder.fields).sequence
                if probe is not None and probe.sequence == exchange.number == sequence:
                    probe.stream_acked = True
            return ""
        remote = decoder.push_pull
        if remote is None:
            return "answered a push-pull with something else"
        if exchange.purpose == PURPOSE_JOIN:
            taken_by = find_namesake(remote, self.membership.own.facts)
            if taken_by is not None:
                return self._refuse_namesake(taken_by, now)
        return self._merge(remote, now)

    def _refuse_namesake(self, address: Address, now: float) -> str:
        """Our name may be a memory of our former self or a living node: ask there whether it answers to the name."""
        for exchange in self._exchanges.values():
            if exchange.purpose == PURPOSE_NAME and exchange.address == address:
                break
        else:
            ping = self._ping(self._next_sequence(), self._name)
            self._open(PURPOSE_NAME, address, ping, self._config.tcp_timeout, 0, 0, now)
        return f"the node name {self._name!r} is taken by {address[0]}:{address[1]}; give each node its own name"

    def _finish(self, request_id: int, exchange: Exchange, failure: str, now: float) -> None:
        del self._exchanges[request_id]
        self._tell(exchange, failure, now)

    def _tell(self, exchange: Exchange, failure: str, now: float) -> None:
        if exchange.purpose == PURPOSE_JOIN:
            self._delegate.join_finished(exchange.number, exchange.index, failure, now)

    # --- time

    def next_timeout(self) -> float:
        first = min(self._probe_at, self._push_pull_at)
        if self._has_news():  # or five times a second the whole process would wake up for nothing
            first = min(first, self._gossip_at)
        if self._probe is not None:
            first = min(first, self._probe.next_timeout())
        for at in (self._relays.next_timeout(), self.membership.next_timeout()):
            if at is not None:
                first = min(first, at)
        return first

    def handle_timeout(self, now: float) -> None:
        for relay in self._relays.take_expired(now):
            if relay.nack:
                self._send(Nack(relay.sequence).encode(), relay.requester)
        probe = self._probe
        if probe is not None:
            if now >= probe.deadline:
                self._probe_expired(probe, now)
            elif not probe.indirect and now >= probe.ack_deadline:
                self._probe_indirectly(probe, now)
        if now >= self._probe_at:
            self._probe_at = now + self._config.probe_interval
            if self._probe is None:  # a tick during a slow probe is lost, not queued
                self._probe_next(now)
        self.membership.handle_timeout(now)
        if now >= self._gossip_at:
            self._gossip_at = now + self._config.gossip_interval
            if self._has_news():
                self._gossip(now)
        if now >= self._push_pull_at:
            self._push_pull_at = now + self._config.push_pull_interval * push_pull_scale(len(self.table))
            self._push_pull(now)

    def leave(self, now: float) -> Broadcast:
        return self.membership.leave(now)

    def _probe_next(self, now: float) -> None:
        node = self.table.next_to_probe(now, self._config.gossip_to_the_dead_time)
        if node is None:
            return
        self.counters.probes_sent += 1
        interval = self.membership.awareness.scale(self._config.probe_interval)
        sequence = self._next_sequence()
        facts = node.facts
        self._probe = Probe(sequence, facts, node.incarnation, now + self._config.probe_timeout, now + interval)
        ping = self._ping(sequence, facts.name)
        if node.state == STATE_SUSPECT:
            # It hears the accusation together with the ping and can refute at once.
            accusation = Accusation(node.incarnation, facts.name, self._name)
            self._send_packet(make_compound([ping, accusation.encode(SUSPECT)]), facts.address())
        else:
            self._send(ping, facts.address())

    def _probe_indirectly(self, probe: Probe, now: float) -> None:
        probe.indirect = True
        facts = probe.facts
        own = self.membership.own.facts
        for relay in self.table.random_alive(self._config.indirect_checks, facts.name):
            nack = relay.facts.versions[1] >= _NACK_PROTOCOL
            probe.nacks_expected += 1 if nack else 0
            request = IndirectPing(
                probe.sequence, facts.addr, facts.port, facts.name, nack, own.addr, own.port, self._name
            )
            self._send(request.encode(), relay.facts.address())
        if facts.versions[1] >= _STREAM_PING_PROTOCOL:
            ping = self._ping(probe.sequence, facts.name)
            timeout = max(0.001, probe.deadline - now)
            self._open(PURPOSE_PROBE, facts.address(), ping, timeout, probe.sequence, 0, now)

    def _probe_expired(self, probe: Probe, now: float) -> None:
        self._probe = None
        if probe.stream_acked:
            self.membership.awareness.adjust(-1)
            return
        self.counters.probes_failed += 1
        self.membership.awareness.adjust(probe.awareness_penalty())
        self.membership.suspect(probe.facts.name, probe.incarnation, now)

    def _has_news(self) -> bool:
        """Something to tell, and somebody to tell it to."""
        return len(self.table) > 1 and (len(self.membership.queue) > 0 or self._delegate.has_broadcasts())

    def _gossip(self, now: float) -> None:
        budget = self._config.packet_bytes_max - COMPOUND_OVERHEAD - _CRC_OVERHEAD
        config = self._config
        for node in self.table.random_to_gossip(config.gossip_nodes, now, config.gossip_to_the_dead_time):
            messages = self._take_broadcasts(budget, COMPOUND_PARTS_MAX)
            if not messages:
                return
            data = make_compound(messages)
            if node.facts.versions[1] >= _CRC_PROTOCOL:
                data = add_crc(data)
            self._send_packet(data, node.facts.address())

    def _push_pull(self, now: float) -> None:
        for node in self.table.random_alive(1, ""):
            state = self._encode_state(False)
            self._open(PURPOSE_PUSH_PULL, node.facts.address(), state, self._config.tcp_timeout, 0, 0, now)

    def alive_others(self) -> int:
        return self.table.alive_others()
