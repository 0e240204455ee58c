"""The metrics of a broker: their names, and values that follow what clients do."""

from __future__ import annotations

from typing import Any

from broker.broker import Broker
from broker.metrics.broker_metrics import broker_metrics
from broker.metrics.metric import Kind
from broker.unaccepted import Unaccepted

GO_NAMES = {
    "gmqtt_clients_connected_total",
    "gmqtt_messages_dropped_total",
    "gmqtt_packets_received_bytes_total",
    "gmqtt_packets_received_total",
    "gmqtt_packets_sent_bytes_total",
    "gmqtt_packets_sent_total",
    "gmqtt_sessions_created_total",
    "gmqtt_sessions_terminated_total",
    "gmqtt_sessions_active_current",
    "gmqtt_sessions_inactive_current",
    "gmqtt_sessions_expired_total",
    "gmqtt_subscriptions_current",
    "gmqtt_subscriptions_total",
    "gmqtt_messages_queued_current",
    "gmqtt_messages_received_total",
    "gmqtt_messages_sent_total",
}


def values(broker: Broker) -> dict[str, float]:
    """Values that are not 0, by name and labels."""
    return {
        "/".join((metric.name, *labels)).removeprefix("gmqtt_"): value
        for metric in broker_metrics(broker, Unaccepted())
        for labels, value in metric.samples.items()
        if value
    }


def test_names_of_the_go_broker_are_there_and_each_name_is_once(make_world: Any) -> None:
    metrics = broker_metrics(make_world().broker, Unaccepted())
    names = [metric.name for metric in metrics]
    assert len(set(names)) == len(names)
    assert set(names) >= GO_NAMES
    for metric in metrics:
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert all(len(labels) == len(metric.labels) for labels in metric.samples)


def test_values_follow_the_clients(make_world: Any) -> None:
    world = make_world()
    away = world.connect("away", expiry=5)
    away.subscribe(b"t/+", b"u")
    away.cut()
    taking = world.connect("taking")
    taking.subscribe(b"t/#")
    for qos in (0, 1, 2):
        taking.publish(b"t/x", b"payload", qos=qos)
    taking.publish(b"nobody", b"p")
    taking.publish(b"kept", b"p", retain=True)
    found = values(world.broker)
    assert found["sessions_active_current"] == found["sessions_inactive_current"] == 1
    assert found["clients_connected_total"] == found["sessions_created_total"] == 2
    assert found["clients_disconnected_total"] == 1
    assert found["subscriptions_current"] == found["subscriptions_total"] == 3
    assert found["messages_queued_current"] == 3
    assert found["message_copies_total"] == 6
    assert found["messages_acknowledged_total"] == 2
    assert [found[f"messages_sent_total/{qos}"] for qos in (0, 1, 2)] == [1, 1, 1]
    assert [found[f"messages_received_total/{qos}"] for qos in (0, 1, 2)] == [3, 1, 1]
    assert found["messages_without_receivers_total"] == 2
    assert found["retained_messages_current"] == 1
    assert found["packets_received_total/PUBLISH"] == 5
    assert found["packets_received_total/PUBACK"] == found["packets_sent_total/PUBACK"] == 1
    assert found["packets_sent_total/CONNACK"] == found["packets_received_total/CONNECT"] == 2
    assert found["packets_sent_bytes_total/PUBLISH"] > found["packets_sent_bytes_total/PUBACK"] == 4
    world.advance(10.0)
    found = values(world.broker)
    assert found["sessions_terminated_total/expired"] == found["sessions_expired_total"] == 1
    assert "messages_queued_current" not in found
    assert found["subscriptions_current"] == 1
    assert [found[f"messages_dropped_total/{qos}/session_ended"] for qos in (0, 1, 2)] == [1, 1, 1]


def test_ended_sessions_have_a_reason(make_world: Any) -> None:
    world = make_world()
    world.connect("a", expiry=100)
    world.connect("a", expiry=100, clean_start=True)
    world.connect("b").disconnect()
    found = values(world.broker)
    assert found["sessions_terminated_total/taken_over"] == 1
    assert found["sessions_terminated_total/normal"] == 1
