"""Errors of the peer. Raised in cores, caught once at the connection, answered with the reason code, then closed."""

from __future__ import annotations


class MqttError(Exception):
    """The peer was wrong. `reason_code` is the MQTT 5 code to answer with (section 2.4); `text` says what was wrong."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code
        self.text = text


class MalformedPacket(MqttError):
    """Bytes that are no packet of the protocol [MQTT5 1.2 Malformed Packet], reason code 0x81."""

    def __init__(self, text: str) -> None:
        super().__init__(0x81, text)


class ProtocolViolation(MqttError):
    """A packet that is well formed but not allowed here [MQTT5 1.2 Protocol Error], reason code 0x82."""

    def __init__(self, text: str) -> None:
        super().__init__(0x82, text)
