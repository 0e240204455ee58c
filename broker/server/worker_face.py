"""One API, one page of metrics, one health check, one $SYS for a node of several workers.

Each worker tells its figures to the others, in memory that they share. Worker 0 has the addresses of the API, and asks the
others where an answer needs more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.api.siblings import Siblings
from broker.metrics.figures import (
    STARTING,
    Figures,
    Numbers,
    continued,
    decoded,
    decoded_life,
    encoded,
    encoded_life,
    joined_metrics,
    summed,
)
from broker.metrics.metric import Metric, gauges
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.api.server import ApiServer
    from broker.server.worker import Worker

API: Final = "api"  # the Unix sockets on which worker 0 calls the others
TELL_SECONDS: Final = 1.0
IDLE_TELLS_MAX: Final = 10  # one after the other with the metrics of before, while no number of the worker changes
SILENT_SECONDS_MAX: Final = 5.0  # without figures, before a worker counts as not ready


class WorkerFace:
    """siblings   the other workers, for the API of worker 0; None at other workers, and where there is no API
    too_long   how often the metrics of this worker had no room, and the rest was told without them
    """

    def __init__(self, worker: Worker, own: Callable[[bool], Figures]) -> None:
        """own: the figures of this process alone, with its metrics or without."""
        self._worker = worker
        self._index = worker.place.index
        self._own = own
        self._before = decoded(worker.figures.read(self._index))
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._log = get_logger("api")
        self.too_long = 0
        self._numbers: tuple[Numbers, Numbers] | None = None  # with the metrics that were told last
        self._metrics = b""
        self._idle_tells = 0
        self.siblings: Siblings | None = None
        if self._index == 0 and worker.has_face:
            self.siblings = Siblings({index: worker.path(API, index) for index in range(1, worker.place.count)})

    async def start(self, api: ApiServer | None) -> None:
        """Raises StartError."""
        self._tell_again()
        if self.siblings is None and api is not None:
            await api.start_private(self._worker.path(API, self._index))

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.siblings is not None:
            await self.siblings.stop()

    def _tell_again(self) -> None:
        try:
            self.tell_on()
        except Exception as error:
            self._log.error("fault in telling figures", exc_info=error)
        self._timer = self._loop.call_later(TELL_SECONDS, self._tell_again)

    def tell_on(self) -> None:
        """Tell the figures. Metrics of a worker that does nothing cost most, and are those of before."""
        figures = continued(self._own(False), self._before)
        if (figures.totals, figures.present) != self._numbers or self._idle_tells >= IDLE_TELLS_MAX:
            self.tell()
            return
        self._idle_tells += 1
        self._worker.figures.write(self._index, encoded_life(figures) + self._metrics)

    def tell(self) -> Figures:
        """Return the figures of this worker, with those of its former processes. What is shown to anybody is told to the others
        before: the next process of this worker goes on with that."""
        figures = continued(self._own(True), self._before)
        text = encoded(figures)
        self._numbers = figures.totals, figures.present
        self._metrics = text[text.index(b"\n") + 1 :]
        self._idle_tells = 0
        if not self._worker.figures.write(self._index, text):
            self._numbers = None
            self._worker.figures.write(self._index, encoded_life(figures))
            if not self.too_long:
                self._log.error("the metrics of this worker are too long for the others", worker=self._index)
            self.too_long += 1
        return figures

    def _told(self, read: Callable[[bytes], Figures]) -> dict[int, Figures]:
        """Return what all workers tell: this one now, the others a second ago at most. `read` decodes what is needed of it."""
        figures = self._worker.figures
        return {index: self.tell() if index == self._index else read(figures.read(index)) for index in figures.indexes}

    def not_ready(self) -> list[str]:
        """Return why other workers are not ready, for worker 0, which has the health check."""
        if self._index:
            return []
        found: list[str] = []
        for index in range(1, self._worker.place.count):
            told = decoded_life(self._worker.figures.read(index))
            reasons = told.not_ready
            if reasons != [STARTING] and time.monotonic() - told.at > SILENT_SECONDS_MAX:
                reasons = [f"it has not told its figures for {SILENT_SECONDS_MAX:g} s"]
            found += [f"worker {index}: {reason}" for reason in reasons]
        return found

    def metrics(self) -> list[Metric]:
        """Return the metrics of the node."""
        told = self._told(decoded)
        text = (
            "Whether the metrics of a worker are not among these: it is starting, or they are too long for the others."
        )
        missing = gauges(
            "gmqtt_worker_metrics_missing",
            text,
            "worker",
            [(str(index), float(not one.metrics or one.not_ready == [STARTING])) for index, one in told.items()],
        )
        own = [missing, *self._worker.metrics()]
        return joined_metrics({index: one.metrics for index, one in told.items()}) + own

    def numbers(self) -> tuple[Numbers, Numbers]:
        """Return the totals of the node, and its numbers of now."""
        told = self._told(decoded_life).values()
        return summed(one.totals for one in told), summed(one.present for one in told)
