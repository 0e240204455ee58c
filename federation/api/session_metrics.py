"""Metrics of sessions that go from node to node."""

from __future__ import annotations

from broker.metrics.metric import Metric, counter, counters, gauge
from federation.sessions.sessions import Sessions


def session_metrics(sessions: Sessions) -> list[Metric]:
    found = sessions.counters
    return [
        counter("gmqtt_federation_claims_total", "Clients whose home this node has become.", found.claims),
        counter(
            "gmqtt_federation_claims_unanswered_total",
            "Claims for which a client was let in without the answers of all nodes.",
            found.unanswered,
        ),
        counter(
            "gmqtt_federation_clients_outclaimed_total",
            "Connections that ended here because the client has connected to another node.",
            found.outclaimed,
        ),
        counters(
            "gmqtt_federation_sessions_moved_total",
            "Sessions that have left to another node, or arrived from one.",
            "direction",
            [("departed", found.departed), ("arrived", found.arrived)],
        ),
        gauge(
            "gmqtt_federation_sessions_moving_current",
            "Sessions that are on their way from or to this node.",
            len(sessions.moves.departing) + len(sessions.homes.arriving),
        ),
        counter(
            "gmqtt_federation_session_facts_dropped_total",
            "What was forgotten of sessions that move because there was too much of it.",
            found.passed_forgotten + found.switches_dropped,
        ),
    ]
