"""The keys of `plugins.prometheus`: those of the Go broker."""

from dataclasses import dataclass
from typing import Annotated, Final

from broker.config.addresses import Address
from broker.config.setting import AddressText, Setting, Text

DEFAULT_METRICS_ADDR: Final = Address("tcp", "", 8082)


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Metrics for Prometheus."""

    path: Annotated[str, Setting("Path of the metrics.", Text("/metrics"))] = "/metrics"
    listen_address: Annotated[
        Address,
        Setting(
            "Address of the metrics over HTTP, and of /healthz and /readyz. Whoever reaches it can read them.",
            AddressText(":8082", 8082, listens=True),
        ),
    ] = DEFAULT_METRICS_ADDR
