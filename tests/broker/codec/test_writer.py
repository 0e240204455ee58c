"""Packets for a small Maximum Packet Size, and the cuts that AUTH and DISCONNECT allow."""

import pytest

from broker.codec.packets import Auth, ConnAck, Disconnect, Packet, Properties, PubAck, Publish, SubAck, UnsubAck
from broker.codec.properties import REASON_STRING, USER_PROPERTY
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet

PAIRS = [("key", "value")]
BOTH: Properties = {REASON_STRING: "why", USER_PROPERTY: PAIRS}


@pytest.mark.parametrize(
    "packet",
    [
        ConnAck(False, 0x87, BOTH),
        PubAck(1, 0x10, BOTH),
        SubAck(1, [0x80], BOTH),
        UnsubAck(1, [0x80], BOTH),
        Disconnect(0x81, BOTH),
        Auth(0x18, BOTH),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_properties_are_omitted_above_the_maximum(
    packet: ConnAck | PubAck | SubAck | UnsubAck | Disconnect | Auth,
) -> None:
    """User Properties first, then the Reason String; then the packet is not sent [MQTT-3.1.2-24]."""
    whole = len(encode_packet(packet, 5))
    kept: list[object] = []
    for maximum in range(whole, 0, -1):
        data = encode_packet(packet, 5, maximum)
        assert len(data) <= maximum
        found: object = "not sent"
        if data:
            (sent,) = PacketReader(5).receive_data(data)
            assert isinstance(sent, type(packet))
            found = sent.properties or {}
        if kept[-1:] != [found]:
            kept.append(found)
    assert kept == [BOTH, {REASON_STRING: "why"}, {}, "not sent"]


def test_a_publish_loses_nothing() -> None:
    publish = Publish(b"a", b"x", properties=b"\x26\x00\x01k\x00\x01v")
    size = len(encode_packet(publish, 5))
    assert encode_packet(publish, 5, size) == encode_packet(publish, 5)
    assert encode_packet(publish, 5, size - 1) == b""


@pytest.mark.parametrize(
    ("packet", "version", "data"),
    [
        (Disconnect(), 5, "e000"),
        (Disconnect(0x04), 5, "e00104"),
        (Disconnect(0x81), 4, "e000"),
        (Auth(), 5, "f000"),
        (Auth(0x18), 5, "f0021800"),  # the property length may be omitted only with the reason code
        (PubAck(1, 0x10), 5, "4003000110"),
        (PubAck(1, 0x10), 4, "40020001"),
        (ConnAck(False, 0x9C), 4, "20020003"),
        (SubAck(1, [1, 0x87]), 4, "900400010180"),
    ],
)
def test_short_forms(packet: Packet, version: int, data: str) -> None:
    assert encode_packet(packet, version).hex() == data
