"""Packets are equal by type and fields, and their text has no password."""

from broker.codec.packets import Connect


def test_the_text_has_no_password() -> None:
    text = repr(Connect("c", 5, username="user", password=b"secret"))
    assert "user" in text
    assert "secret" not in text
