"""The messages of the load generator that nobody subscribes to: distinct, of one length, with rising packet identifiers."""

from __future__ import annotations

import zlib

import pytest
from mqtt_load import one_publish
from mqtt_publish import NUMBER_BYTES, encode

TOPICS = ["bench/0000", "bench/0001", "bench/0002"]
SIZE = 100


def packets(qos: int, run: int, first: int, count: int, packet_id: int = 1) -> list[bytes]:
    encoded = encode(TOPICS, run, qos, SIZE, first, count, packet_id)
    length = len(one_publish(TOPICS[0], qos, bytes(SIZE))[0])
    assert len(encoded) == count * length
    return [encoded[at : at + length] for at in range(0, len(encoded), length)]


@pytest.mark.parametrize("qos", [0, 1])
def test_each_message_is_a_publish_with_its_number(qos: int) -> None:
    for number, found in enumerate(packets(qos, run=2, first=70, count=9), 70):
        payload = found[-SIZE:]
        topic = TOPICS[number // 2 % len(TOPICS)]
        wanted, id_at = one_publish(topic, qos, payload)
        if qos:
            wanted = wanted[:id_at] + (number - 69).to_bytes(2) + wanted[id_at + 2 :]
        assert found == wanted
        assert int.from_bytes(payload[:NUMBER_BYTES]) == number


def test_packet_identifiers_wrap_and_leave_out_zero() -> None:
    _, id_at = one_publish(TOPICS[0], 1, bytes(SIZE))
    found = packets(1, run=1, first=0, count=4, packet_id=65534)
    assert [int.from_bytes(packet[id_at : id_at + 2]) for packet in found] == [65534, 65535, 1, 2]


def test_payloads_do_not_compress() -> None:
    payloads = b"".join(packet[-SIZE:] for packet in packets(0, run=50, first=0, count=1000))
    assert len(zlib.compress(payloads, 9)) > 0.9 * len(payloads)
