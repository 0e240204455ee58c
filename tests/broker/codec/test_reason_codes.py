"""Reason codes: every code has a name, and the CONNACK codes of MQTT 3.1.1 have an inverse."""

from broker.codec import reason_codes
from broker.codec.reason_codes import CONNACK_V3_CODES, CONNACK_V3_REASONS, reason_name

CODES = {value for name, value in vars(reason_codes).items() if name.isupper() and isinstance(value, int)}


def test_every_code_has_a_name() -> None:
    unnamed = {code for code in CODES if reason_name(code).startswith("reason code")}
    assert unnamed == {reason_codes.CONNACK_V3_OTHER}, "a return code of MQTT 3.1.1, not a reason code"
    assert reason_name(reason_codes.PACKET_TOO_LARGE) == "Packet too large"
    assert reason_name(0x7F) == "reason code 0x7f"


def test_return_codes_of_mqtt_3_1_1() -> None:
    """A return code becomes a reason code (on the client's side) that is sent as the same return code."""
    assert [CONNACK_V3_CODES[reason] for reason in CONNACK_V3_REASONS] == list(range(6))
    assert set(CONNACK_V3_CODES.values()) == set(range(6))
