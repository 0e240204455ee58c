"""Packets are equal by type and fields, and their text has no password."""

from broker.codec.packets import Connect, PingReq, PingResp, PubAck, Publish, PubRec


def test_equality() -> None:
    publish = Publish(b"a", b"x", 1, packet_id=5)
    assert publish == Publish(b"a", b"x", 1, packet_id=5)
    assert publish != Publish(b"a", b"x", 1, packet_id=6)
    assert PubAck(5) != PubRec(5), "the same fields, another packet"
    assert PingReq() != PingResp()
    assert len({PubAck(5), PubAck(5), PubRec(5)}) == 2


def test_the_text_has_no_password() -> None:
    text = repr(Connect("c", 5, username="user", password=b"secret"))
    assert "user" in text
    assert "secret" not in text
    assert repr(Connect("c", 5, password=b"")) != repr(Connect("c", 5)), "whether there is one is shown"
