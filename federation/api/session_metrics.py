"""Metrics of sessions that go from node to node."""

from __future__ import annotations

from broker.metrics.metric import Metric, counter, counters, gauge
from federation.sessions.drain import SERVING, Drain
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
        counter(
            "gmqtt_federation_hand_overs_not_waited_for_total",
            "Sessions whose former homes did not hand over everything in time: newer messages came first.",
            sessions.homes.not_waited_for,
        ),
        gauge(
            "gmqtt_federation_sessions_moving_current",
            "Sessions that are on their way from or to this node.",
            len(sessions.moves.departing) + len(sessions.homes.arriving),
        ),
        counter(
            "gmqtt_federation_session_facts_dropped_total",
            "What was forgotten of sessions that move because there was too much of it.",
            found.passed_forgotten + found.switches_dropped + sessions.moves.relayed.forgotten,
        ),
    ]


def drain_metrics(drain: Drain) -> list[Metric]:
    return [
        gauge(
            "gmqtt_federation_drain", "1 while the node is drained: it takes no clients.", float(drain.state != SERVING)
        ),
        gauge(
            "gmqtt_federation_drain_clients_current",
            "Clients that the drain has not closed yet.",
            drain.clients_left(),
        ),
        gauge(
            "gmqtt_federation_drain_sessions_current",
            "Sessions that other nodes do not have yet.",
            drain.sessions_left(),
        ),
        counter("gmqtt_federation_drain_clients_total", "Clients that drains have closed.", drain.clients_closed),
        counter(
            "gmqtt_federation_drain_sessions_total",
            "Sessions without a client that drains have given to other nodes.",
            drain.sessions_given,
        ),
        counter(
            "gmqtt_federation_drain_waits_total",
            "Times that a drain waited because as many sessions as may were on their way.",
            drain.waits,
        ),
    ]
