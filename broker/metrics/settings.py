"""The keys of `plugins.prometheus`: those of the Go broker, and TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.api.pages import HEALTH_PATHS
from broker.config.addresses import Address
from broker.config.setting import AddressText, Section, Text, extension, setting
from broker.config.settings_listeners import TlsSettings

if TYPE_CHECKING:
    from broker.config.settings import Settings
    from broker.workers.shares import Place

DEFAULT_METRICS_ADDR: Final = Address("tcp", "", 8082)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics for Prometheus."""

    path: str = setting("/metrics", "Path of the metrics.", Text("/metrics"))
    listen_address: Address = setting(
        DEFAULT_METRICS_ADDR,
        "Address of the metrics over HTTP, and of /healthz and /readyz. Whoever reaches it can read them.",
        AddressText(":8082", 8082, listens=True),
    )
    tls: TlsSettings | None = extension(None, "Encrypts the metrics.", Section(), default_text="no TLS")

    def for_worker(self, place: Place, settings: Settings) -> PrometheusSettings | None:
        """As `broker.workers.shares.ForWorkers`: worker 0 has the metrics of all."""
        return None if place.index else self

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule as (key, text)."""
        if not self.path.startswith("/"):
            yield "path", f'"{self.path}" does not begin with a slash; /metrics is the usual one'
        if self.path in HEALTH_PATHS:
            yield "path", f"{self.path} is the path of a health check; /metrics is the usual one"
        if self.tls is not None:
            for below, text in self.tls.broken_rules():
                yield f"tls{below}", text

    def unusable_files(self, key: str, path_of: Callable[[str], str]) -> Iterator[str]:
        """As `broker.server.named_files.NamesFiles`. The paths of TLS start at the current folder."""
        from broker.server.tls_context import tls_fault

        return tls_fault(self.tls, f"{key}.tls")
