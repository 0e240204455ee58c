"""A server with the plugins `event_log` and `kafka`: its settings, its metrics, and messages in its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.event_log.plugin import EventLogPlugin
from broker.kafka.plugin import KafkaPlugin
from broker.message import Message
from broker.server.lifecycle import Server

TOPICS = {"all": "#", "sensors": "sensors/#"}


def with_kafka(folder: Path, port: int, **event_log: Any) -> dict[str, Any]:
    return {
        "plugin_order": ["event_log", "kafka"],
        "plugins": {
            "event_log": {"dir": str(folder / "log"), **event_log},
            "kafka": {"listeners": [f"127.0.0.1:{port}"], "topics": TOPICS},
        },
    }


def plugin(server: Server) -> KafkaPlugin:
    return next(each for each in server.plugins if isinstance(each, KafkaPlugin))


def address(server: Server) -> str:
    return plugin(server).addresses[0]


def samples(server: Server, name: str) -> dict[tuple[str, ...], float]:
    return dict(next(metric.samples for metric in server.metrics() if metric.name == name))


async def publish(server: Server, *messages: tuple[str, bytes]) -> None:
    """They are in the log afterwards."""
    for topic, payload in messages:
        server.broker.publish(Message(topic.encode(), payload, 1, False), server.now())
    server.flush_soon()
    log = next(each for each in server.plugins if isinstance(each, EventLogPlugin)).log
    assert log is not None
    await log.flush()
