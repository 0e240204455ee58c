"""Metrics in the text format of Prometheus, written by its library, with those of the process and of Python's garbage
collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from broker.metrics.metric import Kind, Metric

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class NodeCollector(Collector):
    """The metrics of one node, made anew for each request."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for metric in self._metrics():
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples.items():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterator[Family]:
        """Nothing: the library would otherwise collect once when the collector is registered."""
        return iter(())


class Exposition:
    """The text of all metrics."""

    def __init__(self, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(NodeCollector(metrics))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)
