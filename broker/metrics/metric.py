"""One metric as plain data. The plugin `prometheus` gives it to the library of Prometheus, `GET /v1/node` to the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """A counter only rises while the process runs; a gauge also falls."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of samples.

    name     as Prometheus shows it: a counter ends with `_total`
    help     one sentence, with the unit
    labels   names of the labels
    samples  values by the values of the labels, in their order
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Mapping[tuple[str, ...], float]


def counter(name: str, text: str, value: float) -> Metric:
    """A counter without labels."""
    return Metric(name, Kind.COUNTER, text, (), {(): value})


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    return Metric(name, Kind.GAUGE, text, (), {(): value})


def counters(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A counter for each value of one label."""
    return Metric(name, Kind.COUNTER, text, (label,), {(key,): value for key, value in values})


def gauges(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """A gauge for each value of one label."""
    return Metric(name, Kind.GAUGE, text, (label,), {(key,): value for key, value in values})
