"""The metrics of the broker: names of the Go broker's plugin `prometheus` first, then ours. No metric takes time for each
session or subscription."""

from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.codec import packets
from broker.codec.reader import PACKET_NAMES
from broker.counters import COPY_DROP_REASONS, Counters
from broker.metrics.figures import Numbers
from broker.metrics.metric import Kind, Metric, counter, counters, gauge
from broker.unaccepted import Unaccepted

QOS: Final = ("0", "1", "2")

# Counters whose metric is gmqtt_COUNTER_total, or has the name below.
TOTALS: Final = {
    "clients_connected": "Clients whose CONNECT was accepted.",
    "clients_disconnected": "Accepted clients whose connection ended.",
    "sessions_created": "Sessions that began.",
    "sessions_expired": "Sessions whose Session Expiry Interval passed.",
    "subscriptions_total": "Subscriptions that were made.",
    "copies": "Messages for one client each, however they end.",
    "acknowledged": "Copies of QoS 1 and 2 whose exchange the client ended.",
    "redelivered": "Copies of shared groups that went on to another member, to the group's queue or to another broker.",
    "without_receivers": "Messages that were published here and had no subscriber on any node.",
    "messages_from_peers": "Messages that came from other nodes.",
    "messages_to_peers": "Messages that were queued for other nodes.",
    "connections_opened": "Network connections that were opened.",
    "connections_taken_over": "Connections that ended because another client connected with the same client id.",
    "connections_refused": "Connections that were closed before their CONNECT was accepted.",
    "handshakes_failed": "PROXY headers, TLS handshakes and WebSocket handshakes that failed.",
    "protocol_errors": "Connections that ended with an error of the client.",
    "publishes_not_stored": "PUBLISH packets of QoS 1 and 2 that were refused because the store takes nothing.",
    "subscriptions_refused": "Filters of SUBSCRIBE that were refused.",
    "sessions_resumed": "Sessions that got another connection.",
    "wills_published": "Wills that were published.",
    "origins_stripped": "Headers of links in what clients and callers of the API published that are no links.",
    "publishers_slowed": "Pauses in the reading of a client above its max_message_rate or max_byte_rate.",
    "publishers_held": "How often a publisher was not read for a while, because receivers were behind.",
    "routes_cleared": "How often the cache of routes was full of topics or receivers, and was cleared.",
}
NUMBERED: Final = (  # totals of `broker_numbers`
    *("packets_received", "packets_sent", "bytes_received", "bytes_sent"),
    *("clients_connected", "connections_opened", "sessions_expired"),
)
NAMES: Final = {
    "subscriptions_total": "subscriptions",
    "copies": "message_copies",
    "acknowledged": "messages_acknowledged",
    "redelivered": "messages_redelivered",
    "without_receivers": "messages_without_receivers",
    "messages_from_peers": "messages_from_nodes",
    "messages_to_peers": "messages_to_nodes",
    "origins_stripped": "link_headers_stripped",
}


def waiting_copies(found: Counters) -> int:
    """Messages that are queued for clients or in flight to them."""
    dropped = sum(sum(found.drops[reason]) for reason in COPY_DROP_REASONS)
    return found.copies - found.qos0_sent - found.acknowledged - found.redelivered - dropped


def publishes(found: Counters) -> tuple[int, int]:
    """PUBLISH packets (from clients, to clients)."""
    received = found.packets_received - sum(found.answers_received)
    return received, max(0, found.packets_sent - sum(found.answers_sent))


def broker_numbers(broker: Broker) -> tuple[Numbers, Numbers]:
    """Return the totals of one broker, and its numbers of now."""
    found = broker.counters
    received, sent = publishes(found)
    totals = {
        **{name: getattr(found, name) for name in NUMBERED},
        **{f"messages_received_{qos}": number for qos, number in zip(QOS, found.messages_received, strict=True)},
        **{f"messages_sent_{qos}": number for qos, number in zip(QOS, found.messages_sent, strict=True)},
        "publishes_received": received,
        "publishes_sent": sent,
        "copies_dropped": sum(found.messages_dropped.values()),
    }
    present = {
        "clients": found.clients_connected - found.clients_disconnected,
        "sessions": len(broker.sessions),
        "subscriptions": found.subscriptions,
        "messages_waiting": waiting_copies(found),
    }
    return totals, present


def broker_metrics(broker: Broker, unaccepted: Unaccepted) -> list[Metric]:
    """All metrics of one broker. `unaccepted` are the connections whose CONNECT is not accepted yet."""
    found = broker.counters
    sessions = len(broker.sessions)
    connected = found.clients_connected - found.clients_disconnected
    return [
        *_packet_metrics(found),
        *(
            counter(f"gmqtt_{NAMES.get(attribute, attribute)}_total", text, getattr(found, attribute))
            for attribute, text in TOTALS.items()
        ),
        counters(
            "gmqtt_sessions_terminated_total",
            "Sessions that ended: `expired` after their Session Expiry Interval, `taken_over` by a client that asked for a "
            "new session, `normal` otherwise.",
            "reason",
            [
                ("expired", found.sessions_expired),
                ("taken_over", found.sessions_replaced),
                ("normal", found.sessions_terminated - found.sessions_expired - found.sessions_replaced),
            ],
        ),
        gauge("gmqtt_sessions_active_current", "Sessions with a connection.", connected),
        gauge("gmqtt_sessions_inactive_current", "Sessions without a connection.", sessions - connected),
        gauge("gmqtt_subscriptions_current", "Subscriptions of all sessions.", found.subscriptions),
        gauge(
            "gmqtt_messages_queued_current",
            "Copies of messages that are queued for one client each, or in flight to it.",
            waiting_copies(found),
        ),
        gauge("gmqtt_retained_messages_current", "Retained messages.", len(broker.retained)),
        gauge(
            "gmqtt_retained_bytes_current", "Bytes of retained messages for max_retained_bytes.", broker.retained.bytes
        ),
        counters(
            "gmqtt_memory_refused_total",
            "PUBLISH packets of QoS 1 and 2, and sessions, that were refused because the memory is above max_memory.",
            "what",
            [("publish", found.publishes_without_memory), ("session", found.sessions_without_memory)],
        ),
        gauge(
            "gmqtt_memory_level_current",
            "0 while the memory is below max_memory; 1: no new sessions, and no QoS 0 messages in queues; 2: no PUBLISH of "
            "QoS 1 and 2 either.",
            broker.memory_level,
        ),
        _by_qos("messages_received", "Messages that clients and the node itself published.", found.messages_received),
        _by_qos("messages_sent", "Copies of messages that were sent to clients, each once.", found.messages_sent),
        _dropped(found),
        gauge(
            "gmqtt_unaccepted_bytes_current",
            "Bytes of connections whose CONNECT is not accepted yet, for max_unaccepted_bytes.",
            unaccepted.bytes,
        ),
        counter(
            "gmqtt_unaccepted_closed_total",
            "Connections that were closed because all of those before CONNECT took max_unaccepted_bytes.",
            unaccepted.closed,
        ),
    ]


def _packet_metrics(found: Counters) -> list[Metric]:
    return [
        _packets(
            "gmqtt_packets_received_total", "Packets from clients.", found.answers_received, found.packets_received
        ),
        _packets(
            "gmqtt_packets_received_bytes_total",
            "Bytes of packets from clients. Those of packets that are not whole yet stand at PUBLISH.",
            found.answer_bytes_received,
            found.bytes_received,
        ),
        _packets("gmqtt_packets_sent_total", "Packets to clients.", found.answers_sent, found.packets_sent),
        _packets(
            "gmqtt_packets_sent_bytes_total", "Bytes of packets to clients.", found.answer_bytes_sent, found.bytes_sent
        ),
    ]


def _packets(name: str, text: str, answers: list[int], total: int) -> Metric:
    """PUBLISH is what is left of the total."""
    values = dict(zip(PACKET_NAMES, answers, strict=True))
    values["PUBLISH"] = max(0, total - sum(answers))
    return counters(name, text, "type", list(values.items())[packets.CONNECT :])


def _by_qos(name: str, text: str, values: list[int]) -> Metric:
    return counters(f"gmqtt_{name}_total", text, "qos", list(zip(QOS, values, strict=True)))


def _dropped(found: Counters) -> Metric:
    samples: dict[tuple[str, ...], float] = {
        (qos, reason): count for reason, by_qos in found.drops.items() for qos, count in zip(QOS, by_qos, strict=True)
    }
    text = "Messages that were dropped, by QoS and reason (docs/operations.md)."
    return Metric("gmqtt_messages_dropped_total", Kind.COUNTER, text, ("qos", "reason"), samples)
