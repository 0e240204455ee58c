"""The clients of `scripts/chaos federation`: durable subscribers and publishers that stay at their node, change nodes, or are
away for a while."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from broker.codec.packets import Publish
from ledger import Ledger, Receipts, qos_of
from session_clients import SessionPublisher, SessionSubscriber

STAY_SECONDS: Final = (1.0, 10.0)
AWAY_SECONDS: Final = (2.0, 30.0)
WINDOW: Final = 200  # more than a publisher has in flight


@dataclass(eq=False)
class Player:
    """One client identifier, with any library.

    topics    that it publishes to
    receipts  of a subscriber
    node      the name of the one that it was served by last
    is_away   it is not to be connected now
    moves     how often it was let in at another node than before
    crossings  how often it came to the other side of a cut
    is_durable  it has a session
    is_moved  it changed nodes while something went wrong that is not over yet
    """

    client_id: str
    topics: tuple[str, ...] = ()
    receipts: Receipts | None = None
    node: str = ""
    is_away: bool = False
    moves: int = 0
    crossings: int = 0
    is_moved: bool = False
    is_durable: bool = True

    def came(self, topic: str) -> Iterable[int]:
        return () if self.receipts is None else self.receipts.came.get(topic, ())


class Stage(ABC):
    """ledger  of all publishers"""

    ledger: Ledger

    @abstractmethod
    def served(self, player: Player, port: int | Path, has_session: bool | None) -> None:
        """A node has let the client in; has_session: None when the client does not say."""


class Subscriber(SessionSubscriber):
    def __init__(self, stage: Stage, port: int | Path, client_id: str) -> None:
        super().__init__(port, client_id)
        self.receipts = Receipts(client_id, 2)
        self.player = Player(client_id, receipts=self.receipts)
        self._stage = stage
        self._has_session = True

    def session_is_gone(self) -> None:
        self._has_session = False
        self._unreleased.clear()
        self.subscribed.clear()

    def connected(self) -> None:
        self._stage.served(self.player, self.port, self._has_session)
        self._has_session = True
        super().connected()

    def _note(self, packet: Publish) -> None:
        self.receipts.note(packet.topic.decode(), int(packet.payload))

    async def nap(self, ports: Sequence[int], random: Random) -> None:
        """Be away again and again, and come back at any node."""
        while True:
            await asyncio.sleep(random.uniform(*STAY_SECONDS))
            self.player.is_away = True
            await self.stop()
            await asyncio.sleep(random.uniform(*AWAY_SECONDS))
            self.come_back(random.choice(ports))

    async def begin(self) -> None:
        self.start()

    def come_back(self, port: int | Path) -> None:
        if self.player.is_away:
            self.go(port)
            self.player.is_away = False
            self.start()


class Publisher(SessionPublisher):
    def __init__(self, stage: Stage, port: int | Path, client_id: str, levels: Sequence[int], rate: float) -> None:
        super().__init__(port, client_id, levels, rate)
        self.ledger = stage.ledger
        for topic in self.sent:
            self.ledger.add_topic(topic)
        self.player = Player(client_id, tuple(self.topics.values()))
        self._stage = stage
        self._has_session = True

    def session_is_gone(self) -> None:
        self._has_session = False

    def connected(self) -> None:
        self._stage.served(self.player, self.port, self._has_session)
        self._has_session = True
        super().connected()

    async def begin(self) -> None:
        self.start()

    def sends(self, topic: str) -> None:
        self.ledger.sent[topic] += 1

    def accepted(self, packet: Publish) -> None:
        self.ledger.acknowledged[packet.topic.decode()].add(int(packet.payload))

    def refused(self, packet: Publish, reason_code: int) -> None:
        self.ledger.refused[packet.topic.decode()].add(int(packet.payload))


async def roam(client: Subscriber | Publisher, ports: Sequence[int], random: Random) -> None:
    """Change nodes again and again; the former connection stays open half of the time, as where a network has failed."""
    while True:
        await asyncio.sleep(random.uniform(*STAY_SECONDS))
        if client.is_online:
            client.go(random.choice([port for port in ports if port != client.port]), random.random() < 0.5)


def in_flight(ledger: Ledger, topic: str) -> set[int]:
    """Numbers of QoS 2 that no node has taken over, as the client knows."""
    if qos_of(topic) < 2:
        return set()
    sent = ledger.sent[topic]
    return set(range(max(0, sent - WINDOW), sent)) - ledger.acknowledged[topic] - ledger.refused[topic]
