"""One broker with one link to a scripted upstream."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from broker.broker import Broker
from broker.codec.packets import (
    ConnAck,
    Packet,
    PingResp,
    Properties,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.link import Link
from federation.links.links import Links
from federation.links.status import LinkState


def handle_timeout(links: Links, now: float) -> None:
    """No link has a fault."""
    for fault in links.handle_timeout(now):
        raise fault


class Shell:
    """Keeps what the link writes."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._attempt = link.attempt
        self._out = b""

    @property
    def out(self) -> bytes:
        while self._attempt < self.link.attempt:
            self._out += self.link.take_output(self._attempt)
            self._attempt += 1
        self._out += self.link.take_output(self._attempt)
        return self._out

    @out.setter
    def out(self, value: bytes) -> None:
        assert self.out is not None  # what there was is taken
        self._out = value

    @property
    def is_held(self) -> bool:
        return self.link.holds_upstream()


class World:
    """One broker with one link to a scripted upstream, whose protocol version is `version`. `upstream`: more of its keys."""

    def __init__(self, upstream: dict[str, Any] | None = None, **limits: Any) -> None:
        self.now = 100.0
        self.version = 5
        self.broker = Broker(replace(MqttSettings(), **limits), random.Random(1), self.now)
        self.links = Links(b"berlin", self.broker, random.Random(1))
        self.links.resolve(self.resolution(upstream), self.now)
        for link_id in self.links.plans():
            self.links.run(link_id, 1, self.now)
        (self.link,) = self.links.by_id.values()
        self.shell = Shell(self.link)

    def resolution(self, upstream: dict[str, Any] | None) -> Resolution:
        body = {"uri": "mqtt://north.example.com", "reconnect-delay": 1, **(upstream or {})}
        policy = {"pattern": "s/#", "definition": {"federation-upstream": "north"}}
        return Resolution([parse_upstream("north", body)], [], [parse_policy("p", policy)])

    def want(self, topic_filter: bytes = b"s/a") -> None:
        self.links.interest.add(topic_filter)
        self.links.pass_on(self.now)

    def want_no_more(self, topic_filter: bytes = b"s/a") -> None:
        self.links.interest.remove(topic_filter)
        self.links.pass_on(self.now)

    def flush(self) -> None:
        """The end of a turn."""
        while dirty := self.broker.take_dirty():
            for connection in dirty:
                connection.owner.carry_out(connection)  # type: ignore[attr-defined]
            for publisher in self.broker.take_reading_changes():
                publisher.owner.set_reading(publisher)  # type: ignore[attr-defined]
        self.links.turn_ended(self.now)

    def sent(self) -> list[Packet]:
        self.flush()
        data, self.shell.out = self.shell.out, b""
        return PacketReader(self.version).receive_data(data)

    def receive(self, *packets: Packet, version: int = 0) -> None:
        data = b"".join(encode_packet(packet, version or self.version) for packet in packets)
        self.link.receive_data(self.link.attempt, data, self.now)
        self.flush()

    def connect(self, session_present: bool = False, properties: Properties | None = None) -> list[Packet]:
        """Accept the link. Returns what it has sent."""
        assert self.link.wants_connection
        self.link.connected(self.link.attempt, self.now)
        self.receive(ConnAck(session_present, 0, properties or {}))
        return self.sent()

    def run(self, session_present: bool = False, properties: Properties | None = None) -> list[Packet]:
        """Accept the link and answer all that it asks. Returns its filters."""
        found = self.connect(session_present, properties)
        self.receive(PingResp())
        return self.answer(found)

    def answer(self, found: list[Packet]) -> list[Packet]:
        """Answer these packets, and all that follow. Returns the filters."""
        filters: list[Packet] = []
        while found:
            for packet in found:
                if isinstance(packet, Subscribe):
                    filters += packet.filters
                    self.receive(SubAck(packet.packet_id, [1] * len(packet.filters)))
                elif isinstance(packet, Unsubscribe):
                    filters.append(packet)
                    self.receive(UnsubAck(packet.packet_id, [0] * len(packet.topic_filters)))
            found = self.sent()
        return filters

    def lose(self, reason: str = "lost", says_why: bool = False) -> None:
        self.link.connection_lost(self.link.attempt, reason, self.now, says_why)
        self.flush()

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self.links.next_timeout()) <= until:
            self.now = max(self.now, at)
            handle_timeout(self.links, self.now)
            self.flush()
        self.now = until

    def until_next_try(self) -> float:
        began = self.now
        self.now = self.link.next_timeout()
        handle_timeout(self.links, self.now)
        assert self.link.state is LinkState.STARTING
        return self.now - began

    def state(self) -> LinkState:
        return self.link.state
