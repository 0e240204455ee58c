"""Errors of the peer carry the reason code of the answer."""

import pytest

from broker.errors import MalformedPacket, MqttError, ProtocolViolation


@pytest.mark.parametrize(
    ("error", "reason_code"),
    [(MqttError(0x95, "x"), 0x95), (MalformedPacket("x"), 0x81), (ProtocolViolation("x"), 0x82)],
)
def test_reason_codes(error: MqttError, reason_code: int) -> None:
    assert (error.reason_code, error.text) == (reason_code, "x")
    assert "x" in str(error)
