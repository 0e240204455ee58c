"""Metrics in the text format of Prometheus, written by its library, with those of the process and of Python's garbage
collection."""

# not a core: waits in the loop
from __future__ import annotations

import asyncio
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
        self._node = CollectorRegistry()
        self._node.register(NodeCollector(metrics))
        PlatformCollector(registry=self._node)
        GCCollector(registry=self._node)
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    async def text(self) -> bytes:
        """A thread reads the metrics of the process: the library lists all open files, which takes about a microsecond for each
        client."""
        process = await asyncio.to_thread(generate_latest, self._process)
        return generate_latest(self._node) + process
