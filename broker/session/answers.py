"""Answers to control packets, within the client's Maximum Packet Size."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import ConnAck, Disconnect, Packet, Properties
from broker.codec.properties import REASON_STRING, SERVER_REFERENCE
from broker.codec.reason_codes import (
    MALFORMED_PACKET,
    NORMAL_DISCONNECTION,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    USE_ANOTHER_SERVER,
    disconnect_code,
)
from broker.codec.writer import encode_packet
from broker.errors import MqttError
from broker.session.output import CONNECTING, Output


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


def write_reason(connection: Output, reason_code: int, text: str) -> None:
    """Write CONNACK for a refused CONNECT, or DISCONNECT in MQTT 5. Nothing for a negative reason code."""
    if reason_code < 0 or connection.version == 0:
        return
    if connection.version < 5 and reason_code in (MALFORMED_PACKET, PROTOCOL_ERROR):
        return  # MQTT 3.1.1 has no return code for these [MQTT3.1.1 3.1.4, 4.8]
    properties: Properties = {}
    if connection.request_problem_information and reason_code != NORMAL_DISCONNECTION:
        properties[REASON_STRING] = text
    elsewhere = connection.context.elsewhere
    if reason_code == USE_ANOTHER_SERVER and elsewhere is not None:
        reference = elsewhere.reference(connection.client_id)
        if reference:
            properties[SERVER_REFERENCE] = reference
    if connection.phase is CONNECTING:
        write_answer(connection, ConnAck(False, reason_code, properties))
    elif connection.version == 5:
        write_answer(connection, Disconnect(disconnect_code(reason_code), properties))
