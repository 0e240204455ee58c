"""The plugin `prometheus`: the metrics of the node over HTTP, written by the library of Prometheus, with those of the
process and of Python's garbage collection."""

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

from broker.api.http_server import HttpServer
from broker.api.pages import HEALTH_PATHS, Page
from broker.config.addresses import parse_address
from broker.config.settings_listeners import ApiListener
from broker.metrics.metric import Kind, Metric, gauge
from broker.metrics.settings import PrometheusSettings
from broker.plugins import Plugin
from broker.server.host import Host
from broker.server.logging import get_logger

INTERVAL_SECONDS: Final = 1.0
WINDOW_SECONDS: Final = 30.0  # `longest` looks back between one and two windows


class LoopLag:
    """Seconds of lateness: of the last second, and the longest of the last 30 to 60 seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.last = 0.0
        self._loop = loop
        self._longest = 0.0  # of this window
        self._longest_before = 0.0
        self._window_ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def longest(self) -> float:
        return max(self._longest, self._longest_before)

    def start(self) -> None:
        self._window_ends_at = self._loop.time() + WINDOW_SECONDS
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due_at = self._loop.time() + INTERVAL_SECONDS
        self._timer = self._loop.call_at(due_at, self._measure, due_at)

    def _measure(self, due_at: float) -> None:
        now = self._loop.time()
        self.last = max(0.0, now - due_at)
        if now >= self._window_ends_at:
            self._longest_before = self._longest
            self._longest = 0.0
            self._window_ends_at = now + WINDOW_SECONDS
        self._longest = max(self._longest, self.last)
        self._arm()


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


KEY: Final = "plugins.prometheus"


class PrometheusPlugin(Plugin):
    """Serves the metrics at `listen_address` and `path`, and at /metrics of the REST API."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self.settings: PrometheusSettings = server.settings.plugins.prometheus
        self._log = get_logger("prometheus")
        self._lag = LoopLag(server.loop)
        self._exposition = Exposition(server.node_metrics)
        self._http: HttpServer | None = None

    async def prepare(self) -> None:
        self.server.pages["/metrics"] = self._page

    async def start(self) -> None:
        pages = {path: self.server.pages[path] for path in HEALTH_PATHS}
        pages[self.settings.path] = self._page
        self._http = HttpServer(None, pages, self.server.api_guard, self._log)
        listener = ApiListener(self.settings.listen_address, tls=self.settings.tls)
        await self._http.open(f"{KEY}.listen_address", f"{KEY}.tls", listener)
        self._lag.start()
        self._log.info("metrics started", http=self._http.addresses, path=self.settings.path)

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of the metrics, with the port that the kernel chose for port 0."""
        return [] if self._http is None else [parse_address(text).host_port for text in self._http.addresses]

    async def reload(self) -> None:
        for context in [] if self._http is None else self._http.contexts:
            context.renew()

    async def stop(self) -> None:
        self._lag.stop()
        if self._http is not None:
            await self._http.close()

    def metrics(self) -> list[Metric]:
        return [
            gauge("gmqtt_loop_lag_seconds", "Lateness of the event loop in the last second.", self._lag.last),
            gauge(
                "gmqtt_loop_lag_longest_seconds",
                "Longest lateness of the event loop in the last 30 to 60 seconds.",
                self._lag.longest,
            ),
        ]

    async def _page(self) -> Page:
        return Page(200, CONTENT_TYPE_LATEST, await self._exposition.text())
