"""The member table (wire-gossip 6): facts that nodes of one process share, and this node's own record of each member.

N simulated nodes keep N x N records. The facts (name, address, meta, versions) are kept once, in a pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from federation.gossip.addresses import Address, ip_text
from federation.gossip.decoded import DecodedBroadcasts

STATE_ALIVE: Final = 0
STATE_SUSPECT: Final = 1
STATE_DEAD: Final = 2
STATE_LEFT: Final = 3

MEMBERS_MAX: Final = 16_384
"""Names in the table, dead and left members included. Alive messages of further names are dropped and counted."""

FACTS_POOL_MAX: Final = 32_768
"""Facts in one pool; a full pool is emptied. Records keep the facts that they hold."""


def is_node_name(name: str) -> bool:
    """Return whether a member may have the name. Control and format characters would change what terminals and logs
    show."""
    return name.isprintable() and name != ""


class NodeFacts:
    """A member's own statement about itself. Facts never change: a member with new tags gets new facts."""

    __slots__ = ("addr", "encoded", "ip", "meta", "name", "port", "tags", "versions")

    def __init__(self, name: str, addr: bytes, port: int, meta: bytes, versions: bytes) -> None:
        self.name = name
        self.addr = addr
        self.port = port
        self.meta = meta
        self.versions = versions
        self.ip = ip_text(addr)
        self.tags: dict[str, str] | None = None  # decoded by Serf on first use
        self.encoded: tuple[int, int, bytes] | None = None  # incarnation, state, and the entry of a push-pull with them

    def address(self) -> Address:
        return (self.ip, self.port)


class FactsPool:
    """Keeps one copy of equal facts, and what is decoded of broadcasts. Many nodes in one process may share a pool."""

    def __init__(self) -> None:
        self.decoded = DecodedBroadcasts()
        self._facts: dict[tuple[str, bytes, int, bytes, bytes], NodeFacts] = {}

    def get(self, name: str, addr: bytes, port: int, meta: bytes, versions: bytes) -> NodeFacts:
        key = (name, addr, port, meta, versions)
        facts = self._facts.get(key)
        if facts is None:
            if len(self._facts) >= FACTS_POOL_MAX:
                self._facts.clear()
            facts = NodeFacts(name, addr, port, meta, versions)
            self._facts[key] = facts
        return facts


@dataclass(slots=True, eq=False)
class Node:
    """This node's record of one member. `changed_at`: time of the last change of its state. `former`: what it said when it was
    at another address."""

    facts: NodeFacts
    changed_at: float
    incarnation: int = 0
    state: int = STATE_DEAD
    former: NodeFacts | None = None


class MemberTable:
    """All known members by name, and the shuffled round in which they are probed.

    `alive_others`: members other than this node that are alive or suspected.
    """

    def __init__(self, own_name: str, rng: Random) -> None:
        self._own_name = own_name
        self._rng = rng
        self.alive_others = 0
        self.nodes: dict[str, Node] = {}
        self._order: list[Node] = []
        self._probe_index = 0

    def __len__(self) -> int:
        return len(self._order)

    def get(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def add(self, node: Node) -> None:
        """Add a member at a random place of the round, so that different nodes probe a new member at different times."""
        name = node.facts.name
        assert name not in self.nodes
        self.nodes[name] = node
        at = self._rng.randrange(len(self._order) + 1)
        self._order.append(node)
        self._order[at], self._order[-1] = self._order[-1], self._order[at]
        if node.state <= STATE_SUSPECT and name != self._own_name:
            self.alive_others += 1

    def set_state(self, node: Node, state: int, now: float) -> None:
        if node.facts.name != self._own_name:
            self.alive_others += (state <= STATE_SUSPECT) - (node.state <= STATE_SUSPECT)
        node.state = state
        node.changed_at = now

    def next_to_probe(self, now: float, dead_time: float) -> Node | None:
        """The next alive or suspected member of the round. A new round removes members that were dead for `dead_time` s."""
        for _ in range(2 * len(self._order)):  # the rest of this round and a whole new one
            if self._probe_index >= len(self._order):
                self._start_round(now, dead_time)
                if not self._order:
                    return None
            node = self._order[self._probe_index]
            self._probe_index += 1
            if node.state <= STATE_SUSPECT and node.facts.name != self._own_name:
                return node
        return None

    def _start_round(self, now: float, dead_time: float) -> None:
        kept: list[Node] = []
        for node in self._order:
            if node.state >= STATE_DEAD and now - node.changed_at > dead_time and node.facts.name != self._own_name:
                del self.nodes[node.facts.name]
            else:
                kept.append(node)
        self._order = kept
        self._rng.shuffle(kept)
        self._probe_index = 0

    def random_alive(self, count: int, excluded: str) -> list[Node]:
        """Up to `count` random members that are alive (not suspected), without this node and `excluded`."""
        chosen: list[Node] = []
        for node in self._candidates(count):
            if node.state == STATE_ALIVE and node.facts.name not in (self._own_name, excluded) and node not in chosen:
                chosen.append(node)
                if len(chosen) == count:
                    break
        return chosen

    def random_to_gossip(self, count: int, now: float, dead_time: float) -> list[Node]:
        """Up to `count` random members to gossip to: alive, suspected, or dead for at most `dead_time` s; never left."""
        chosen: list[Node] = []
        for node in self._candidates(count):
            if node.state == STATE_LEFT or (node.state == STATE_DEAD and now - node.changed_at > dead_time):
                continue
            if node.facts.name != self._own_name and node not in chosen:
                chosen.append(node)
                if len(chosen) == count:
                    break
        return chosen

    def _candidates(self, count: int) -> Iterator[Node]:
        """A few random members of a large table, then all members, shuffled, so that none that fits is missed: memberlist
        stops after the few and misses the only other node of three in one of 38 cases."""
        total = len(self._order)
        if total > 3 * count + 2:
            random = self._rng.random
            for _ in range(3 * count):
                yield self._order[int(random() * total)]
        order = self._order.copy()
        self._rng.shuffle(order)
        yield from order
