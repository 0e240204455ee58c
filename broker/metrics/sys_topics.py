"""Topics below $SYS/broker with totals and loads of this node, named as mosquitto names them (mosquitto(8), Broker Status).

A core: `changed` gives the topics whose text has changed since the last call.
"""

from __future__ import annotations

import math
from typing import Final

from broker.message import Message
from broker.metrics.figures import Numbers

LOAD_MINUTES: Final = (1, 5, 15)
PREFIX: Final = "$SYS/broker/"
LOADS: Final = {  # totals by the name of their load
    "connections": "clients_connected",
    "sockets": "connections_opened",
    "messages/received": "packets_received",
    "messages/sent": "packets_sent",
    "publish/received": "publishes_received",
    "publish/sent": "publishes_sent",
    "publish/dropped": "copies_dropped",
    "bytes/received": "bytes_received",
    "bytes/sent": "bytes_sent",
}


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
    """The topics of one node, by its numbers (`broker_numbers`). `version` is the text of $SYS/broker/version."""

    def __init__(self, version: str, started_at: float) -> None:
        self._version = version
        self._started_at = started_at
        self._updated_at = 0.0
        self._clients_maximum = 0
        self._loads: dict[str, Loads] = {}
        self._texts: dict[str, str] = {}

    def changed(self, totals: Numbers, present: Numbers, retained: int, now: float) -> list[Message]:
        """A retained QoS 0 message for each topic whose text has changed. `retained` is the number of retained messages."""
        texts = {f"{PREFIX}{name}": text for name, text in self._values(totals, present, retained, now).items()}
        found = [
            Message(topic.encode(), text.encode(), 0, True)
            for topic, text in texts.items()
            if self._texts.get(topic) != text
        ]
        self._texts = texts
        return found

    def _values(self, totals: Numbers, present: Numbers, retained: int, now: float) -> dict[str, str]:
        connected, sessions = present["clients"], present["sessions"]
        self._clients_maximum = max(self._clients_maximum, connected)
        numbers = {
            "clients/total": sessions,
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": sessions - connected,
            "clients/inactive": sessions - connected,
            "clients/maximum": self._clients_maximum,
            "clients/expired": totals["sessions_expired"],
            "messages/received": totals["packets_received"],
            "messages/sent": totals["packets_sent"],
            "bytes/received": totals["bytes_received"],
            "bytes/sent": totals["bytes_sent"],
            "publish/messages/received": totals["publishes_received"],
            "publish/messages/sent": totals["publishes_sent"],
            "publish/messages/dropped": totals["copies_dropped"],
            "subscriptions/count": present["subscriptions"],
            "retained messages/count": retained,
            "store/messages/count": retained + present["messages_waiting"],
            "messages/stored": retained + present["messages_waiting"],
        }
        values = {"version": self._version, "uptime": f"{int(now - self._started_at)} seconds"}
        values.update({name: str(number) for name, number in numbers.items()})
        values.update(self._load_values(totals, now))
        return values

    def _load_values(self, totals: Numbers, now: float) -> dict[str, str]:
        """Nothing with the first numbers."""
        if not self._loads:
            self._loads = {name: Loads(totals[total]) for name, total in LOADS.items()}
            self._updated_at = now
        seconds = now - self._updated_at
        if seconds <= 0:
            return {}
        self._updated_at = now
        return {
            f"load/{name}/{minutes}min": f"{average:.2f}"
            for name, total in LOADS.items()
            for minutes, average in zip(LOAD_MINUTES, self._loads[name].update(totals[total], seconds), strict=True)
        }
