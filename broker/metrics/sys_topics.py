"""Topics below $SYS/broker with totals and loads of this node, named as mosquitto names them (mosquitto(8), Broker Status).

A core: `changed` gives the topics whose text has changed since the last call.
"""

from __future__ import annotations

import math
from typing import Final

from broker.broker import Broker
from broker.message import Message
from broker.metrics.broker_metrics import publishes, waiting_copies

LOAD_MINUTES: Final = (1, 5, 15)
PREFIX: Final = "$SYS/broker/"


class Loads:
    """Moving averages of what one total rises by in a minute, over 1, 5 and 15 minutes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._averages = [0.0] * len(LOAD_MINUTES)

    def update(self, total: int, seconds: float) -> list[float]:
        """`seconds` have passed since the last call, or since the load was made."""
        rate = (total - self._total) * 60.0 / seconds
        self._total = total
        for index, minutes in enumerate(LOAD_MINUTES):
            weight = math.exp(-seconds / (60.0 * minutes))
            self._averages[index] = rate + weight * (self._averages[index] - rate)
        return self._averages


class SysTopics:
    """The topics of one broker. `version` is the text of $SYS/broker/version."""

    def __init__(self, broker: Broker, version: str, now: float) -> None:
        self._broker = broker
        self._version = version
        self._started_at = now
        self._updated_at = now
        self._clients_maximum = 0
        self._loads = {name: Loads(total) for name, total in self._load_totals().items()}
        self._texts: dict[str, str] = {}

    def changed(self, now: float) -> list[Message]:
        """A retained QoS 0 message for each topic whose text has changed."""
        texts = {f"{PREFIX}{name}": text for name, text in self._values(now).items()}
        found = [
            Message(topic.encode(), text.encode(), 0, True)
            for topic, text in texts.items()
            if self._texts.get(topic) != text
        ]
        self._texts = texts
        return found

    def _values(self, now: float) -> dict[str, str]:
        broker = self._broker
        found = broker.counters
        connected = found.clients_connected - found.clients_disconnected
        sessions = len(broker.sessions)
        self._clients_maximum = max(self._clients_maximum, connected)
        received, sent = publishes(found)
        totals = {
            "clients/total": sessions,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": sessions - connected,
            "clients/inactive": sessions - connected,
            "clients/maximum": self._clients_maximum,
            "clients/expired": found.sessions_expired,
            "messages/received": found.packets_received,
            "messages/sent": found.packets_sent,
            "bytes/received": found.bytes_received,
            "bytes/sent": found.bytes_sent,
            "publish/messages/received": received,
            "publish/messages/sent": sent,
            "publish/messages/dropped": sum(found.messages_dropped.values()),
            "subscriptions/count": found.subscriptions,
            "retained messages/count": len(broker.retained),
            "store/messages/count": len(broker.retained) + waiting_copies(found),
            "messages/stored": len(broker.retained) + waiting_copies(found),
        }
        values = {"version": self._version, "uptime": f"{int(now - self._started_at)} seconds"}
        values.update({name: str(total) for name, total in totals.items()})
        seconds = now - self._updated_at
        if seconds > 0:
            self._updated_at = now
            for name, total in self._load_totals().items():
                averages = self._loads[name].update(total, seconds)
                for minutes, average in zip(LOAD_MINUTES, averages, strict=True):
                    values[f"load/{name}/{minutes}min"] = f"{average:.2f}"
        return values

    def _load_totals(self) -> dict[str, int]:
        found = self._broker.counters
        received, sent = publishes(found)
        return {
            "connections": found.clients_connected,
            "sockets": found.connections_opened,
            "messages/received": found.packets_received,
            "messages/sent": found.packets_sent,
            "publish/received": received,
            "publish/sent": sent,
            "publish/dropped": sum(found.messages_dropped.values()),
            "bytes/received": found.bytes_received,
            "bytes/sent": found.bytes_sent,
        }
