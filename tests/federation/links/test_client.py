"""The MQTT client of a link: what it sends and how it takes answers, faults and silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from federation.links.client import (
    ANSWER_SECONDS_MAX,
    CONNACK_SECONDS_MAX,
    PING_SECONDS,
    Client,
)
from federation.links.handshake import Accepted, End, Ended
from federation.links.subscriptions import NO_HEADERS, Subscriptions

PACKET_BYTES_MAX = 1000


def make_client(
    version: int = 5,
    keep_alive: int = 30,
    filters: tuple[bytes, ...] = (),
    connack_seconds: float = CONNACK_SECONDS_MAX,
) -> Client:
    subscriptions = Subscriptions()
    subscriptions.begin(False)
    subscriptions.change(dict.fromkeys(filters, NO_HEADERS), [])
    properties: Properties = {props.SESSION_EXPIRY_INTERVAL: 600, props.RECEIVE_MAXIMUM: 10} if version == 5 else {}
    connect = Connect("c", version, False, keep_alive, properties=properties)
    return Client(connect, subscriptions, 1, True, PACKET_BYTES_MAX, 0.0, connack_seconds)


def sent(client: Client, version: int = 5) -> list[Packet]:
    return PacketReader(version).receive_data(client.take_output())


def receive(client: Client, *packets: Packet, now: float = 1.0) -> None:
    client.receive_data(b"".join(encode_packet(packet, client.version) for packet in packets), now)


def accepted_client(version: int = 5) -> Client:
    client = make_client(version)
    receive(client, ConnAck(False))
    client.take_output()
    return client


def end_of(client: Client) -> Ended:
    assert client.ended is not None
    assert client.is_closed
    return client.ended


@pytest.mark.parametrize("version", [4, 5])
def test_a_ping_follows_connack_at_once(version: int) -> None:
    client = make_client(version)
    (connect,) = sent(client)
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start, connect.keep_alive) == ("c", False, 30)
    receive(client, ConnAck(True), now=2.0)
    assert client.accepted is not None
    assert client.accepted.session_present
    assert client.accepted.session_expiry == (600 if version == 5 else -1)
    assert isinstance(sent(client, version)[0], PingReq)
    receive(client, PingResp(), now=2.5)
    assert client.round_trip == 0.5
    assert client.answered_at == 2.5


def test_the_limits_of_the_upstream_are_kept() -> None:
    client = make_client()
    receive(
        client,
        ConnAck(
            False,
            0,
            {
                props.SESSION_EXPIRY_INTERVAL: 60,
                props.RECEIVE_MAXIMUM: 5,
                props.MAXIMUM_QOS: 0,
                props.RETAIN_AVAILABLE: 0,
                props.MAXIMUM_PACKET_SIZE: 99,
                props.WILDCARD_SUBSCRIPTION_AVAILABLE: 0,
                props.SHARED_SUBSCRIPTION_AVAILABLE: 0,
                props.SERVER_KEEP_ALIVE: 4,
                props.USER_PROPERTY: [("a", "b")],
            },
        ),
    )
    assert client.accepted == Accepted(False, 60, 5, 0, 99, False, False, 4, (("a", "b"),))
    receive(client, PingResp(), now=1.0)
    assert client.next_timeout() == 1.0 + 2.0  # half of the Server Keep Alive


@given(st.data())
def test_the_flow_comes_out_whole_however_it_is_cut(data: st.DataObject) -> None:
    client = accepted_client()
    flows = st.lists(st.sampled_from([Publish(b"a", b"x"), Publish(b"b", b"y" * 200, 1, packet_id=3), PubAck(9, 0x10)]))
    packets: list[Packet] = [*data.draw(flows), PingResp(), *data.draw(flows)]
    stream = b"".join(encode_packet(packet, 5) for packet in packets)
    flow = b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        client.receive_data(stream[:size], 1.0)
        stream = stream[size:]
        flow += client.incoming.take()
    assert flow == b"".join(encode_packet(packet, 5) for packet in packets if not isinstance(packet, PingResp))
    assert not client.is_closed


def test_subscriptions_go_out_after_connack_in_turns() -> None:
    client = make_client(filters=(b"a", b"b"))
    assert len(sent(client)) == 1
    client.send_subscriptions(0.5)
    assert sent(client) == []
    receive(client, ConnAck(False))
    client.send_subscriptions(1.0)
    _, subscribe = sent(client)
    assert isinstance(subscribe, Subscribe)
    assert [entry.topic_filter for entry in subscribe.filters] == [b"a", b"b"]
    receive(client, SubAck(subscribe.packet_id, [1, 1]), now=3.0)
    assert client.subscriptions.is_settled()
    assert client.answered_at == 3.0


@pytest.mark.parametrize(
    ("data", "end", "text"),
    [
        (encode_packet(ConnAck(False, 0x87), 5), End.REFUSED, "Not authorized"),
        (
            encode_packet(ConnAck(False, 0x86, {props.REASON_STRING: "who"}), 5),
            End.REFUSED,
            "(who): user name and password",
        ),
        (encode_packet(ConnAck(False, 0x85), 5), End.REFUSED, "`consumer-tag`"),
        (encode_packet(ConnAck(False, 0x88), 5), End.LOST, "Server unavailable"),
        (encode_packet(ConnAck(False, 0x84), 4), End.VERSION, "Unsupported Protocol Version"),
        (encode_packet(ConnAck(False, 0), 4), End.VERSION, "MQTT 3.1.1"),
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            End.FAULT,
            r'no CONNACK: "HTTP/1.1 400 Bad Request\r\n\r\n"; it speaks HTTP',
        ),
        (
            b"HTTP/1.1 400 Bad Request\r\n" + bytes(1000),
            End.FAULT,
            r"Bad Request\r\n" + r"\x00" * 14 + '…"; it speaks HTTP',
        ),
        (b"H", End.FAULT, 'no CONNACK: "H"'),
        (b"\x15\x03\x03\x00\x02\x02\x28", End.FAULT, r'no CONNACK: "\x15\x03\x03\x00\x02\x02("; it speaks TLS'),
        (b"AMQP\"'\xff", End.FAULT, r'no CONNACK: "AMQP\"\'\xff"; it speaks AMQP'),
        (encode_packet(PingResp(), 5), End.FAULT, "no CONNACK"),
        (encode_packet(Publish(b"a", b""), 5), End.FAULT, "no CONNACK"),
        (b"\x20\xff\xff\xff\xff", End.FAULT, "breaks the protocol: remaining length"),
    ],
)
def test_other_answers_to_connect_end_the_connection(data: bytes, end: End, text: str) -> None:
    client = make_client()
    client.receive_data(data, 1.0)
    event = end_of(client)
    assert event.end is end
    assert text in event.reason


@pytest.mark.parametrize(
    ("packet", "end"),
    [
        (Disconnect(0x8E), End.TAKEN),
        (Disconnect(0x8B), End.LOST),
        (Disconnect(0x00), End.LOST),
        (Disconnect(0x98), End.LOST),
        (Disconnect(0x87), End.REFUSED),
        (Disconnect(0x9C), End.REFUSED),
        (Connect("x"), End.FAULT),
        (Auth(0x18), End.FAULT),
        (SubAck(1, [0]), End.FAULT),
    ],
)
def test_disconnect_and_faults_end_a_connection(packet: Packet, end: End) -> None:
    client = accepted_client()
    receive(client, packet)
    assert end_of(client).end is end
    receive(client, Publish(b"a", b"late"))
    assert client.incoming.take() == b""


def test_an_unasked_answer_ends_the_connection() -> None:
    client = accepted_client()
    receive(client, PingResp())
    receive(client, PingResp())
    assert end_of(client) == Ended(End.FAULT, "the upstream breaks the protocol: PINGRESP without PINGREQ")


def test_a_packet_that_is_too_large_ends_the_connection() -> None:
    client = accepted_client()
    client.receive_data(encode_packet(Publish(b"a", b"x" * PACKET_BYTES_MAX), 5)[:50], 1.0)
    assert "at most 1000" in end_of(client).reason
    assert sent(client) == [Disconnect(0x95)]


def test_silence_ends_the_connection() -> None:
    client = make_client()
    assert client.next_timeout() == CONNACK_SECONDS_MAX
    client.handle_timeout(CONNACK_SECONDS_MAX - 0.1)
    assert not client.is_closed
    client.handle_timeout(CONNACK_SECONDS_MAX)
    assert end_of(client) == Ended(End.LOST, "no CONNACK for 10 s")
    client = make_client(connack_seconds=0.25)
    client.handle_timeout(0.25)
    assert end_of(client) == Ended(End.LOST, "no CONNACK for 0.25 s")
    client = accepted_client()
    receive(client, PingResp())
    asked_at = client.next_timeout()
    assert asked_at == 1.0 + PING_SECONDS
    client.handle_timeout(asked_at)
    assert sent(client) == [PingReq()]
    client.handle_timeout(asked_at + ANSWER_SECONDS_MAX)
    assert end_of(client).end is End.LOST
    client = accepted_client()
    receive(client, PingResp())
    client.subscriptions.change({b"a": NO_HEADERS}, [])
    client.send_subscriptions(2.0)
    client.handle_timeout(11.0)
    receive(client, PingResp(), now=11.0)
    client.handle_timeout(2.0 + ANSWER_SECONDS_MAX)
    client.handle_timeout(2.0 + ANSWER_SECONDS_MAX)
    assert end_of(client).reason == "no answer to SUBSCRIBE for 20 s"


def test_a_short_keep_alive_bounds_the_wait_for_an_answer() -> None:
    client = make_client(keep_alive=2)
    receive(client, ConnAck(False))
    receive(client, PingResp(), now=1.0)
    client.handle_timeout(2.0)
    client.handle_timeout(3.9)
    assert not client.is_closed
    client.handle_timeout(4.0)
    assert end_of(client) == Ended(End.LOST, "no answer to PINGREQ for 2 s")


@pytest.mark.parametrize(
    ("version", "ends_session", "goodbye"),
    [
        (5, True, Disconnect(0, {props.SESSION_EXPIRY_INTERVAL: 0})),
        (5, False, Disconnect(0)),
        (4, True, Disconnect(0)),
    ],
)
def test_a_close_says_goodbye(version: int, ends_session: bool, goodbye: Disconnect) -> None:
    client = accepted_client(version)
    client.write_flow(encode_packet(PubAck(1), version))
    client.close(ends_session)
    assert sent(client, version) == [PubAck(1), goodbye]
    client.write_flow(encode_packet(PubAck(2), version))
    assert sent(client, version) == []
    assert client.ended is None
