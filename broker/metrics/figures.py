"""The figures of one process, as the workers of a node read those of each other, and the sums of all.

A total of a node never goes back: a process that comes after one that has ended goes on with what that one told last
(`ended`, `continued`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.metrics.metric import Kind, Metric

Numbers: TypeAlias = dict[str, int]

STARTING: Final = "it is starting"


class Figures(NamedTuple):
    """The figures that one process told.

    at         of the telling, in monotonic seconds, which all processes of a machine have in common
    not_ready  why clients should be sent to other nodes
    totals     numbers that only rise; `present` are those of this moment
    """

    at: float
    not_ready: list[str]
    metrics: list[Metric]
    totals: Numbers
    present: Numbers


NOTHING: Final = Figures(0.0, [STARTING], [], {}, {})


def encoded(figures: Figures) -> bytes:
    """Return two lines of JSON: the first is the sign of life, the second the metrics, which few readers need."""
    told = [
        [one.name, one.kind.value, one.help, one.labels, [[labels, value] for labels, value in one.samples.items()]]
        for one in figures.metrics
    ]
    return encoded_life(figures) + json.dumps(told).encode()


def encoded_life(figures: Figures) -> bytes:
    """Return the figures without metrics."""
    return json.dumps([figures.at, figures.not_ready, figures.totals, figures.present]).encode() + b"\n"


def decoded(data: bytes) -> Figures:
    """Return what was encoded; NOTHING for b""."""
    life = decoded_life(data)
    told = data[data.find(b"\n") + 1 :]
    if not told:
        return life
    metrics = [
        Metric(name, Kind(kind), text, tuple(labels), {tuple(key): value for key, value in samples})
        for name, kind, text, labels, samples in json.loads(told)
    ]
    return life._replace(metrics=metrics)


def decoded_life(data: bytes) -> Figures:
    """Return what was encoded, without its metrics; NOTHING for b""."""
    if not data:
        return NOTHING
    at, not_ready, totals, present = json.loads(data[: data.index(b"\n")])
    return Figures(at, not_ready, [], totals, present)


def ended(figures: Figures) -> Figures:
    """Return what stays of a process that has ended: its totals and counters."""
    counters = [one for one in figures.metrics if one.kind is Kind.COUNTER]
    return Figures(figures.at, [STARTING], counters, figures.totals, {})


def continued(figures: Figures, before: Figures) -> Figures:
    """Return the figures of a process with the totals and counters of the one before it."""
    totals = summed((before.totals, figures.totals))
    return figures._replace(metrics=_added((before.metrics, figures.metrics)), totals=totals)


def summed(numbers: Iterable[Mapping[str, int]]) -> Numbers:
    """Return the sums by name."""
    found: Numbers = {}
    for one in numbers:
        for name, number in one.items():
            found[name] = found.get(name, 0) + number
    return found


def joined_metrics(by_worker: Mapping[int, list[Metric]]) -> list[Metric]:
    """Return one metric for each name: counters of all workers are added, gauges have the label `worker`."""
    return _added([_labelled(one, str(index)) for one in metrics] for index, metrics in sorted(by_worker.items()))


def _labelled(one: Metric, worker: str) -> Metric:
    if one.kind is Kind.COUNTER:
        return one
    samples = {(*labels, worker): value for labels, value in one.samples.items()}
    return Metric(one.name, one.kind, one.help, (*one.labels, "worker"), samples)


def _added(lists: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Return one metric for each name: samples of the same labels are added."""
    found: dict[str, tuple[Metric, dict[tuple[str, ...], float]]] = {}
    for metrics in lists:
        for one in metrics:
            _, samples = found.setdefault(one.name, (one, {}))
            for labels, value in one.samples.items():
                samples[labels] = samples.get(labels, 0.0) + value
    return [Metric(name, one.kind, one.help, one.labels, samples) for name, (one, samples) in found.items()]
