"""The other workers of a machine, as one of them knows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from federation.node import Node
from federation.shell.drain import DrainControl

if TYPE_CHECKING:
    from broker.server.worker import Worker

STREAM: Final = "stream"  # the Unix sockets on which a worker takes the streams of others


def know_siblings(node: Node, control: DrainControl, worker: Worker) -> None:
    """They are reached over Unix sockets, and are drained together; one that leaves gives its sessions to the others. The
    process goes on with the drain of the one before it."""
    place, counts = worker.place, worker.counts
    siblings = place.siblings(node.name)
    node.siblings = {name: f"unix://{worker.path(STREAM, index)}" for name, index in siblings.items()}
    node.ending = frozenset(name for name, index in siblings.items() if index >= place.count)
    if node.drain is not None:
        node.drain.siblings = node.ending if place.is_leaving else frozenset(siblings)
    if node.sessions is not None:
        node.sessions.siblings = frozenset(siblings)
    if not place.is_leaving:
        control.rate_before = counts.drain_rate(place.index)
        control.note_rate = partial(counts.set_drain_rate, place.index)
