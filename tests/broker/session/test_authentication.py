"""Enhanced authentication [MQTT5 4.12]: challenges before CONNACK, re-authentication, and what a client may not send."""

from __future__ import annotations

from typing import Any

import pytest

from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Publish,
    Subscribe,
    SubscribeFilter,
)
from broker.codec.reason_codes import NOT_AUTHORIZED
from broker.codec.writer import encode_packet
from broker.hooks import AuthenticationRequest, ConnectDecider, ConnectRequest
from broker.listener_facts import ListenerFacts
from broker.ownership import CLAIM_SECONDS_MAX, Claimant, Ownership
from broker.routing.subscriber import Subscriber
from broker_world import Client

METHOD = props.AUTHENTICATION_METHOD
DATA = props.AUTHENTICATION_DATA


class CountingDecider(ConnectDecider):
    """Challenges with 1, 2 … and wants each answered by the same number; accepts after `steps` challenges.

    later  answers are given by `go_on`, as those of a task
    """

    def __init__(self, broker: Broker, steps: int = 2, later: bool = False) -> None:
        broker.add_connect_decider(self)
        self.steps = steps
        self.later = later
        self.asked: list[tuple[str, AuthenticationRequest]] = []
        self.waiting: list[AuthenticationRequest] = []

    def methods(self) -> tuple[str, ...]:
        return ("COUNT",)

    def decide(self, request: ConnectRequest, now: float) -> None:
        self.ask("decide", request)

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        self.ask("reauthenticate", request)

    def continue_authentication(self, request: AuthenticationRequest, now: float) -> None:
        self.ask("continue", request)

    def ask(self, what: str, request: AuthenticationRequest) -> None:
        self.asked.append((what, request))
        if self.later:
            self.waiting.append(request)
        else:
            self.answer(request)

    def answer(self, request: AuthenticationRequest) -> None:
        if not request.method:
            request.accept()
            return
        count = request.exchange if isinstance(request.exchange, int) else 0
        if count and request.data != b"%d" % count:
            request.refuse(NOT_AUTHORIZED, "wrong answer")
        elif count == self.steps:
            request.username = "counter"
            request.accept(b"done")
        else:
            request.exchange = count + 1
            request.challenge(b"%d" % (count + 1))


def go_on(world: Any, decider: CountingDecider) -> None:
    """Answer the requests that wait, in a turn of their own."""
    waiting, decider.waiting = decider.waiting, []
    for request in waiting:
        decider.answer(request)
    world.flush()


def auth(code: int, data: bytes = b"", method: str = "COUNT") -> Auth:
    properties: dict[int, Any] = {METHOD: method} if method else {}
    if data:
        properties[DATA] = data
    return Auth(code, properties)


def opened(world: Any, client_id: str = "c", **options: Any) -> Any:
    """A client that has sent CONNECT with the method COUNT."""
    client = world.open()
    client.connect(client_id, properties={METHOD: "COUNT", **options.pop("properties", {})}, **options)
    return client


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("pipelined", [False, True])
def test_a_client_is_let_in_after_its_challenges(world: Any, later: bool, steps: int, pipelined: bool) -> None:
    """[MQTT-4.12.0-2] [MQTT-4.12.0-5]: each AUTH and CONNACK have the method. CONNACK comes first of all other packets, also
    when the client has sent all of its answers at once, without a wait."""
    decider = CountingDecider(world.broker, steps, later)
    client = world.open()
    answers = [auth(0x18, b"%d" % number) for number in range(1, steps + 1)]
    if pipelined:
        packets: list[Packet] = [*answers]
        client.send_bytes(connect_bytes() + b"".join(encode_packet(packet, 5) for packet in packets))
    else:
        client.send_bytes(connect_bytes())
    for answer in answers:
        if later:
            go_on(world, decider)
        if not pipelined:
            client.send(answer)
    if later:
        go_on(world, decider)
    *challenges, connack = client.take_packets()
    assert challenges == [auth(0x18, b"%d" % number) for number in range(1, steps + 1)]
    assert isinstance(connack, ConnAck)
    assert (connack.reason_code, connack.properties[METHOD], connack.properties[DATA]) == (0, "COUNT", b"done")
    assert [what for what, _ in decider.asked] == ["decide"] + ["continue"] * steps
    assert world.broker.sessions["c"].username == "counter"
    assert world.broker.connecting == {}
    client.send(PingReq())
    assert client.packets == [PingResp()]


def test_a_decider_knows_listener_and_certificate(world: Any) -> None:
    """Of a client that connects, and of one that authenticates again."""
    decider = CountingDecider(world.broker, steps=0)
    client = world.open()
    client.connection.listener = ListenerFacts("127.0.0.1:8883", "tls", allow_anonymous=False)
    client.connection.certificate_name = "device 7"
    client.send_bytes(connect_bytes())
    client.send(auth(0x19))
    assert [what for what, _ in decider.asked] == ["decide", "reauthenticate"]
    for _, request in decider.asked:
        assert request.listener is client.connection.listener
        assert (request.listener.transport, request.listener.allow_anonymous) == ("tls", False)
        assert request.certificate_name == "device 7"


def connect_bytes() -> bytes:
    return encode_packet(Connect("c", properties={METHOD: "COUNT"}), 5)


@pytest.mark.parametrize("later", [False, True])
def test_a_wrong_answer_is_refused(world: Any, later: bool) -> None:
    """At any point of the exchange [MQTT-4.12.0-4]."""
    decider = CountingDecider(world.broker, later=later)
    client = opened(world)
    go_on(world, decider)
    client.send(auth(0x18, b"7"))
    go_on(world, decider)
    assert [p.reason_code for p in client.packets] == [0x18, NOT_AUTHORIZED]
    assert isinstance(client.packets[1], ConnAck)
    assert client.closed
    assert (world.broker.sessions, world.broker.connecting) == ({}, {})


@pytest.mark.parametrize("method", ["", "count", "COUNTER"])
@pytest.mark.parametrize("has_decider", [True, False])
def test_an_unknown_method_is_refused(world: Any, method: str, has_decider: bool) -> None:
    """CONNACK with Bad authentication method [MQTT-4.12.0-1]."""
    if has_decider:
        CountingDecider(world.broker)
    client = world.open()
    assert client.connect("c", properties={METHOD: method}).reason_code == 0x8C
    assert client.closed


@pytest.mark.parametrize(
    ("packet", "reason_code"),
    [
        (PingReq(), 0x82),
        (Publish(b"a", b"x"), 0x82),
        (Subscribe(1, [SubscribeFilter(b"a", 0)]), 0x82),
        (auth(0x19, b"1"), 0x82),
        (auth(0x00, b"1"), 0x82),
        (auth(0x18, b"1", "OTHER"), 0x82),
        (auth(0x18, b"1", ""), 0x82),
        (Disconnect(), -1),
    ],
)
def test_packets_before_connack(world: Any, packet: Packet, reason_code: int) -> None:
    """AUTH that continues with the same method, or DISCONNECT [MQTT-3.1.2-30]."""
    receiver = world.connect("receiver")
    receiver.subscribe(b"a")
    CountingDecider(world.broker)
    client = opened(world)
    client.send(packet)
    assert client.closed
    connacks = [p.reason_code for p in client.packets if isinstance(p, ConnAck)]
    assert connacks == ([reason_code] if reason_code >= 0 else [])
    assert receiver.take_publishes() == []
    assert world.broker.connecting == {}


def test_a_client_that_does_not_answer_is_refused(world: Any) -> None:
    CountingDecider(world.broker)
    client = opened(world)
    world.advance(world.broker.settings.connect_timeout + 1.0)
    assert client.closed
    assert client.packets[-1].reason_code == 0x88


def test_input_waits_while_the_decider_thinks(world: Any) -> None:
    decider = CountingDecider(world.broker, 1, later=True)
    client = opened(world)
    assert not client.reading
    go_on(world, decider)
    assert client.reading
    client.send(auth(0x18, b"1"))
    assert not client.reading
    go_on(world, decider)
    assert client.reading


def test_a_client_without_method_is_sent_no_auth(world: Any) -> None:
    """[MQTT-4.12.0-6]: the decider is asked as ever, and may not challenge."""
    decider = CountingDecider(world.broker)
    client = world.connect("c")
    (connack,) = [client.connack]
    assert METHOD not in connack.properties
    with pytest.raises(AssertionError, match=r"MQTT-4\.12\.0-6"):
        decider.asked[0][1].challenge(b"1")


def test_a_challenge_that_is_too_large_for_the_client(world: Any) -> None:
    class Talker(CountingDecider):
        def answer(self, request: AuthenticationRequest) -> None:
            request.challenge(bytes(200))

    Talker(world.broker)
    client = opened(world, properties={props.MAXIMUM_PACKET_SIZE: 100})
    assert client.connack.reason_code == 0x95
    assert client.closed


def test_a_challenge_is_the_only_answer_to_its_packet(world: Any) -> None:
    """The decider goes on when the client has answered."""
    decider = CountingDecider(world.broker)
    opened(world)
    (_, request) = decider.asked[0]
    assert request.is_challenged
    with pytest.raises(AssertionError, match="answered once"):
        request.accept()


# --- re-authentication


def connected(world: Any, decider: CountingDecider) -> Any:
    steps, decider.steps = decider.steps, 0
    later, decider.later = decider.later, False
    client = opened(world)
    decider.steps, decider.later = steps, later
    client.take_packets()
    return client


@pytest.mark.parametrize("later", [False, True])
def test_reauthentication(world: Any, later: bool) -> None:
    """Other packets are handled meanwhile [MQTT5 4.12.1]; it can be done again."""
    decider = CountingDecider(world.broker, 1, later)
    client = connected(world, decider)
    for _ in range(2):
        client.send(auth(0x19))
        client.send(PingReq())
        go_on(world, decider)
        client.send(auth(0x18, b"1"))
        client.send(PingReq())
        go_on(world, decider)
        packets = client.take_packets()
        assert [p for p in packets if isinstance(p, Auth)] == [auth(0x18, b"1"), auth(0x00, b"done")]
        assert [p for p in packets if not isinstance(p, Auth)] == [PingResp()] * 2
    assert decider.asked[-1][1].username == "counter"
    assert not client.closed


@pytest.mark.parametrize("later", [False, True])
def test_a_failed_reauthentication_ends_the_connection(world: Any, later: bool) -> None:
    """DISCONNECT with the reason [MQTT-4.12.1-2]."""
    decider = CountingDecider(world.broker, 1, later)
    client = connected(world, decider)
    client.send(auth(0x19))
    go_on(world, decider)
    client.send(auth(0x18, b"9"))
    go_on(world, decider)
    assert [p.reason_code for p in client.packets] == [0x18, NOT_AUTHORIZED]
    assert isinstance(client.packets[1], Disconnect)
    assert client.closed


@pytest.mark.parametrize(
    ("name", "packets"),
    [
        ("no exchange", [auth(0x18, b"1")]),
        ("success is of the server", [auth(0x00)]),
        ("another method [MQTT-4.12.1-1]", [auth(0x19, b"", "OTHER")]),
        ("no method", [auth(0x19, b"", "")]),
        ("two at once", [auth(0x19), auth(0x19)]),
        ("an answer before the challenge", [auth(0x19), auth(0x18, b"1")]),
    ],
)
def test_faults_of_a_reauthentication(world: Any, name: str, packets: list[Auth]) -> None:
    decider = CountingDecider(world.broker, 1, later=True)
    client = connected(world, decider)
    for packet in packets:
        client.send(packet)
    assert [p.reason_code for p in client.packets] == [0x82], name
    assert client.closed
    before = client.output
    for request in decider.waiting:
        assert not request.is_open()
    go_on(world, decider)
    assert client.output == before, "the answer to a client that left has no effect"


def test_a_challenge_to_a_connected_client_that_is_too_large(world: Any) -> None:
    decider = CountingDecider(world.broker, 0)
    client = opened(world, properties={props.MAXIMUM_PACKET_SIZE: 100})
    client.take_packets()
    client.send(auth(0x19))
    decider.later = True
    client.send(auth(0x19))
    decider.waiting[0].challenge(bytes(200))
    world.flush()
    assert [p.reason_code for p in client.packets] == [0x00, 0x95]


def test_credentials_expire_later_after_a_reauthentication(world: Any) -> None:
    class Expiring(CountingDecider):
        def answer(self, request: AuthenticationRequest) -> None:
            request.expires_at = world.now + 10.0
            request.accept()

    Expiring(world.broker)
    client = opened(world)
    world.advance(9.0)
    client.send(auth(0x19))
    world.advance(9.0)
    assert not client.closed
    world.advance(1.5)
    assert client.closed
    assert client.packets[-1].reason_code == NOT_AUTHORIZED


def test_the_decider_of_a_method_may_not_be_without_an_opinion_later(world: Any) -> None:
    class Silent(CountingDecider):
        def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
            request.has_no_opinion()

    client = connected(world, Silent(world.broker))
    client.send(auth(0x19))
    assert client.closed
    assert [p.reason_code for p in client.packets] == [NOT_AUTHORIZED]


@pytest.mark.parametrize("later", [False, True])
def test_other_deciders_are_asked_about_a_client_with_a_method(world: Any, later: bool) -> None:
    """After the last answer to a challenge; CONNACK has the data of the decider that has the method."""

    class Other(ConnectDecider):
        def __init__(self) -> None:
            self.asked: list[tuple[str, str]] = []

        def decide(self, request: ConnectRequest, now: float) -> None:
            self.asked.append((request.method, request.username))
            request.has_no_opinion()

    first, decider, last = Other(), CountingDecider(world.broker, 1, later), Other()
    world.broker.connect_deciders = (first, decider, last)
    client = opened(world)
    if later:
        go_on(world, decider)
    client.send(auth(0x18, b"1"))
    if later:
        go_on(world, decider)
    connack = client.packets[-1]
    assert isinstance(connack, ConnAck)
    assert (connack.reason_code, connack.properties[DATA]) == (0, b"done")
    assert (first.asked, last.asked) == ([("COUNT", "")], [("COUNT", "counter")])


def test_a_node_that_lost_its_decider(world: Any) -> None:
    decider = CountingDecider(world.broker, 1)
    client, undecided = connected(world, decider), opened(world, "d")
    world.broker.connect_deciders = ()
    client.send(auth(0x19))
    undecided.send(auth(0x18, b"1"))
    assert [p.reason_code for p in client.packets] == [0x8C]
    assert [p.reason_code for p in undecided.packets] == [0x18, 0x8C]


class Elsewhere(Ownership):
    """Other nodes, of which none answers a claim."""

    def __init__(self, is_away: bool) -> None:
        self.is_away = is_away

    def claim(self, claimant: Claimant, client_id: str, username: str, clean_start: bool, now: float) -> bool:
        return True

    def may_be_elsewhere(self) -> bool:
        return self.is_away

    def opened(self, session: Subscriber) -> None:
        """Nobody is told."""


class Undecided(Elsewhere):
    def claim(self, claimant: Claimant, client_id: str, username: str, clean_start: bool, now: float) -> bool:
        return False


@pytest.mark.parametrize("connect_timeout", [1.0, 2.0 * CLAIM_SECONDS_MAX])
def test_a_client_waits_for_other_nodes_no_longer_than_they_may_take(make_world: Any, connect_timeout: float) -> None:
    """connect_timeout bounds what comes before."""
    world = make_world(connect_timeout=connect_timeout)
    world.broker.ownership = Undecided(True)
    client = world.open()
    world.advance(0.5)
    client.connect("c")
    world.advance(max(CLAIM_SECONDS_MAX + 0.5, connect_timeout) - 1.5)
    assert not client.closed
    world.advance(2.0)
    assert client.closed
    (answer,) = client.packets
    assert answer.reason_code == 0x88
    text = answer.properties[props.REASON_STRING]
    assert "connect_timeout" in text
    assert f"{CLAIM_SECONDS_MAX:g} s" in text


@pytest.mark.parametrize("is_away", [True, False])
@pytest.mark.parametrize("says_something", [True, False])
def test_a_session_is_new_until_its_client_knows(world: Any, is_away: bool, says_something: bool) -> None:
    """A CONNACK may get lost. Who has a session on a node that is not reached would take the new one for that."""
    world.broker.ownership = Elsewhere(is_away)
    client = world.connect("c", clean_start=False, expiry=60)
    if says_something:
        client.send(PingReq())
    client.cut()
    answer = Client(world, 5).connect("c", clean_start=False, expiry=60)
    assert answer is not None
    assert answer.session_present is (says_something or not is_away)
