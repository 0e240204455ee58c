"""Definitions of several nodes that change while messages get lost: the last writer of each one wins everywhere.

The nodes have the real cores of definitions, of the exchange between two of them and of the cluster's clock. Their clocks
differ by seconds, and one of them may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from federation.cluster_clock import ClusterClock
from federation.definitions.definitions import Definitions
from federation.definitions.document import read_document, write_document
from federation.definitions.entry import POLICY, UPSTREAM, UPSTREAM_SET, Entry, Key
from federation.definitions.error import DefinitionError
from federation.definitions.exchange import Exchange, answer
from federation.definitions.pb.definitions_pb2 import ExchangeAnswer, ExchangeRequest
from simulator.network import Faults
from simulator.world import World

ROUND_SECONDS: Final = 1.0  # between two exchanges that a node begins
START: Final = 1_800_000_000.0  # Unix time at the beginning
SKEW_MAX: Final = 20.0  # seconds between the clock of a node and the true time
WRONG_SKEWS: Final = (-START, -86_400.0, -3600.0, 3600.0, 86_400.0, 2e9, 1.5e10)
CONVERGENCE_LIMIT: Final = 30.0
CLOCK_HEARD_SECONDS: Final = 10.0
"""After them each node knows the clock of each other one. Of two nodes, one stamps with the wrong clock of the other until
then, and a change that it alone has may lose against the one before."""
NETWORK: Final = Faults(loss=0.1, delay_min=0.001, delay_max=0.2)
NAMES: Final = ("a", "b", "c", "d", "e")


class DefinitionNode:
    """A node; `side` is its part of the network. `away` nodes neither ask nor answer."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.definitions = Definitions(name)
        self.side = 0
        self.away = False
        self._skew = world.schedule_rng.uniform(-SKEW_MAX, SKEW_MAX)
        self._asked = 0
        self._clock = ClusterClock()

    @property
    def own_time(self) -> float:
        """Unix seconds of this node's clock."""
        return START + self.world.now + self._skew

    @property
    def time(self) -> float:
        """Unix seconds that this node stamps with."""
        return self._clock.time(self.own_time)

    def restart(self, skew: float | None = None) -> None:
        """Stop and start with the file of the definitions, and a clock that is wrong by `skew`, or by seconds only."""
        self._skew = self.world.schedule_rng.uniform(-SKEW_MAX, SKEW_MAX) if skew is None else skew
        self._asked += 1
        self._clock = ClusterClock()
        entries = read_document(write_document(self.definitions.entries()))
        self.definitions = Definitions(self.name)
        self.definitions.load(entries, self.time)

    def ask(self, other: DefinitionNode) -> None:
        """Begin an exchange. An older one that still waits for an answer is given up."""
        self._asked += 1
        self._go_on(other, Exchange(self.definitions), self._asked)

    def _go_on(self, other: DefinitionNode, exchange: Exchange, asked: int) -> None:
        request = exchange.request()
        if request is not None:
            time = self.own_time

            def reply(found: ExchangeAnswer, answered_at: float) -> None:
                self._take(other, exchange, asked, found, answered_at)

            self._send(other, lambda: other.answer(self, request, time, reply))

    def _take(
        self, other: DefinitionNode, exchange: Exchange, asked: int, found: ExchangeAnswer, answered_at: float
    ) -> None:
        if asked == self._asked:
            self._heard(other, answered_at)
            exchange.receive(found, self.time)
            self._go_on(other, exchange, asked)

    def answer(
        self,
        other: DefinitionNode,
        request: ExchangeRequest,
        asked_at: float,
        reply: Callable[[ExchangeAnswer, float], None],
    ) -> None:
        self._heard(other, asked_at)
        found = answer(self.definitions, request, self.time)
        time = self.own_time
        self._send(other, lambda: reply(found, time))

    def _heard(self, other: DefinitionNode, time: float) -> None:
        self._clock.heard(other.name, time, self.own_time)
        self.definitions.correct(self.time)

    def _send(self, other: DefinitionNode, action: Callable[[], None]) -> None:
        rng = self.world.schedule_rng
        faults = self.world.faults
        if rng.random() < faults.loss:
            return
        self.world.at(
            self.world.now + rng.uniform(faults.delay_min, faults.delay_max),
            lambda: None if self.side != other.side or self.away or other.away else action(),
        )


class DefinitionNodes:
    """`winners` has the entry of each key that must be everywhere in the end."""

    def __init__(self, seed: int, count: int) -> None:
        self.world = World(seed, NETWORK)
        self.rng = self.world.schedule_rng
        self.nodes = [DefinitionNode(self.world, f"n{number}") for number in range(count)]
        self.winners: dict[Key, Entry] = {}
        for node in self.nodes:
            self._round(node)

    def _round(self, node: DefinitionNode) -> None:
        if not node.away:
            node.ask(self.rng.choice([other for other in self.nodes if other is not node]))
        self.world.at(self.world.now + ROUND_SECONDS * (0.5 + self.rng.random()), lambda: self._round(node))

    def change(self) -> None:
        """A node creates, replaces or deletes a definition. It may refuse to, by what it knows."""
        node = self.rng.choice(self.nodes)
        component = self.rng.choice((UPSTREAM, UPSTREAM, UPSTREAM_SET, POLICY))
        name = self.rng.choice(NAMES)
        before = {entry.key: entry for entry in node.definitions.entries()}
        try:
            if self.rng.random() < 0.3:
                node.definitions.delete(component, name, node.time)
            else:
                node.definitions.put(component, name, self._value(component), node.time)
        except DefinitionError:
            return
        for entry in node.definitions.entries():
            if before.get(entry.key) != entry:
                winner = self.winners.get(entry.key)
                self.world.check(
                    entry.key not in before or entry.order > before[entry.key].order, f"{node.name} went back: {entry}"
                )
                if winner is None or entry.order > winner.order:
                    self.winners[entry.key] = entry

    def _value(self, component: str) -> object:
        number = self.rng.randrange(1, 100)
        if component == UPSTREAM:
            return {"uri": f"mqtt://h{number}", "max-hops": number}
        if component == UPSTREAM_SET:
            return [{"upstream": self.rng.choice(NAMES), "max-hops": number}]
        return {"pattern": f"t/{number}/#", "definition": {"federation-upstream-set": "all"}}

    def run(self, seconds: float) -> None:
        """Time passes with changes."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.world.run(self.rng.random() * 0.5)
            self.change()

    def check_convergence(self) -> None:
        """All nodes have the entries of the last writers, and so the same meaning."""
        self.world.run_until(lambda: not self._difference(), CONVERGENCE_LIMIT, f"all agree: {self._difference()}")
        self._check_meaning()

    def check_changes_arrive(self) -> None:
        """A change that any of the nodes makes, one after the other, takes effect on all of them."""
        for number, node in enumerate(self.nodes, 1):
            value = {"uri": f"mqtt://last{number}"}
            node.definitions.put(UPSTREAM, "last", value, node.time)
            self.world.run_until(
                partial(self._all_have, value), CONVERGENCE_LIMIT, f"the change of {node.name} is everywhere"
            )
        self.world.run_until(
            lambda: len({self._digest(node) for node in self.nodes}) == 1, CONVERGENCE_LIMIT, "all agree"
        )
        self._check_meaning()

    def _all_have(self, value: object) -> bool:
        return all(node.definitions.get(UPSTREAM, "last") == value for node in self.nodes)

    def _digest(self, node: DefinitionNode) -> int:
        node.definitions.expire(node.time)  # tombstones that are too old for the clock of one node only
        return node.definitions.digest()

    def _check_meaning(self) -> None:
        first, *others = [node.definitions for node in self.nodes]
        for other in others:
            self.world.check(other.digest() == first.digest(), f"the digest of {other.node} is another one")
            self.world.check(
                other.resolution().links() == first.resolution().links(),
                f"{other.node} runs other links than {first.node}",
            )

    def _difference(self) -> str:
        for node in self.nodes:
            found = {entry.key: entry for entry in node.definitions.entries()}
            for key, winner in self.winners.items():
                if found.get(key) != winner:
                    return f"{node.name} has {found.get(key)} for {winner}"
        return ""


def definitions_converge(seed: int) -> None:
    """Nodes are cut off and away while all of them change the same few definitions."""
    nodes = DefinitionNodes(seed, 5)
    for _ in range(6):
        nodes.run(10.0)
        for node in nodes.nodes:
            node.side = nodes.rng.randrange(2)
            node.away = nodes.rng.random() < 0.2
    for node in nodes.nodes:
        node.side = 0
        node.away = False
    nodes.check_convergence()


def one_clock_is_wrong(seed: int) -> None:
    """A clock that is wrong by an hour to centuries stops no node's changes: neither those of its own node nor those of others,
    neither while it is wrong nor after it was set."""
    nodes = DefinitionNodes(seed, Random(seed).randrange(2, 6))
    wrong = nodes.rng.choice(nodes.nodes)
    nodes.run(nodes.rng.uniform(0.0, 10.0))
    wrong.restart(nodes.rng.choice(WRONG_SKEWS))
    for _ in range(3):
        nodes.run(5.0)
        for node in nodes.nodes:
            node.side = nodes.rng.randrange(2)
    for node in nodes.nodes:
        node.side = 0
    if nodes.rng.random() < 0.5:
        nodes.check_changes_arrive()
    wrong.restart()
    nodes.world.run(CLOCK_HEARD_SECONDS)
    nodes.check_changes_arrive()
    for entry in wrong.definitions.entries():
        nodes.world.check(not entry.is_ahead(wrong.time), f"a clock that is still ahead: {entry}")
