"""One worker of a node as its own process sees it: its place, what the supervisor has opened for it, and what it tells it.

A worker says what systemd is told of a process (sd_notify(3)), over a socket to the supervisor: that it is ready, and each
second that it lives. The end of that socket is the end of the supervisor, and the worker stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

from broker.config.settings import Settings
from broker.metrics.metric import Metric, counters
from broker.server.service_manager import ServiceManager
from broker.server.shared_counts import SharedCounts
from broker.server.shared_figures import SharedFigures
from broker.workers.shares import Place, worker_settings

ALIVE_SECONDS: Final = 1.0  # between two signs of life
MESSAGE_BYTES_MAX: Final = 4096
DRAINED: Final = "DRAINED=1"  # of a worker that leaves: others have all that it had, and its folder may be removed


class Worker:
    """place     among the workers of the node
    folder    for the Unix sockets of all workers; only this user may enter it
    gossip    (UDP, TCP) sockets of one port on the loopback address, open since before the process began
    counts    of the connections of all workers
    has_face  the node has an API or metrics
    listening  Unix sockets of `listeners` by path, open in all workers
    channel   to the supervisor: each message is one datagram
    figures   what all workers told last; that of this one is of its former process
    node_started_at  when the supervisor has started, in monotonic seconds
    finish    ends this process gracefully; set when it runs
    """

    def __init__(
        self,
        place: Place,
        folder: str,
        gossip: tuple[socket.socket, socket.socket],
        listening: Mapping[str, socket.socket],
        channel: socket.socket,
        counts: SharedCounts,
        has_face: bool,
        figures: SharedFigures,
        node_started_at: float,
    ) -> None:
        self.place = place
        self.folder = folder
        self.gossip = gossip
        self.listening = listening
        self.channel = channel
        self.counts = counts
        self.has_face = has_face
        self.figures = figures
        self.node_started_at = node_started_at
        self.finish: Callable[[str], None] = lambda reason: None

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of this worker from those of the file."""
        return worker_settings(settings, self.place)

    def metrics(self) -> list[Metric]:
        """Return what worker 0 shows beside the figures that workers tell."""
        text = "Starts of a worker after its process has ended."
        found = [(str(index), float(number)) for index, number in enumerate(self.counts.restarts())]
        return [counters("gmqtt_worker_restarts_total", text, "worker", found)]

    def has_left(self, reason: str) -> None:
        """Others have all that this worker had: tell the supervisor, and end. A word that is lost (the channel is full) means
        that the worker is started once more."""
        with contextlib.suppress(OSError):
            self.channel.send(DRAINED.encode())
        self.finish(reason)

    def path(self, kind: str, index: int) -> str:
        """Return the path of the Unix socket of this kind of the worker with this index."""
        return os.path.join(self.folder, f"{index}.{kind}")


class Channel(ServiceManager):
    """The supervisor in place of systemd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
        super().__init__(loop)
        self._worker = worker
        worker.channel.setblocking(False)
        loop.add_reader(worker.channel.fileno(), self._supervisor_ended)
        self._alive(ALIVE_SECONDS)

    def _supervisor_ended(self) -> None:
        """The supervisor sends nothing: what can be read is its end."""
        self._loop.remove_reader(self._worker.channel.fileno())
        self._worker.finish("the supervisor of the workers has ended")

    def _send(self, text: str) -> None:
        try:
            self._worker.channel.send(text.encode())
        except OSError:
            return  # full, or gone: the supervisor judges by silence
