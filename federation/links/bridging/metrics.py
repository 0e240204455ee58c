"""Metrics of the broker's side of links."""

from __future__ import annotations

from broker.metrics.metric import Metric, counter, counters
from federation.links.bridging.bridging import LinkBridging


def bridging_metrics(bridging: LinkBridging) -> list[Metric]:
    """Metrics of links that connect here, and of messages with an origin."""
    return [
        counter(
            "gmqtt_links_refused_total",
            "Clients that asked to be a link of another domain, and whose account does not have the role.",
            bridging.refused,
        ),
        counters(
            "gmqtt_link_messages_skipped_total",
            "Messages that a link of another domain did not get: that domain was in their path, or allows no more hops.",
            "reason",
            [("path", bridging.home.path_skipped), ("hops", bridging.home.hops_skipped)],
        ),
        counter(
            "gmqtt_link_pages_evicted_total",
            "Pages of numbers of messages from other domains that made room: copies of these count as new.",
            bridging.home.duplicates.evicted,
        ),
        counter(
            "gmqtt_retained_deletions_forgotten_total",
            "Deletions of retained messages that made room: an older message that waits for a link may bring one back.",
            bridging.home.deletions.forgotten,
        ),
    ]
