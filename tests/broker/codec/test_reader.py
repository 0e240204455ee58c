"""PacketReader: packets before a fault, the limit of a packet, versions."""

import pytest

from broker.codec.packets import Connect, PingReq, Publish
from broker.codec.reader import PacketReader
from broker.codec.reason_codes import MALFORMED_PACKET, PACKET_TOO_LARGE
from broker.codec.writer import PINGREQ, encode_packet
from broker.errors import MqttError

MALFORMED = b"\x36\x05\x00\x01a\x00\x01"  # PUBLISH with QoS 3


def test_packets_before_a_fault_come_first() -> None:
    reader = PacketReader()
    assert reader.receive_data(PINGREQ * 2 + MALFORMED + PINGREQ) == [PingReq(), PingReq()]
    for data in (b"", PINGREQ):
        with pytest.raises(MqttError) as caught:
            reader.receive_data(data)
        assert caught.value.reason_code == MALFORMED_PACKET


def test_a_packet_at_the_limit_and_one_above() -> None:
    at_limit = encode_packet(Publish(b"a", b"x" * 93), 5)
    above = encode_packet(Publish(b"a", b"x" * 94), 5)
    assert len(at_limit) == 99
    reader = PacketReader(5, 99)
    assert len(reader.receive_data(at_limit)) == 1
    with pytest.raises(MqttError) as caught:
        reader.receive_data(above[:2])  # its header is enough
    assert caught.value.reason_code == PACKET_TOO_LARGE


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_connect_sets_the_version(version: int) -> None:
    reader = PacketReader(0)
    stream = encode_packet(Connect("c", version), 0) + encode_packet(Publish(b"a", b"\0\0"), version)
    connect, publish = reader.receive_data(stream)
    assert isinstance(connect, Connect)
    assert reader.version == connect.protocol_version == version
    assert publish == Publish(b"a", b"\0\0")
