"""The members that are alive: the rules of incarnation and state, suspicion and refutation (wire-gossip 6.6).

Precedence: the higher incarnation wins; at equal incarnations dead and left win over suspect, and suspect over alive. Only
a node itself raises its incarnation.
"""

from __future__ import annotations

from random import Random

from federation.gossip.awareness import Awareness
from federation.gossip.broadcasts import Broadcast, BroadcastQueue
from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.members import (
    MEMBERS_MAX,
    STATE_ALIVE,
    STATE_DEAD,
    STATE_LEFT,
    STATE_SUSPECT,
    FactsPool,
    MemberTable,
    Node,
    NodeFacts,
    is_node_name,
)
from federation.gossip.messages import DEAD, SUSPECT, VERSION_BYTES, Accusation, Alive, Ping, PushPullNode
from federation.gossip.msgpack_fields import ACCUSED_INCARNATION_MAX, UINT32_MAX
from federation.gossip.suspicion import Suspicion, Suspicions, confirmations_wanted, suspicion_timeout


class Membership:
    """This node's view of the cluster. `own` is its own record; `queue` holds the broadcasts about members."""

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
        self._counters = counters
        self._delegate = delegate
        self._pool = pool
        self.name = facts.name
        self._suspicions = Suspicions()
        self._leave_broadcast: Broadcast | None = None
        self.leaving = False
        self.awareness = Awareness(config.awareness_max_multiplier)
        self.queue = BroadcastQueue()
        self.table = MemberTable(facts.name, rng)
        self.incarnation = 1
        self.own = Node(facts, now)
        self.own.incarnation = 1
        self.own.state = STATE_ALIVE
        self.table.add(self.own)
        self._broadcast_own()

    # --- what this node says about itself

    def leave(self, now: float) -> Broadcast:
        """Announce this node's leave (wire-gossip 6.10). The broadcast is finished when it was sent to its limit."""
        self.leaving = True
        self._set_dead(Accusation(self.own.incarnation, self.name, self.name), now)
        assert self._leave_broadcast is not None
        return self._leave_broadcast

    def rejoin(self, now: float) -> None:
        """Announce this node as alive again after a leave, with a new incarnation."""
        assert self.leaving
        self.leaving = False
        self._leave_broadcast = None
        self._raise_incarnation(0)
        self.table.set_state(self.own, STATE_ALIVE, now)
        self._broadcast_own()
        self._delegate.node_joined(self.own.facts, now)

    def set_meta(self, meta: bytes, now: float) -> None:
        """Announce another meta of this node."""
        facts = self.own.facts
        self.own.facts = self._pool.get(facts.name, facts.addr, facts.port, meta, facts.versions)
        if not self.leaving:
            self._raise_incarnation(0)
            self._broadcast_own()
            self._delegate.node_updated(self.own.facts, now)

    def _refute(self, accused_incarnation: int) -> None:
        self._raise_incarnation(accused_incarnation)
        self._counters.refutations += 1
        self.awareness.adjust(1)
        self._broadcast_own()

    def _raise_incarnation(self, above: int) -> None:
        self.incarnation = min(max(self.incarnation, above) + 1, UINT32_MAX)
        self.own.incarnation = self.incarnation

    def _broadcast_own(self) -> None:
        facts = self.own.facts
        alive = Alive(self.own.incarnation, self.name, facts.addr, facts.port, facts.meta, facts.versions)
        self.queue.queue(alive.encode(), self.name)

    def encode_ping(self, sequence: int, node: str) -> bytes:
        """A ping from this node to `node`."""
        own = self.own.facts
        # A node that has left still probes others. Without its name in the ping nobody takes it for a member.
        name = "" if self.leaving else self.name
        return Ping(sequence, node, own.addr, own.port, name).encode()

    # --- what others say

    def receive_alive(self, alive: Alive, encoded: bytes, now: float) -> None:
        """Apply an alive message; `encoded`, the whole message, is broadcast unchanged when it is new."""
        if self.leaving and alive.node == self.name:
            return  # this node has left and refutes nothing
        if not alive.node or not alive.addr or len(alive.versions) != VERSION_BYTES or alive.port == 0:
            self._counters.drop(DropReason.MALFORMED_MESSAGE)
            return
        if not is_node_name(alive.node):
            self._counters.drop(DropReason.BAD_NAME)
            return
        versions = alive.versions
        if versions[0] == 0 or versions[1] == 0 or versions[0] > versions[1]:
            self._counters.drop(DropReason.BAD_VERSION)
            return
        facts = self._pool.get(alive.node, alive.addr, alive.port, alive.meta, versions)
        node = self.table.get(alive.node)
        if node is not self.own and not self._config.networks.allow(facts.ip):
            self._counters.drop(DropReason.ADDRESS_NOT_ALLOWED)
            return
        moved = False
        if node is None:
            if alive.incarnation == 0:
                self._counters.drop(DropReason.MALFORMED_MESSAGE)
                return
            if len(self.table) >= MEMBERS_MAX:
                self._counters.drop(DropReason.TABLE_FULL)
                return
            node = Node(facts, now)
            self.table.add(node)
        elif node.facts.port != alive.port or (
            # As in memberlist the bytes are compared. For this node the 4 and 16 byte forms of one address are equal.
            node.facts.addr != alive.addr and (node is not self.own or node.facts.ip != facts.ip)
        ):
            if _is_of_before(node, alive):
                return
            if not self._may_move(node, alive.incarnation, now):
                if node.state == STATE_DEAD:
                    return  # the member has not heard of its death yet: it will speak again, at a later incarnation
                self._counters.drop(DropReason.NAME_CONFLICT)
                self._delegate.node_conflict(node.facts, facts, now)
                return
            moved = True
            node.former = node.facts
        if alive.node == self.name:
            self._receive_alive_about_self(alive, facts)
            return
        if alive.incarnation <= node.incarnation and not moved:
            return  # known already, or outdated
        self._suspicions.end(alive.node)
        if len(encoded) > self._config.broadcast_bytes_max:
            encoded = alive.encode()  # without the unknown fields
        self.queue.queue(encoded, alive.node)
        meta_changed = node.facts.meta != facts.meta
        old_state = node.state
        node.incarnation = alive.incarnation
        node.facts = facts
        if old_state != STATE_ALIVE:
            self.table.set_state(node, STATE_ALIVE, now)
            self._members_changed()
        if old_state >= STATE_DEAD:
            self._delegate.node_joined(facts, now)
        elif meta_changed:
            self._delegate.node_updated(facts, now)

    def _may_move(self, node: Node, incarnation: int, now: float) -> bool:
        """Return whether a member may return from another address: it left, or it is dead and speaks of itself at a later
        incarnation, or it has been dead for the reclaim time."""
        if node.state == STATE_LEFT:
            return True
        if node.state == STATE_DEAD and incarnation > node.incarnation:
            return True  # it has heard of its death: it is no message of before
        reclaim_time = self._config.dead_node_reclaim_time
        return node.state == STATE_DEAD and reclaim_time > 0 and now - node.changed_at > reclaim_time

    def _receive_alive_about_self(self, alive: Alive, facts: NodeFacts) -> None:
        if alive.incarnation < self.own.incarnation:
            return
        if (
            alive.incarnation == self.own.incarnation
            and facts.meta == self.own.facts.meta
            and facts.versions == self.own.facts.versions
        ):
            return  # an echo of this node's own broadcast
        # Others remember a former process of this node; the new incarnation must be above its incarnation (wire-gossip 6.6).
        self._refute(alive.incarnation)

    def receive_suspect(self, suspect: Accusation, encoded: bytes, now: float) -> None:
        node = self.table.get(suspect.node)
        if node is None:
            return  # unknown
        if suspect.incarnation < node.incarnation:
            return  # outdated: the member has refuted it
        if len(encoded) > self._config.broadcast_bytes_max:
            encoded = suspect.encode(SUSPECT)
        suspicion = self._suspicions.get(suspect.node)
        if suspicion is not None:
            if suspect.incarnation > node.incarnation:
                # memberlist keeps the first incarnation; the result would depend on the order of two accusations.
                node.incarnation = suspect.incarnation
                suspicion.incarnation = suspect.incarnation
            if self._suspicions.confirm(suspect.node, suspect.origin):
                self.queue.queue(encoded, suspect.node)
            return
        if node.state != STATE_ALIVE:
            return  # dead or left already
        if suspect.node == self.name:
            self._refute(suspect.incarnation)
            return
        self.queue.queue(encoded, suspect.node)
        self._counters.suspicions += 1
        node.incarnation = suspect.incarnation
        self.table.set_state(node, STATE_SUSPECT, now)
        config = self._config
        shortest = suspicion_timeout(config.suspicion_mult, len(self.table), config.probe_interval)
        longest = shortest * config.suspicion_max_timeout_mult
        wanted = self._suspicions.wanted
        suspicion = Suspicion(suspect.incarnation, suspect.origin, wanted, shortest, longest, now)
        self._suspicions.add(suspect.node, suspicion)
        if suspect.origin == self.name:
            self._suspicions.remind(suspect.node, now + shortest / 2)
        self._members_changed()

    def receive_dead(self, dead: Accusation, encoded: bytes, now: float) -> None:
        node = self.table.get(dead.node)
        if node is None or dead.incarnation < node.incarnation:
            return  # unknown, or outdated
        self._suspicions.end(dead.node)
        if node.state >= STATE_DEAD:
            return
        if dead.node == self.name:
            if not self.leaving:
                self._refute(dead.incarnation)
                return
            self._leave_broadcast = self.queue.queue(encoded, dead.node)
        else:
            self.queue.queue(
                encoded if len(encoded) <= self._config.broadcast_bytes_max else dead.encode(DEAD), dead.node
            )
        node.incarnation = dead.incarnation
        self.table.set_state(node, STATE_LEFT if dead.node == dead.origin else STATE_DEAD, now)
        self._members_changed()
        self._delegate.node_left(node.facts, node.state == STATE_LEFT, now)

    def suspect(self, name: str, incarnation: int, now: float) -> None:
        """This node's own probe of a member at this incarnation failed."""
        accusation = Accusation(incarnation, name, self.name)
        self.receive_suspect(accusation, accusation.encode(SUSPECT), now)

    def _set_dead(self, dead: Accusation, now: float) -> None:
        self.receive_dead(dead, dead.encode(DEAD), now)

    def _members_changed(self) -> None:
        """A member has another state. The suspicions that run want as many confirmations as there can be now."""
        living = self.table.alive_others + 1
        unsuspected = self.table.alive_others - len(self._suspicions)
        self._suspicions.want(confirmations_wanted(self._config.suspicion_mult, living, unsuspected))

    # --- push-pull

    def encode_nodes(self) -> list[bytes]:
        """All known members for a push-pull, each encoded."""
        return [_encode_node(node) for node in self.table.nodes.values()]

    def merge(self, nodes: list[PushPullNode], now: float) -> None:
        """Merge the other side's members; those that it holds for dead become suspects here (wire-gossip 6.7)."""
        for remote in nodes:
            if remote.state == STATE_ALIVE:
                alive = Alive(remote.incarnation, remote.name, remote.addr, remote.port, remote.meta, remote.versions)
                known = self.table.get(remote.name)
                if known is not None and self._is_outdated(known, remote):
                    continue
                self.receive_alive(alive, alive.encode(), now)
            elif remote.incarnation > ACCUSED_INCARNATION_MAX:
                self._counters.drop(DropReason.MALFORMED_MESSAGE)
            elif remote.state == STATE_LEFT:
                self._set_dead(Accusation(remote.incarnation, remote.name, remote.name), now)
            else:
                accusation = Accusation(remote.incarnation, remote.name, self.name)
                self.receive_suspect(accusation, accusation.encode(SUSPECT), now)

    def _is_outdated(self, known: Node, remote: PushPullNode) -> bool:
        """Return whether `receive_alive` would ignore this node, as most of a push-pull, found out without building a
        message."""
        return (
            remote.incarnation <= known.incarnation
            and remote.port == known.facts.port
            and remote.addr == known.facts.addr
            and known is not self.own
        )

    # --- time

    def suspect_to_remind(self, now: float) -> Node | None:
        """A member that this node accuses, and that it has not told so for half of the shortest suspicion.

        The accusation may not have reached it, as when the network was cut; in a large cluster the next probe is far.
        memberlist tells a suspect with the next probe only.
        """
        name = self._suspicions.take_reminder(now)
        if not name:
            return None
        config = self._config
        interval = suspicion_timeout(config.suspicion_mult, len(self.table), config.probe_interval) / 2
        self._suspicions.remind(name, now + interval)
        return self.table.get(name)

    def next_timeout(self) -> float | None:
        return self._suspicions.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Suspects whose timeout has passed are dead."""
        for name, suspicion in self._suspicions.take_expired(now):
            node = self.table.get(name)
            if node is not None and node.state == STATE_SUSPECT:
                self._set_dead(Accusation(suspicion.incarnation, name, self.name), now)


def _is_of_before(node: Node, alive: Alive) -> bool:
    """Return whether the message is one that the member sent from its former address, and that is still on its way."""
    former = node.former
    if former is None or alive.incarnation >= node.incarnation:
        return False
    return alive.addr == former.addr and alive.port == former.port


def _encode_node(node: Node) -> bytes:
    """The last encoding stays with the facts: a member that has not changed since the last push-pull is not encoded again."""
    facts = node.facts
    last = facts.encoded
    if last is None or last[0] != node.incarnation or last[1] != node.state:
        entry = PushPullNode(
            facts.name, facts.addr, facts.port, facts.meta, node.incarnation, node.state, facts.versions
        )
        last = (node.incarnation, node.state, entry.encode_map())
        facts.encoded = last
    return last[2]
