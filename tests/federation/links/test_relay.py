"""Acknowledgements to the upstream that wait for other nodes."""

from __future__ import annotations

import random
from dataclasses import replace

from broker.broker import Broker
from broker.codec.packets import PubAck
from broker.codec.writer import encode_packet
from broker.config.settings import MqttSettings
from broker.hooks import Forwarder, Peer
from federation.links.relay import HELD_MESSAGES_MAX, Confirmation


class Node(Peer):
    def __init__(self, name: str) -> None:
        super().__init__(name, True)
        self.queued = 0
        self.done = 0

    def position(self) -> int:
        return self.queued

    def mark(self) -> int:
        return self.queued

    def is_done(self, mark: int) -> bool:
        return self.done >= mark


class Nodes(Forwarder):
    def __init__(self, *nodes: Node) -> None:
        self._nodes: list[Peer] = list(nodes)

    def peers(self) -> list[Peer]:
        return self._nodes


def forwarded(confirmation: Confirmation, *nodes: Node) -> None:
    """Messages for these nodes come in."""
    confirmation.begin()
    for node in nodes:
        node.queued += 1
    confirmation.end()


def make(*nodes: Node, is_resumed: bool = False) -> tuple[Confirmation, Broker]:
    broker = Broker(replace(MqttSettings()), random.Random(1), 0.0)
    broker.forwarder = Nodes(*nodes)
    return Confirmation(broker, True, is_resumed), broker


def test_a_message_that_no_other_node_got_is_acknowledged_at_once() -> None:
    near, far = Node("near"), Node("far")
    far.queued = 5  # behind with messages of others
    confirmation, broker = make(near, far)
    forwarded(confirmation)
    assert confirmation.pass_on(b"a", 1) == b"a"
    forwarded(confirmation, near)
    near.done = 1
    assert confirmation.pass_on(b"b", 1) == b"b"
    assert broker.acks_awaited == 0


def test_acknowledgements_wait_for_each_node_that_got_the_message_and_leave_in_order() -> None:
    near, far = Node("near"), Node("far")
    confirmation, broker = make(near, far)
    forwarded(confirmation, near, far)
    assert confirmation.pass_on(b"a", 1) == b""
    forwarded(confirmation)
    assert confirmation.pass_on(b"b", 1) == b""  # nothing overtakes
    assert broker.acks_awaited == confirmation.waiting == 2
    near.done = 1
    assert confirmation.release() == b""
    far.done = 1
    assert confirmation.release() == b"ab"
    assert broker.acks_awaited == 0


def test_acknowledgements_that_wait_are_forgotten_at_the_close() -> None:
    near = Node("near")
    confirmation, broker = make(near)
    forwarded(confirmation, near)
    confirmation.pass_on(b"a", 1)
    confirmation.close()
    near.done = 1
    assert confirmation.release() == b""
    assert broker.acks_awaited == 0


def test_a_resumed_session_is_acknowledged_after_the_events_of_the_connection_before() -> None:
    near, far = Node("near"), Node("far")
    far.queued = 5
    confirmation, broker = make(near, far, is_resumed=True)
    forwarded(confirmation)  # a duplicate: no node gets it
    assert confirmation.pass_on(b"a", 1) == b""
    far.queued = 6  # a message of somebody else
    far.done = 5
    assert confirmation.release() == b"a"
    forwarded(confirmation)
    assert confirmation.pass_on(b"b", 1) == b"b"
    assert broker.acks_awaited == 0


def test_more_acknowledgements_than_packet_identifiers_are_a_fault_of_the_upstream() -> None:
    near = Node("near")
    confirmation, _ = make(near)
    forwarded(confirmation, near)
    acks = encode_packet(PubAck(7), 5) + encode_packet(PubAck(8, 0x10), 5)
    for _ in range(HELD_MESSAGES_MAX // 2):
        confirmation.pass_on(acks, 2)
    assert (confirmation.messages, confirmation.is_overfull()) == (HELD_MESSAGES_MAX - 1, False)
    confirmation.pass_on(acks, 2)
    assert confirmation.is_overfull()
    near.done = 1
    assert confirmation.release() == acks * (HELD_MESSAGES_MAX // 2 + 1)
    assert (confirmation.messages, confirmation.is_overfull()) == (0, False)
