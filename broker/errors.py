"""Errors of the peer, which cores raise and a connection answers with the reason code, of the store, and of other members."""

# compiled with mypyc
from __future__ import annotations


class MqttError(Exception):
    """A fault of the peer. `reason_code` is that of the answer [MQTT5 2.4]; `text` names the fault."""

    def __init__(self, reason_code: int, text: str) -> None:
        super().__init__(text)
        self.reason_code = reason_code
        self.text = text


class MalformedPacket(MqttError):
    """Bytes that cannot be decoded as a packet: Malformed Packet [MQTT5 1.2], reason code 0x81."""

    def __init__(self, text: str) -> None:
        super().__init__(0x81, text)


class ProtocolViolation(MqttError):
    """A packet that is well formed but not allowed: Protocol Error [MQTT5 1.2], reason code 0x82."""

    def __init__(self, text: str) -> None:
        super().__init__(0x82, text)


class NotCommitted(Exception):
    """The change is not on disk: the store takes nothing. It may be there later."""


class MemberFault(Exception):
    """Another member cannot be called, or refuses what it was asked. The text says why."""


class MemberLate(MemberFault):
    """It has not answered in time."""


class MethodUnknown(MemberFault):
    """It serves no such method: it is of another build, or does not have the plugin."""
