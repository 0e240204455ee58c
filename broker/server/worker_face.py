"""One API, one page of metrics, one health check for a node of several workers: those of worker 0, which asks the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.api.siblings import SiblingFigures, Siblings, encoded_figures, joined_metrics
from broker.metrics.metric import Metric
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.api.server import ApiServer
    from broker.server.worker import Worker

API: Final = "api"  # the Unix sockets on which worker 0 calls the others


class WorkerFace:
    """siblings  the other workers, for the API of worker 0; None at other workers"""

    def __init__(self, worker: Worker, not_ready: Callable[[], list[str]], metrics: Callable[[], list[Metric]]) -> None:
        """not_ready and metrics are those of this worker alone."""
        self._own_not_ready = not_ready
        self._own_metrics = metrics
        self._path = worker.path(API, worker.place.index)
        self.siblings: Siblings | None = None
        self._figures: SiblingFigures | None = None
        if worker.place.index == 0:
            self.siblings = Siblings({index: worker.path(API, index) for index in range(1, worker.place.count)})
            self._figures = SiblingFigures(self.siblings, get_logger("api"))

    async def start(self, api: ApiServer | None) -> None:
        """Raises StartError."""
        if self._figures is not None:
            self._figures.start()
        elif api is not None:
            await api.start_private(self._path, lambda: encoded_figures(self._own_not_ready(), self._own_metrics()))

    async def stop(self) -> None:
        if self._figures is not None:
            await self._figures.stop()

    def not_ready(self) -> list[str]:
        """Return why other workers are not ready, as they said last."""
        return [] if self._figures is None else self._figures.not_ready()

    def metrics(self) -> list[Metric]:
        """Return the metrics of the node: those of this worker, and what the others said last."""
        own = self._own_metrics()
        return own if self._figures is None else joined_metrics({0: own} | self._figures.metrics)
