"""What the workers of a node tell each other."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from broker.metrics.figures import Figures, decoded, encoded, ended
from broker.metrics.metric import Metric, counters, gauge
from broker.server.shared_counts import SharedCounts
from broker.server.shared_figures import SLOT_BYTES, SharedFigures
from broker.server.worker import Worker
from broker.server.worker_face import IDLE_TELLS_MAX, WorkerFace
from broker.workers.shares import Place


class Tells:
    """The figures of one process."""

    def __init__(self) -> None:
        self.metrics: list[Metric] = []
        self.clients = 0
        self.asked = 0  # for metrics

    def figures(self, with_metrics: bool) -> Figures:
        self.asked += with_metrics
        return Figures(
            time.monotonic(), [], self.metrics if with_metrics else [], {"sent": 1}, {"clients": self.clients}
        )


def missing(face: WorkerFace) -> dict[tuple[str, ...], float]:
    (found,) = [one for one in face.metrics() if one.name == "gmqtt_worker_metrics_missing"]
    return dict(found.samples)


async def test_metrics_that_are_too_long_are_left_out_and_the_worker_lives(tmp_path: Path) -> None:
    shared = SharedFigures(range(2))
    sockets = socket.socketpair()
    tells = [Tells(), Tells()]
    faces = []
    for index in range(2):
        place = Place(index, 2, False, {}, "")
        worker = Worker(place, str(tmp_path), sockets, {}, sockets[0], SharedCounts(2), True, shared, 0.0)
        faces.append(WorkerFace(worker, tells[index].figures))
    first, second = faces
    assert len(first.not_ready()) == 1  # the second one is starting
    tells[1].metrics = [gauge("g", "G.", 7)]
    second.tell()
    assert first.not_ready() == []
    assert any(one.name == "g" for one in first.metrics())
    assert missing(first) == {("0",): 1.0, ("1",): 0.0}  # worker 0 has none here
    tells[1].clients = 5
    tells[1].metrics = [counters("k_total", "K.", "name", [("x" * SLOT_BYTES, 1.0)])]
    second.tell()
    assert second.too_long == 1
    assert first.not_ready() == []
    assert first.numbers() == ({"sent": 2}, {"clients": 5})  # those of now, not of before
    assert not any(one.name in ("g", "k_total") for one in first.metrics())
    assert missing(first) == {("0",): 1.0, ("1",): 1.0}
    tells[1].metrics = [counters("k_total", "K.", "name", [("x", 1.0)])]
    second.tell()
    assert missing(first) == {("0",): 1.0, ("1",): 0.0}
    shared.write(1, encoded(ended(decoded(shared.read(1)))))
    assert any(one.name == "k_total" for one in first.metrics())  # no sum falls
    assert missing(first) == {("0",): 1.0, ("1",): 1.0}  # it is started again
    for one in sockets:
        one.close()


async def test_metrics_of_a_worker_that_does_nothing_are_asked_for_seldom(tmp_path: Path) -> None:
    """Its sign of life goes on, and what was told stays."""
    shared, tells = SharedFigures(range(2)), Tells()
    sockets = socket.socketpair()
    place = Place(1, 2, False, {}, "")
    worker = Worker(place, str(tmp_path), sockets, {}, sockets[0], SharedCounts(2), True, shared, 0.0)
    face = WorkerFace(worker, tells.figures)
    tells.metrics = [gauge("g", "G.", 7)]
    before = 0.0
    for _ in range(1 + IDLE_TELLS_MAX):
        face.tell_on()
        found = decoded(shared.read(1))
        assert [one.name for one in found.metrics] == ["g"]
        assert found.at > before
        before = found.at
    assert tells.asked == 1
    face.tell_on()  # gauges that nobody counts may have changed
    assert tells.asked == 2
    tells.clients = 5
    face.tell_on()
    assert tells.asked == 3
    assert decoded(shared.read(1)).present == {"clients": 5}
    for one in sockets:
        one.close()
