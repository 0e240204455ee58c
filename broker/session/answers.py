"""Answers to control packets, within the client's Maximum Packet Size."""

from __future__ import annotations

from broker.codec.packets import Packet
from broker.codec.reason_codes import PACKET_TOO_LARGE
from broker.codec.writer import encode_packet
from broker.errors import MqttError
from broker.session.output import Output


def check_answer(connection: Output, answer: Packet) -> None:
    """Raise MqttError for an answer above the client's Maximum Packet Size, which may not be sent [MQTT-3.1.2-24]. Without
    the error the client would wait for ever. Called before the packet has any effect."""
    maximum = connection.maximum_packet_size
    if maximum and not encode_packet(answer, connection.version, maximum):
        raise MqttError(
            PACKET_TOO_LARGE, f"{type(answer).__name__} does not fit in the client's Maximum Packet Size of {maximum}"
        )


def write_answer(connection: Output, answer: Packet) -> None:
    """Write an answer that `check_answer` has let pass."""
    connection.write_answer(encode_packet(answer, connection.version, connection.maximum_packet_size))
