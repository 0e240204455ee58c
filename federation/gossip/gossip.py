"""The gossip of one node: packets, probes and broadcasts over the membership rules (wire-gossip 3, 6.2, 6.4 and 6.8).

The doors of a core: `receive_packet`, `packets_to_send`, the streams of `exchanges`, `next_timeout` and `handle_timeout`.
The delegate is told what happened.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from federation.gossip.addresses import Address, ip_text
from federation.gossip.broadcasts import retransmit_limit
from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.exchange import Exchanges
from federation.gossip.members import STATE_SUSPECT, FactsPool, Node, NodeFacts
from federation.gossip.membership import Membership
from federation.gossip.messages import (
    ACK,
    ALIVE,
    DEAD,
    INDIRECT_PING,
    NACK,
    PING,
    SUSPECT,
    USER,
    Accusation,
    Ack,
    Alive,
    IndirectPing,
    Nack,
    Ping,
)
from federation.gossip.msgpack_fields import UINT32_MAX
from federation.gossip.probe import Probe, Relay, Relays
from federation.gossip.push_pull import push_pull_scale
from federation.gossip.sealing import PLAIN, Sealing
from federation.gossip.wire import (
    COMPOUND_OVERHEAD,
    COMPOUND_PARTS_MAX,
    PART_OVERHEAD,
    add_crc,
    compressed,
    make_compound,
    open_packet,
)

PACKETS_PENDING_MAX: Final = 8192
"""Packets that the shell has not taken yet; further packets are dropped and counted."""
_CRC_OVERHEAD: Final = 5

# The protocol version (PMax) that a peer needs for each of these.
_STREAM_PING_PROTOCOL: Final = 3
_NACK_PROTOCOL: Final = 4
_CRC_PROTOCOL: Final = 5


class Gossip:
    """`facts` holds the name, address and meta of this node; many nodes of one process may share `pool`."""

    def __init__(
        self,
        facts: NodeFacts,
        config: GossipConfig,
        rng: Random,
        counters: Counters,
        delegate: GossipDelegate,
        pool: FactsPool,
        now: float,
        sealing: Sealing = PLAIN,
    ) -> None:
        # What the layers outside take is not there for messages, here and wherever else it is asked how many fit.
        config = replace(config, packet_bytes_max=config.packet_bytes_max - sealing.overhead)
        self._config = config
        self.broadcast_bytes_max = config.broadcast_bytes_max
        self._sealing = sealing
        self._delegate = delegate
        self._name = facts.name
        self._decoded = pool.decoded
        self.counters = counters
        self.membership = Membership(facts, config, rng, counters, delegate, pool, now)
        self.table = self.membership.table
        self.exchanges = Exchanges(config, self.membership, counters, delegate, sealing)
        self._packets: list[tuple[bytes, Address]] = []
        self._sequence = 0
        self._probe: Probe | None = None
        self._relays = Relays()
        # Periodic tasks start at random moments, so that nodes started together do not act together.
        self._probe_at = now + rng.random() * config.probe_interval
        self._gossip_at = now + rng.random() * config.gossip_interval
        self._push_pull_at = now + rng.random() * config.push_pull_interval
        self._ask_stranger_at = now

    # --- packets

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        self.counters.packets_received += 1
        if not self._config.networks.allow(source[0]):
            self.counters.drop(DropReason.ADDRESS_NOT_ALLOWED)
            return
        for message in open_packet(data, self.counters, self._sealing):
            try:
                self._receive_message(message, source, now)
            except WireError:
                self.counters.drop(DropReason.MALFORMED_MESSAGE)

    def packets_to_send(self) -> list[tuple[bytes, Address]]:
        packets = self._packets
        if packets:
            self._packets = []
            self.counters.packets_sent += len(packets)
        return packets

    def send_user_message(self, message: bytes, address: Address) -> None:
        """Send a user message directly to one address."""
        self._send(b"\x08" + message, address)

    def tell_conflict(self, existing: NodeFacts, other: NodeFacts) -> None:
        """Tell the known holder of a name that `other` claims it too. The holder asks the cluster who keeps the name."""
        node = self.table.get(existing.name)
        if node is not None and node.state <= STATE_SUSPECT:
            # A claim from another address is a conflict at any incarnation.
            alive = Alive(1, other.name, other.addr, other.port, other.meta, other.versions)
            self._send(alive.encode(), existing.address())

    def _receive_message(self, message: bytes, source: Address, now: float) -> None:
        kind = message[0]
        body = message[1:]
        if kind == USER:
            self._delegate.user_message(body, now)
        elif kind == ALIVE:
            self.membership.receive_alive(self._decoded.alive(message), message, now)
        elif kind == PING:
            self._receive_ping(Ping.decode(body), source, now)
        elif kind == ACK:
            self._receive_ack(Ack.decode(body), now)
        elif kind == SUSPECT:
            self.membership.receive_suspect(self._decoded.accusation(message), message, now)
        elif kind == DEAD:
            self.membership.receive_dead(self._decoded.accusation(message), message, now)
        elif kind == INDIRECT_PING:
            self._receive_indirect_ping(IndirectPing.decode(body), source, now)
        elif kind == NACK:
            self._receive_nack(Nack.decode(body))
        else:
            self.counters.drop(DropReason.UNKNOWN_MESSAGE)

    def _receive_ping(self, ping: Ping, source: Address, now: float) -> None:
        if ping.node and ping.node != self._name:
            self.counters.drop(DropReason.PING_FOR_OTHER)
            return
        if ping.source_node and ping.source_addr and ping.source_port and self.table.get(ping.source_node) is None:
            self._pinged_by_stranger((ip_text(ping.source_addr), ping.source_port), now)
        ack = Ack(ping.sequence, self._delegate.ack_payload())
        self._send(ack.encode(), self._answer_address(ping.source_addr, ping.source_port, source))

    def _pinged_by_stranger(self, address: Address, now: float) -> None:
        """Push-pull with an unknown node that pings this one, when this one knows no other member.

        That node still lists this one as a member: this process was restarted before its failure was noticed. Gossip
        carries no news of that (wire-gossip 6.6), and the next push-pull would bring it only after 30 s or more.
        """
        if now < self._ask_stranger_at or self.membership.leaving or self.table.alive_others:
            return
        self._ask_stranger_at = now + self._config.probe_interval
        self.exchanges.push_pull(address, now)

    def _answer_address(self, addr: bytes, port: int, source: Address) -> Address:
        if addr and port:
            return (ip_text(addr), port)
        return source

    def _receive_indirect_ping(self, request: IndirectPing, source: Address, now: float) -> None:
        if not request.target or request.port == 0:
            raise WireError("indirect ping without an address")
        if self._relays.is_full():
            self.counters.drop(DropReason.RELAYS_FULL)
            return
        requester = self._answer_address(request.source_addr, request.source_port, source)
        sequence = self._next_sequence()
        relay = Relay(requester, request.sequence, request.nack, now + self._config.probe_timeout)
        self._relays.add(sequence, relay)
        ping = self.membership.encode_ping(sequence, request.node)
        self._send(ping, (ip_text(request.target), request.port))

    def _receive_ack(self, ack: Ack, now: float) -> None:
        probe = self._probe
        if probe is not None and probe.sequence == ack.sequence:
            self._probe = None
            self.membership.awareness.adjust(-1)
            if not probe.indirect:  # later it may be the ack of an indirect ping
                self._delegate.ping_completed(probe.facts, max(0.0, now - probe.sent_at), ack.payload)
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

    def _send(self, message: bytes, address: Address) -> None:
        """Send a directed message, and broadcasts in the room that is left in its packet."""
        budget = self._config.packet_bytes_max - COMPOUND_OVERHEAD - PART_OVERHEAD - len(message)
        broadcasts = self._take_broadcasts(budget, COMPOUND_PARTS_MAX - 1)
        if broadcasts:
            message = make_compound([message, *broadcasts])
        self._send_packet(message, address)

    def _send_packet(self, data: bytes, address: Address, has_crc: bool = False) -> None:
        if len(self._packets) >= PACKETS_PENDING_MAX:
            self.counters.drop(DropReason.PACKETS_FULL)
        elif address[0] and address[1]:
            if self._config.compression:
                data = compressed(data)
            if has_crc:
                data = add_crc(data)
            self._packets.append((self._sealing.seal_packet(data), address))

    def _take_broadcasts(self, budget: int, count_max: int) -> list[bytes]:
        limit = retransmit_limit(self._config.retransmit_mult, len(self.table))
        messages = self.membership.queue.take(PART_OVERHEAD, budget, count_max, limit)
        for message in messages:
            budget -= PART_OVERHEAD + len(message)
        if len(messages) < count_max:
            messages += self._delegate.take_broadcasts(PART_OVERHEAD, budget, count_max - len(messages))
        return messages

    # --- time

    def next_timeout(self) -> float:
        first = min(self._probe_at, self._push_pull_at)
        if self._has_broadcasts():  # without them the process need not wake up at every gossip interval
            first = min(first, self._gossip_at)
        if self._probe is not None:
            first = min(first, self._probe.next_timeout())
        for at in (self._relays.next_timeout(), self.membership.next_timeout(), self.exchanges.merges.next_timeout()):
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
            suspect = self.membership.suspect_to_remind(now)
            if suspect is not None:
                self._ping_suspect(self._next_sequence(), suspect)
        self.membership.handle_timeout(now)
        self.exchanges.merges.handle_timeout(now)
        if now >= self._gossip_at:
            self._gossip_at = now + self._config.gossip_interval
            if self._has_broadcasts():
                self._gossip(now)
        if now >= self._push_pull_at:
            self._push_pull_at = now + self._config.push_pull_interval * push_pull_scale(len(self.table))
            for node in self.table.random_alive(1, ""):
                self.exchanges.push_pull(node.facts.address(), now)

    def _probe_next(self, now: float) -> None:
        node = self.table.next_to_probe(now, self._config.gossip_to_the_dead_time)
        if node is None:
            return
        self.counters.probes_sent += 1
        interval = self.membership.awareness.scale(self._config.probe_interval)
        sequence = self._next_sequence()
        facts = node.facts
        self._probe = Probe(sequence, facts, node.incarnation, now, now + self._config.probe_timeout, now + interval)
        if node.state == STATE_SUSPECT:
            self._ping_suspect(sequence, node)
        else:
            self._send(self.membership.encode_ping(sequence, facts.name), facts.address())

    def _ping_suspect(self, sequence: int, node: Node) -> None:
        """The suspected member gets the accusation together with the ping and can refute at once."""
        name = node.facts.name
        accusation = Accusation(node.incarnation, name, self._name).encode(SUSPECT)
        self._send_packet(
            make_compound([self.membership.encode_ping(sequence, name), accusation]), node.facts.address()
        )

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
            ping = self.membership.encode_ping(probe.sequence, facts.name)
            self.exchanges.ping(probe, ping, max(0.001, probe.deadline - now), now)

    def _probe_expired(self, probe: Probe, now: float) -> None:
        self._probe = None
        if probe.stream_acked:
            self.membership.awareness.adjust(-1)
            return
        self.counters.probes_failed += 1
        self.membership.awareness.adjust(probe.awareness_penalty())
        self.membership.suspect(probe.facts.name, probe.incarnation, now)

    def _has_broadcasts(self) -> bool:
        """Return whether broadcasts wait and there is another member to send them to."""
        return len(self.table) > 1 and (len(self.membership.queue) > 0 or self._delegate.has_broadcasts())

    def _gossip(self, now: float) -> None:
        budget = self._config.packet_bytes_max - COMPOUND_OVERHEAD - _CRC_OVERHEAD
        config = self._config
        for node in self.table.random_to_gossip(config.gossip_nodes, now, config.gossip_to_the_dead_time):
            messages = self._take_broadcasts(budget, COMPOUND_PARTS_MAX)
            if not messages:
                return
            has_crc = node.facts.versions[1] >= _CRC_PROTOCOL
            self._send_packet(make_compound(messages), node.facts.address(), has_crc)
