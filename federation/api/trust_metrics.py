"""Metrics of the certificates between nodes."""

from __future__ import annotations

from broker.metrics.metric import Metric, counters, gauge
from federation.refusals import Refusals
from federation.shell.node_tls import NodeTls


def trust_metrics(refusals: Refusals, tls: NodeTls | None) -> list[Metric]:
    """The end of the certificate's validity is there on a node with TLS alone."""
    found = [
        counters(
            "gmqtt_federation_refused_total",
            "Connections and members that were refused for what they did not prove, by reason (docs/security.md).",
            "reason",
            refusals.totals.items(),
        )
    ]
    if tls is not None:
        text = "Unix time when the certificate of this node expires."
        found.append(gauge("gmqtt_federation_certificate_expires_seconds", text, tls.expires_at))
    return found
