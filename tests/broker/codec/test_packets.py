"""Packets are equal by type and fields, and their text has no password."""

from broker.codec.packets import Connect, Packet, PingReq, PubAck, Publish, PubRec


def test_equality() -> None:
    publish = Publish(b"a", b"x", 1, packet_id=5)
    assert publish == Publish(b"a", b"x", 1, packet_id=5)
    assert publish != Publish(b"a", b"x", 1, packet_id=6)
    same_fields: list[Packet] = [PubAck(5), PubRec(5)]
    assert same_fields[0] != same_fields[1]
    assert PingReq() == PingReq()


def test_the_text_has_no_password() -> None:
    text = repr(Connect("c", 5, username="user", password=b"secret"))
    assert "user" in text
    assert "secret" not in text
