"""Nodes that share links among them, in virtual time: splits, kills, late views of the members, calls that fail."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.message import NEVER
from federation.links.ownership import DRAIN_SECONDS_MAX, Ownership
from federation.links.ownership_table import Drain, Owner, Phase, Run, Stop, Table, weight
from federation.links.reconnecting import SessionPlace

LINKS: Final = tuple(f"{number:08x}" for number in range(6))
QUIET_SECONDS: Final = 60.0
"""More than all waits of a claim after each other."""


def member(name: str = "a", waits: bool = False, sessions: dict[str, SessionPlace] | None = None) -> Ownership:
    """A node that has joined at the time 0."""
    ownership = Ownership(name, 1, 100, sessions)
    ownership.join(waits, 0.0)
    return ownership


def phases(ownership: Ownership) -> dict[str, Phase]:
    """What a node does with its links, by link."""
    return {row.link_id: row.phase for row in ownership.table().rows}


@dataclass
class Process:
    """One node: its ownership, what runs there with which epoch, and the links that still drain, with the time of their end."""

    ownership: Ownership
    running: dict[str, int] = field(default_factory=dict)
    draining: dict[str, float] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)


class World:
    """Nodes with a network of groups. Calls take a random time; a call between groups fails. Members are seen late."""

    def __init__(self, rng: random.Random, links: Iterable[str] = LINKS, delay: float = 0.2, view_delay: float = 2.0):
        self.rng = rng
        self.now = 0.0
        self.links = tuple(links)
        self.delay = delay
        self.view_delay = view_delay
        self.loss = 0.0
        self.processes: dict[str, Process] = {}
        self.group: dict[str, int] = {}
        self.views: dict[str, set[str]] = {}
        self.events: list[tuple[float, int, str, tuple[object, ...]]] = []
        self.serial = 0
        self.runs: list[tuple[str, str, int]] = []  # (link, node, epoch) of every start
        self.clocks: dict[str, int] = {}

    # --- what happens to the nodes

    def start(self, name: str, waits: bool = True) -> None:
        # The clocks of machines differ, that of one machine goes on.
        self.clocks[name] = self.clocks.get(name, self.rng.randrange(1_000)) + 1_000
        self.serial += 1
        ownership = Ownership(name, self.serial, self.clocks[name])
        ownership.join(waits, self.now)
        self.processes[name] = Process(ownership)
        self.group.setdefault(name, 0)
        self.views[name] = set()
        ownership.set_links(self.links, self.now)
        self.see_members()
        self.after(name)

    def kill(self, name: str) -> None:
        del self.processes[name]
        del self.views[name]
        self.see_members()

    def split(self, groups: dict[str, int]) -> None:
        self.group.update(groups)
        self.see_members()

    def merge(self) -> None:
        self.group = dict.fromkeys(self.group, 0)
        self.see_members()

    def component(self, name: str) -> set[str]:
        return {other for other in self.processes if self.group[other] == self.group[name]}

    def see_members(self) -> None:
        """Each node sees the members of its group after a time of its own."""
        for name in self.processes:
            self.later(self.rng.uniform(0.0, self.view_delay), "view", name)

    # --- the run

    def later(self, seconds: float, kind: str, *details: object) -> None:
        self.serial += 1
        self.events.append((self.now + seconds, self.serial, kind, details))

    def run_until(self, end: float) -> None:
        for _ in range(200_000):
            timeouts = [
                (max(self.now, at), name)
                for name, process in self.processes.items()
                if (at := self.next_of(process)) != NEVER
            ]
            event = min(self.events) if self.events else None
            timeout = min(timeouts) if timeouts else None
            if event is not None and (timeout is None or event[0] <= timeout[0]):
                if event[0] > end:
                    break
                self.events.remove(event)
                self.now = event[0]
                self.happen(event[2], event[3])
            elif timeout is not None and timeout[0] <= end:
                self.now = timeout[0]
                name = timeout[1]
                process = self.processes[name]
                for link, at in list(process.draining.items()):
                    if at <= self.now:
                        del process.draining[link]
                        process.running.pop(link, None)
                        process.ownership.released(link, self.now)
                process.ownership.handle_timeout(self.now)
                self.after(name)
            else:
                break
        else:
            raise AssertionError("the nodes never rest")
        self.now = end

    def next_of(self, process: Process) -> float:
        return min([process.ownership.next_timeout(), *process.draining.values()])

    def happen(self, kind: str, details: tuple[object, ...]) -> None:
        if kind == "view":
            name = str(details[0])
            if name in self.processes:
                self.views[name] = self.component(name)
                self.processes[name].ownership.set_members(self.views[name], self.now)
                self.after(name)
            return
        sender, receiver, incarnation, table = details
        assert isinstance(sender, str)
        assert isinstance(receiver, str)
        assert isinstance(table, Table)
        process = self.processes.get(sender)
        is_lost = receiver not in self.component(sender) if process is not None else True
        if kind == "tell":
            if is_lost or self.rng.random() < self.loss:
                self.later(self.delay, "fail", sender, receiver, incarnation, table)
            else:
                answer = self.processes[receiver].ownership.handle_table(table, self.now)
                self.later(
                    self.rng.uniform(0.0, self.delay), "answer", sender, receiver, (incarnation, table.serial), answer
                )
                self.after(receiver)
            return
        if process is None:
            return
        if kind == "answer":
            assert isinstance(incarnation, tuple)
            incarnation, serial = incarnation
            if process.ownership.table().incarnation == incarnation:
                if is_lost or self.rng.random() < self.loss:
                    process.ownership.telling_failed(receiver, self.now)
                else:
                    process.ownership.handle_answer(receiver, serial, table, self.now)
        elif process.ownership.table().incarnation == incarnation:
            process.ownership.telling_failed(receiver, self.now)
        self.after(sender)

    def after(self, name: str) -> None:
        """Carry out the orders of a node and send its tables."""
        process = self.processes[name]
        if process.ownership.waits_until_ready():
            process.ownership.ready(self.now)  # the nodes subscribe to nothing
        for order in process.ownership.take_orders():
            if isinstance(order, Run):
                is_again = process.running.get(order.link_id) == order.epoch
                if not is_again:
                    assert order.epoch > process.epochs.get(order.link_id, 0)
                    self.runs.append((order.link_id, name, order.epoch))
                process.epochs[order.link_id] = order.epoch
                process.running[order.link_id] = order.epoch
            elif isinstance(order, Drain):
                # Some drain too slowly: Stop ends them.
                process.draining[order.link_id] = self.now + self.rng.uniform(0.0, 1.2 * DRAIN_SECONDS_MAX)
            else:
                assert isinstance(order, Stop)
                process.draining.pop(order.link_id, None)
                process.running.pop(order.link_id, None)
        for telling in process.ownership.take_tables(self.now):
            self.later(
                self.rng.uniform(0.0, self.delay), "tell", name, telling.name, telling.table.incarnation, telling.table
            )

    # --- what must be true

    def runners(self, link: str) -> list[str]:
        return [name for name, process in self.processes.items() if link in process.running]

    def check_epochs(self) -> None:
        """No epoch (number and node) was ever used for two runs."""
        assert max(Counter(self.runs).values(), default=1) == 1

    def check_rest(self) -> None:
        """In each connected part one node runs each link: the first for it."""
        self.run_until(self.now + QUIET_SECONDS)
        self.check_epochs()
        for name in self.processes:
            part = self.component(name)
            for link in self.links:
                chosen = max(part, key=lambda node: (weight(link, node), node))
                assert [node for node in self.runners(link) if node in part] == [chosen]
                owner = self.processes[name].ownership.owner(link)
                assert owner == Owner(chosen, self.processes[chosen].running[link])
