"""The metrics of the broker: names of the Go broker's plugin `prometheus` first, then ours. No metric takes time for each
session or subscription."""

from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.codec import packets
from broker.counters import COPY_DROP_REASONS, Counters
from broker.metrics.metric import Kind, Metric, counter, counters, gauge
from broker.unaccepted import Unaccepted

PACKET_NAMES: Final = {
    packets.CONNECT: "CONNECT",
    packets.CONNACK: "CONNACK",
    packets.PUBLISH: "PUBLISH",
    packets.PUBACK: "PUBACK",
    packets.PUBREC: "PUBREC",
    packets.PUBREL: "PUBREL",
    packets.PUBCOMP: "PUBCOMP",
    packets.SUBSCRIBE: "SUBSCRIBE",
    packets.SUBACK: "SUBACK",
    packets.UNSUBSCRIBE: "UNSUBSCRIBE",
    packets.UNSUBACK: "UNSUBACK",
    packets.PINGREQ: "PINGREQ",
    packets.PINGRESP: "PINGRESP",
    packets.DISCONNECT: "DISCONNECT",
    packets.AUTH: "AUTH",
}
QOS: Final = ("0", "1", "2")


def waiting_copies(found: Counters) -> int:
    """Messages that are queued for clients or in flight to them."""
    dropped = sum(sum(found.drops[reason]) for reason in COPY_DROP_REASONS)
    return found.copies - found.qos0_sent - found.acknowledged - found.handed_over - dropped


def publishes(found: Counters) -> tuple[int, int]:
    """PUBLISH packets (from clients, to clients)."""
    received = found.packets_received - sum(found.answers_received)
    return received, max(0, found.packets_sent - sum(found.answers_sent))


def broker_metrics(broker: Broker) -> list[Metric]:
    """All metrics of one broker."""
    found = broker.counters
    sessions = len(broker.sessions)
    return [
        *_packet_metrics(found),
        counter("gmqtt_clients_connected_total", "Clients whose CONNECT was accepted.", found.clients_connected),
        counter(
            "gmqtt_clients_disconnected_total", "Accepted clients whose connection ended.", found.clients_disconnected
        ),
        counter("gmqtt_sessions_created_total", "Sessions that began.", found.sessions_created),
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
        counter(
            "gmqtt_sessions_expired_total", "Sessions whose Session Expiry Interval passed.", found.sessions_expired
        ),
        gauge(
            "gmqtt_sessions_active_current",
            "Sessions with a connection.",
            found.clients_connected - found.clients_disconnected,
        ),
        gauge(
            "gmqtt_sessions_inactive_current",
            "Sessions without a connection.",
            sessions - (found.clients_connected - found.clients_disconnected),
        ),
        counter("gmqtt_subscriptions_total", "Subscriptions that were made.", found.subscriptions_total),
        gauge("gmqtt_subscriptions_current", "Subscriptions of all sessions.", found.subscriptions),
        gauge(
            "gmqtt_messages_queued_current",
            "Copies of messages that are queued for one client each, or in flight to it.",
            waiting_copies(found),
        ),
        _by_qos(
            "gmqtt_messages_received_total",
            "Messages that clients and the node itself published.",
            found.messages_received,
        ),
        _by_qos(
            "gmqtt_messages_sent_total", "Copies of messages that were sent to clients, each once.", found.messages_sent
        ),
        _dropped(found),
        *_own_metrics(broker),
    ]


def unaccepted_metrics(found: Unaccepted) -> list[Metric]:
    """Of connections whose CONNECT is not accepted yet."""
    return [
        gauge(
            "gmqtt_unaccepted_bytes_current",
            "Bytes of connections whose CONNECT is not accepted yet, for max_unaccepted_bytes.",
            found.bytes,
        ),
        counter(
            "gmqtt_unaccepted_closed_total",
            "Connections that were closed because all of those before CONNECT took max_unaccepted_bytes.",
            found.closed,
        ),
    ]


def _own_metrics(broker: Broker) -> list[Metric]:
    """Names that the Go broker does not have."""
    found = broker.counters
    return [
        counter(
            "gmqtt_message_copies_total",
            "Messages for one client each, however they end.",
            found.copies,
        ),
        counter(
            "gmqtt_messages_acknowledged_total",
            "Copies of QoS 1 and 2 whose exchange the client ended.",
            found.acknowledged,
        ),
        counter(
            "gmqtt_messages_handed_over_total",
            "Copies of shared groups that went on to another member, to the group's queue or to another broker.",
            found.handed_over,
        ),
        counter(
            "gmqtt_messages_without_receivers_total",
            "Messages that were published here and had no subscriber on any node.",
            found.without_receivers,
        ),
        counter("gmqtt_messages_from_nodes_total", "Messages that came from other nodes.", found.messages_from_peers),
        counter("gmqtt_messages_to_nodes_total", "Messages that were queued for other nodes.", found.messages_to_peers),
        gauge("gmqtt_retained_messages_current", "Retained messages.", len(broker.retained)),
        gauge(
            "gmqtt_retained_bytes_current",
            "Bytes of retained messages for max_retained_bytes.",
            broker.retained.bytes,
        ),
        counter("gmqtt_connections_opened_total", "Network connections that were opened.", found.connections_opened),
        counter(
            "gmqtt_connections_taken_over_total",
            "Connections that ended because another client connected with the same client id.",
            found.connections_taken_over,
        ),
        counter(
            "gmqtt_connections_refused_total",
            "Connections that were closed before their CONNECT was accepted.",
            found.connections_refused,
        ),
        counter(
            "gmqtt_handshakes_failed_total",
            "PROXY headers, TLS handshakes and WebSocket handshakes that failed.",
            found.handshakes_failed,
        ),
        counter(
            "gmqtt_protocol_errors_total", "Connections that ended with an error of the client.", found.protocol_errors
        ),
        counter(
            "gmqtt_publishes_not_stored_total",
            "PUBLISH packets of QoS 1 and 2 that were refused because the store takes nothing.",
            found.publishes_not_stored,
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
        counter(
            "gmqtt_subscriptions_refused_total", "Filters of SUBSCRIBE that were refused.", found.subscriptions_refused
        ),
        counter("gmqtt_sessions_resumed_total", "Sessions that got another connection.", found.sessions_resumed),
        counter("gmqtt_wills_published_total", "Wills that were published.", found.wills_published),
        counter(
            "gmqtt_link_headers_stripped_total",
            "Headers of links in what clients and callers of the API published that are no links.",
            found.origins_stripped,
        ),
        counter(
            "gmqtt_publishers_slowed_total",
            "Pauses in the reading of a client above its max_message_rate or max_byte_rate.",
            found.publishers_slowed,
        ),
        counter(
            "gmqtt_publishers_held_total",
            "How often a publisher was not read for a while, because receivers were behind.",
            found.publishers_held,
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
    values = dict(enumerate(answers))
    values[packets.PUBLISH] = max(0, total - sum(answers))
    return counters(name, text, "type", [(type_name, values[number]) for number, type_name in PACKET_NAMES.items()])


def _by_qos(name: str, text: str, values: list[int]) -> Metric:
    return counters(name, text, "qos", list(zip(QOS, values, strict=True)))


def _dropped(found: Counters) -> Metric:
    samples: dict[tuple[str, ...], float] = {
        (qos, reason): count for reason, by_qos in found.drops.items() for qos, count in zip(QOS, by_qos, strict=True)
    }
    text = "Messages that were dropped, by QoS and reason (docs/operations.md)."
    return Metric("gmqtt_messages_dropped_total", Kind.COUNTER, text, ("qos", "reason"), samples)
