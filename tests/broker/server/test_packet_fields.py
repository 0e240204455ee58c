"""Packets as logs and traces show them: fields by the specification's names, without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from broker.codec import packets
from broker.codec.packets import Connect, Packet, Subscribe, SubscribeFilter
from broker.codec.properties import encode_publish_properties
from broker.server.traces import packet_fields

PROPERTIES = encode_publish_properties(content_type="a", user_properties=[("k", "v")])


@pytest.mark.parametrize(
    ("packet", "fields"),
    [
        (
            Connect("c", 5, password=b"hunter2", username="u", will=packets.Will(b"w", b"gone", 1)),
            {
                "client_id": "c",
                "protocol_version": 5,
                "clean_start": True,
                "keep_alive": 0,
                "username": "u",
                "password": "***",
                "will": {"topic": b"w", "payload": b"gone", "qos": 1, "retain": False, "delay_interval": 0},
            },
        ),
        (
            packets.Publish(b"t", b"\xff", properties=PROPERTIES),
            {
                "topic": b"t",
                "payload": b"\xff",
                "qos": 0,
                "retain": False,
                "dup": False,
                "properties": {"Content Type": "a", "User Property": ["k=v"]},
            },
        ),
        (
            Subscribe(7, [SubscribeFilter(b"#", 1)]),
            {
                "packet_id": 7,
                "filters": [
                    {
                        "topic_filter": b"#",
                        "qos": 1,
                        "no_local": False,
                        "retain_as_published": False,
                        "retain_handling": 0,
                    }
                ],
            },
        ),
        (packets.PubAck(7), {"packet_id": 7, "reason_code": 0}),
        (
            packets.Auth(0x18, {0x15: "SCRAM", 0x16: b"secret"}),
            {
                "reason_code": 0x18,
                "properties": {"Authentication Method": "SCRAM", "Authentication Data": "***"},
            },
        ),
        (packets.PingReq(), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_packet_is_shown_by_its_fields_without_secrets(packet: Packet, fields: dict[str, Any]) -> None:
    assert packet_fields(packet) == fields
