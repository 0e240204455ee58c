"""What a broker takes while the memory of its process is short or full."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec.packets import PubAck, Publish, PubRec, Will
from broker.codec.reason_codes import QUOTA_EXCEEDED
from broker.codec.writer import encode_packet
from broker.errors import MqttError
from broker.memory_limit import MEMORY_FREE, MEMORY_FULL, MEMORY_SHORT
from broker.message import Message


@pytest.mark.parametrize("level", [MEMORY_SHORT, MEMORY_FULL])
def test_a_new_session_is_refused_and_a_known_one_resumed(make_world: Any, level: int) -> None:
    world = make_world()
    world.connect("known", expiry=100).cut()
    world.broker.memory_level = level
    for version, code in ((5, QUOTA_EXCEEDED), (4, 0x88)):
        new = world.open(version)
        assert new.connect("new").reason_code == code
        assert new.closed
    assert world.broker.counters.sessions_without_memory == 2
    resumed = world.connect("known", clean_start=False, expiry=100)
    assert (resumed.connack.reason_code, resumed.connack.session_present) == (0, True)
    again = world.connect("known", clean_start=True)
    assert again.connack.reason_code == 0, "the session that it replaces is gone"
    world.broker.memory_level = MEMORY_FREE
    assert world.connect("new").connack.reason_code == 0
    world.check()


def test_messages_of_qos_0_are_not_queued(make_world: Any) -> None:
    world = make_world()
    slow, quick = world.connect("slow"), world.connect("quick")
    slow.subscribe(b"t")
    quick.subscribe(b"t")
    slow.stop_reading()
    world.broker.memory_level = MEMORY_SHORT
    quick.publish(b"t", b"0", qos=0)
    quick.publish(b"t", b"1", qos=1)
    slow.read_on()
    assert [packet.payload for packet in slow.take_packets() if isinstance(packet, Publish)] == [b"1"]
    assert world.drops() == {"memory_short": 1}
    assert world.broker.counters.publishes_without_memory == 0
    world.check()


@pytest.mark.parametrize(("qos", "kind"), [(1, PubAck), (2, PubRec)])
def test_a_publish_is_refused_while_the_memory_is_full(make_world: Any, qos: int, kind: Any) -> None:
    """MQTT 3.1.1 has no such answer: the client is disconnected, and sends the message again."""
    world = make_world()
    client, old = world.connect("c", auto=False), world.connect("old", 4, auto=False)
    world.broker.memory_level = MEMORY_FULL
    client.publish(b"t", qos=qos, packet_id=5)
    client.publish(b"t", qos=qos, packet_id=6, properties=b"\x02\0\0\0\x09")
    assert client.take_packets() == [kind(5, QUOTA_EXCEEDED), kind(6, QUOTA_EXCEEDED)]
    old.publish(b"t", qos=qos, packet_id=5)
    assert (old.closed, old.take_packets()) == (True, [])
    client.publish(b"t", qos=0)
    assert not client.closed
    assert world.broker.counters.publishes_without_memory == 3
    world.broker.memory_level = MEMORY_SHORT
    client.publish(b"t", qos=qos, packet_id=5)
    assert client.take_packets()[0].reason_code < 0x80
    world.check()


def test_messages_of_the_server_are_refused_while_the_memory_is_full(make_world: Any) -> None:
    world = make_world()
    client = world.connect("c", will=Will(b"t", b"x", 1))
    world.broker.memory_level = MEMORY_FULL
    with pytest.raises(MqttError) as fault:
        world.broker.publish(Message(b"t", b"x", 1, False), world.now)
    assert fault.value.reason_code == QUOTA_EXCEEDED
    world.broker.publish(Message(b"t", b"x", 0, False), world.now)
    client.cut()
    assert world.drops() == {"will_refused": 1}


@pytest.mark.parametrize(("size", "is_closed"), [(10_000, False), (1_000_000, True)])
def test_a_large_packet_that_is_not_whole_ends_its_connection(make_world: Any, size: int, is_closed: bool) -> None:
    """Otherwise clients that send packets slowly fill the memory further. A small packet is read to its end."""
    world = make_world()
    client = world.connect("c", auto=False)
    data = encode_packet(Publish(b"t", bytes(size), 0), 5)
    client.send_bytes(data[:3_000])
    client.send_bytes(data[3_000:5_000])
    world.broker.memory_level = MEMORY_FULL
    assert not client.closed
    client.send_bytes(data[5_000:6_000])
    assert client.closed is is_closed
    assert [packet.reason_code for packet in client.take_packets()] == ([QUOTA_EXCEEDED] if is_closed else [])
    assert world.broker.counters.publishes_without_memory == is_closed
