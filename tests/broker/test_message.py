"""Bytes of a message for `max_queued_bytes`."""

import pytest

from broker.message import ENTRY_BYTES, Message, message_bytes


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (Message(b"t", b"", 0, False), 1),
        (Message(b"topic", b"payload", 2, True), 12),
        (Message(b"t", b"x", 0, False, b"\x01\x01", 5.0, "client"), 4),
    ],
)
def test_message_bytes(message: Message, size: int) -> None:
    assert message_bytes(message) == size + ENTRY_BYTES
