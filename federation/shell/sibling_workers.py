"""The other workers of a machine, as one of them knows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from federation.node import Node
from federation.shell.drain import DrainControl

if TYPE_CHECKING:
    from broker.server.worker import Worker

STREAM: Final = "stream"  # the Unix sockets on which a worker takes the streams of others


def know_siblings(
    node: Node, addresses: dict[str, str], ending: frozenset[str] = frozenset(), is_leaving: bool = False
) -> None:
    """The other workers of the node are reached at these addresses, by name, and are drained together; one that leaves gives
    its sessions to the others. ending: those that leave; is_leaving: this one does."""
    node.siblings = addresses
    node.ending = ending
    if node.drain is not None:
        node.drain.siblings = ending if is_leaving else frozenset(addresses)
        node.drain.is_leaving = is_leaving
    if node.sessions is not None:
        node.sessions.siblings = dict(addresses)


def begin_as_worker(node: Node, control: DrainControl, worker: Worker, store_type: str) -> None:
    """The others are reached over Unix sockets. The process follows the drain of the node, also one of before its start."""
    node.knows_ending = store_type == "sqlite"  # of a Redis store a worker that the node has no more is not started
    place, counts = worker.place, worker.counts
    siblings = place.siblings(node.name)
    node.worker_of = place.node_name(node.name)
    ending = frozenset(name for name, index in siblings.items() if index >= place.count)
    paths = {name: f"unix://{worker.path(STREAM, index)}" for name, index in siblings.items()}
    know_siblings(node, paths, ending, place.is_leaving)
    if not place.is_leaving:
        control.wanted_rate = partial(counts.drain_rate, place.index)
        control.note_rate = partial(counts.set_drain_rate, place.index)
        control.note_rates = counts.set_drain_rates
