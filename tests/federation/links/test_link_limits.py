"""Limits of one link: what it holds, what waits for its upstream, which topics come in."""

from __future__ import annotations

import pytest

from broker.codec.packets import (
    PubAck,
    Publish,
)
from broker.codec.properties import encode_publish_properties
from broker.hooks import Forwarder, Peer
from broker.message import Message
from federation.links.bridging.ends import TOPIC_BYTES_MAX, TOPICS_MAX
from federation.links.relay import HELD_MESSAGES_MAX
from federation.links.status import LinkState
from link_ends import own_end
from link_world import World


class StillNode(Peer):
    """Another node that gets every message and acknowledges none."""

    def __init__(self) -> None:
        super().__init__("still", True)
        self.queued = 0

    def position(self) -> int:
        self.queued += 1
        return self.queued

    def mark(self) -> int:
        return self.queued

    def is_done(self, mark: int) -> bool:
        return False


class StillNodes(Forwarder):
    def __init__(self) -> None:
        self._nodes: list[Peer] = [StillNode()]

    def peers(self) -> list[Peer]:
        return self._nodes


def test_an_upstream_that_sends_more_than_it_has_packet_identifiers_is_given_up() -> None:
    world = World()
    world.broker.forwarder = StillNodes()
    world.want()
    world.run()
    packets = [Publish(b"s/a", b"", 1, packet_id=number) for number in range(1, 1001)]
    for _ in range(HELD_MESSAGES_MAX // 1000):
        world.receive(*packets)
    assert world.state() is LinkState.RUNNING
    assert world.link.status(world.now).in_flight == HELD_MESSAGES_MAX // 1000 * 1000
    world.receive(*packets)
    assert world.state() is LinkState.ERROR
    assert "more messages without an acknowledgement than there are packet identifiers" in world.link.last_error
    assert world.broker.acks_awaited == 0


def test_messages_for_an_upstream_that_reads_nothing_wait_in_their_queue() -> None:
    world = World({"direction": "out"}, link_max_queued_messages=10)
    world.run()
    world.sent()
    world.link.set_writable(world.link.attempt, False, world.now)
    for number in range(20):
        world.broker.router.publish_here(Message(b"s/a", b"%d" % number, 0, False), world.now)
    assert world.sent() == []
    world.link.set_writable(world.link.attempt, True, world.now)
    assert len(world.sent()) == 10


@pytest.mark.parametrize("direction", ["in", "out"])
def test_an_upstream_publishes_to_no_other_topics_than_those_of_the_policies(direction: str) -> None:
    world = World({"direction": direction})
    world.want()
    world.run()
    kept = encode_publish_properties(user_properties=[("a", "b")])
    packets = [
        Publish(b"other/a", b"run", 0),
        Publish(b"other/a", b"run", 0),
        Publish(b"other/a", b"bare", 1, packet_id=1),
        Publish(b"other/a", b"with properties", 1, packet_id=2, properties=kept),
        Publish(b"other/a", b"kept", 0, True),
        Publish(b"s/" + b"x" * 3000, b"long", 0, True),
        Publish(b"s/kept", b"kept", 0, True),
    ]
    world.receive(*packets)
    assert [packet for packet in world.sent() if isinstance(packet, PubAck)] == [PubAck(1, 0x83), PubAck(2, 0x83)]
    assert world.broker.retained.get(b"other/a") is None
    is_out = direction == "out"
    assert (world.broker.retained.get(b"s/kept") is None) is is_out
    assert world.link.status(world.now).dropped == {"link_topic": 7 if is_out else 5}
    assert world.state() is LinkState.RUNNING


def test_topics_that_come_in_are_remembered_to_a_limit() -> None:
    gate = own_end(World().broker, b"paris")
    for number in range(TOPICS_MAX + 1):
        assert gate.takes(b"a/%d" % number)
    assert gate.takes(b"a" * (TOPIC_BYTES_MAX + 1))
