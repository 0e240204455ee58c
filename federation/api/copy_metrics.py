"""Metrics of copies of stores."""

from __future__ import annotations

from broker.message import NEVER
from broker.metrics.metric import Metric, counter, gauge
from federation.replication.copies import Copies


def copy_metrics(copies: Copies, now: float) -> list[Metric]:
    replication, adoptions = copies.replication, copies.adoptions
    keepers = replication.keepers.values()
    replicas = copies.replicas.by_store.values()
    since = replication.short_since()
    return [
        gauge("gmqtt_copies_wanted", "Copies of the store that there should be on other nodes.", replication.wanted),
        gauge("gmqtt_copies_whole", "Copies of the store on other nodes that are whole.", replication.whole()),
        gauge(
            "gmqtt_copies_short_seconds",
            "Seconds for which there have been fewer whole copies than there should be, 0 while there are enough.",
            0.0 if since == NEVER else max(0.0, now - since),
        ),
        counter(
            "gmqtt_copies_short_total",
            "Times that a keeper of a copy was too slow, or away, and was not waited for any more.",
            sum(keeper.times_short for keeper in keepers),
        ),
        counter(
            "gmqtt_copies_bases_total",
            "Times that a present keeper got the whole store.",
            sum(keeper.bases for keeper in keepers),
        ),
        counter(
            "gmqtt_copies_sent_bytes_total",
            "Bytes sent to present keepers.",
            sum(keeper.bytes_sent for keeper in keepers),
        ),
        gauge("gmqtt_copies_kept", "Copies of the stores of other nodes that are here.", len(replicas)),
        gauge(
            "gmqtt_copies_kept_records",
            "Records in these copies.",
            sum(len(replica.where) for replica in replicas),
        ),
        gauge("gmqtt_copies_kept_bytes", "Bytes of these copies.", sum(replica.size for replica in replicas)),
        gauge(
            "gmqtt_copies_kept_dead_bytes",
            "Bytes of these that are of deleted records.",
            sum(replica.size - replica.living for replica in replicas),
        ),
        counter(
            "gmqtt_copies_moved_records_total",
            "Records of present copies that were written once more so that those before them could go.",
            sum(replica.moved for replica in replicas),
        ),
        counter("gmqtt_stores_adopted_total", "Lost stores whose sessions this node has adopted.", adoptions.stores),
        counter("gmqtt_sessions_adopted_total", "Sessions of these.", adoptions.adopted),
        counter(
            "gmqtt_sessions_not_adopted_total",
            "Sessions and messages of lost stores, and what these had for other nodes, that are damaged.",
            adoptions.refused,
        ),
        counter(
            "gmqtt_copies_stood_still_total",
            "How often the process stood still so long that its clients had to connect again.",
            copies.times_still,
        ),
        counter("gmqtt_sessions_relayed_total", "Messages that other nodes had for these.", adoptions.relayed),
    ]
