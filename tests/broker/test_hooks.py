"""A `ConnectDecider` accepts or refuses clients: at once, in a later turn, or never."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization import TopicAccess
from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import ConnAck, Connect, PingReq, PingResp, Publish, Will
from broker.codec.reason_codes import BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED
from broker.codec.writer import encode_packet
from broker.errors import MqttError
from broker.hooks import ClientObserver, ConnectDecider, ConnectRequest
from broker.session.output import CONNECTING


class LaterDecider(ConnectDecider):
    """Keeps all requests; the test answers them."""

    def __init__(self, broker: Broker) -> None:
        self.requests: list[ConnectRequest] = []
        broker.add_connect_decider(self)

    def decide(self, request: ConnectRequest, now: float) -> None:
        self.requests.append(request)


class PasswordDecider(ConnectDecider):
    """Accepts the password `right` at once."""

    def __init__(self, broker: Broker) -> None:
        broker.add_connect_decider(self)

    def decide(self, request: ConnectRequest, now: float) -> None:
        if request.connect.password == b"right":
            request.accept()
        else:
            request.refuse(BAD_USER_NAME_OR_PASSWORD, "wrong password")


class Refusals(ClientObserver):
    def __init__(self, broker: Broker) -> None:
        self.connected: list[str] = []
        self.refused: list[tuple[str, str, str]] = []
        broker.add_observer(self)

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        self.connected.append(client_id)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self.refused.append((client_id, username, reason))


@pytest.fixture
def decider(world: Any) -> LaterDecider:
    return LaterDecider(world.broker)


def answer(world: Any, request: ConnectRequest, reason_code: int = 0) -> None:
    """Answer in a turn of its own."""
    if reason_code:
        request.refuse(reason_code, "not you")
    else:
        request.accept()
    world.flush()


@pytest.mark.parametrize(
    ("version", "password", "code"),
    [
        (3, b"right", 0),
        (4, b"right", 0),
        (5, b"right", 0),
        (3, b"no", 4),
        (4, b"no", 4),
        (5, b"no", 0x86),
        (5, None, 0x86),
    ],
)
def test_connect_is_decided_at_once(world: Any, version: int, password: bytes | None, code: int) -> None:
    PasswordDecider(world.broker)
    client = world.open(version)
    client.connect("c", password=password, username="u")
    assert client.output[3] == code
    assert client.closed is (code != 0)
    assert ("c" in world.broker.sessions) is (code == 0)
    assert not world.broker.connecting


@pytest.mark.parametrize("version", [3, 4, 5])
def test_input_behind_connect_waits_in_order(world: Any, decider: LaterDecider, version: int) -> None:
    watcher = world.connect("watcher")
    answer(world, decider.requests.pop())
    watcher.subscribe(b"#")
    client = world.open(version)
    packets = [Connect("c", version), *(Publish(b"t", b"%d" % number) for number in range(10)), PingReq()]
    data = b"".join(encode_packet(packet, version) for packet in packets)
    for start in range(0, len(data), 7):
        client.connection.receive_data(data[start : start + 7], world.now)
    world.flush()
    assert client.connection.phase is CONNECTING
    assert not client.reading, "the shell pauses the socket"
    assert client.connection.waiting_input()
    assert (client.packets, watcher.take_payloads()) == ([], [])
    client.send(PingReq())  # waits in the socket
    answer(world, decider.requests[0])
    assert [type(packet) for packet in client.packets] == [ConnAck, PingResp, PingResp]
    assert watcher.take_payloads() == [b"%d" % number for number in range(10)]
    assert not client.connection.waiting_input()
    assert world.broker.counters.publishers_held == 0, "the client was not too fast"


def test_a_request_describes_the_client(world: Any, decider: LaterDecider) -> None:
    world.open().connect("", username="u", password=b"p")
    request = decider.requests[0]
    assert (request.connect.username, request.connect.password) == ("u", b"p")
    assert (request.remote_addr, request.local_addr) == ("127.0.0.1:1", "127.0.0.1:2")
    answer(world, request)
    assert list(world.broker.sessions) == [request.client_id]
    assert request.client_id.startswith("gmqttd-")


@pytest.mark.parametrize(("version", "code"), [(3, 5), (4, 5), (5, NOT_AUTHORIZED)])
def test_a_later_refusal_has_its_reason_code(world: Any, decider: LaterDecider, version: int, code: int) -> None:
    observer = Refusals(world.broker)
    client = world.open(version)
    client.connect("c", username="root", will=Will(b"w", b""))
    client.send(Publish(b"t", b"x", retain=True))
    answer(world, decider.requests[0], NOT_AUTHORIZED)
    assert client.output[3] == code
    assert client.closed
    assert observer.refused == [("c", "root", "not you")]
    counters = world.broker.counters
    assert (counters.connections_refused, counters.protocol_errors, counters.wills_published) == (1, 0, 0)
    assert (world.broker.sessions, world.broker.connecting, len(world.broker.retained)) == ({}, {}, 0)
    if version == 5:
        assert client.packets[0].properties[props.REASON_STRING] == "not you"


def test_a_session_that_cannot_be_opened_later_is_refused(make_world: Any) -> None:
    world = make_world(max_sessions=1)
    decider = LaterDecider(world.broker)
    clients = [world.open() for _ in range(2)]
    for number, client in enumerate(clients):
        client.connect(f"c{number}")
    for request in decider.requests:
        answer(world, request)
    assert [client.packets[0].reason_code for client in clients] == [0, 0x97]
    assert [client.closed for client in clients] == [False, True]
    assert not world.broker.connecting


@pytest.mark.parametrize(("version", "output"), [(3, b"\x20\x02\0\x03"), (4, b"\x20\x02\0\x03"), (5, None)])
def test_an_undecided_client_is_refused_after_connect_timeout(
    world: Any, decider: LaterDecider, version: int, output: bytes | None
) -> None:
    observer = Refusals(world.broker)
    client = world.open(version)
    client.connect("c", keep_alive=1)
    world.advance(world.broker.settings.connect_timeout - 0.5)
    assert not client.closed, "the Keep Alive begins later"
    world.advance(1.0)
    assert client.closed
    if output is None:
        assert client.packets[0].reason_code == 0x88
    else:
        assert client.output == output
    assert observer.refused == [("c", "", "CONNECT was not decided within connect_timeout")]
    before = client.output
    answer(world, decider.requests[0])
    assert client.output == before
    assert (world.broker.sessions, world.broker.connecting) == ({}, {})


def test_the_keep_alive_begins_with_the_answer(world: Any, decider: LaterDecider) -> None:
    client = world.open()
    client.connect("c", keep_alive=1)
    world.advance(4.0)
    answer(world, decider.requests[0])
    world.advance(1.0)
    assert not client.closed
    world.advance(1.0)
    assert client.packets[-1].reason_code == 0x8D


def test_messages_that_expire_before_the_answer_are_not_sent(make_world: Any) -> None:
    """Also those that wait for room in the output of the turn."""
    world = make_world(write_buffer_high=150)
    client = world.connect("c", clean_start=False, expiry=100)
    client.subscribe(b"t", qos=1)
    client.cut()
    for number in range(4):
        expiry = {"message_expiry_interval": 10} if number >= 2 else {}
        world.publish(b"t", b"%d" % number + bytes(100), qos=1, **expiry)
    decider = LaterDecider(world.broker)
    again = world.open()
    again.connect("c", clean_start=False, expiry=100, auto=False)
    world.now += 20.0  # no timer comes meanwhile
    answer(world, decider.requests[0])
    assert [payload[:1] for payload in again.take_payloads()] == [b"0", b"1"]


@pytest.mark.parametrize("reason_code", [0, NOT_AUTHORIZED])
def test_the_answer_for_a_client_that_left_has_no_effect(world: Any, decider: LaterDecider, reason_code: int) -> None:
    observer = Refusals(world.broker)
    client = world.open()
    client.connect("c", will=Will(b"w", b""), clean_start=False, expiry=100)
    client.send(Publish(b"t", b"x"))
    request = decider.requests[0]
    assert request.is_open()
    client.cut()
    assert not request.is_open()
    answer(world, request, reason_code)
    assert client.packets == []
    assert (world.broker.sessions, world.broker.connecting) == ({}, {})
    assert (observer.connected, observer.refused) == ([], [])
    assert world.broker.counters.wills_published == 0
    assert world.broker.counters.qos0_received == 0


@pytest.mark.parametrize("reason_code", [0, NOT_AUTHORIZED])
def test_a_session_is_taken_over_when_the_new_client_is_accepted(
    world: Any, decider: LaterDecider, reason_code: int
) -> None:
    old, new, publisher = world.open(), world.open(), world.open()
    for client, client_id in ((old, "c"), (publisher, "publisher")):
        client.connect(client_id, clean_start=False, expiry=100)
        answer(world, decider.requests.pop())
    old.subscribe(b"t", qos=1)
    new.connect("c", clean_start=False, expiry=100)
    publisher.publish(b"t", b"before", 1)
    assert old.take_payloads() == [b"before"]
    answer(world, decider.requests[0], reason_code)
    assert old.closed is (reason_code == 0)
    assert new.closed is (reason_code != 0)
    assert new.packets[0].session_present is (reason_code == 0)
    publisher.publish(b"t", b"after", 1)
    assert (new if reason_code == 0 else old).take_payloads() == [b"after"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_client_that_is_accepted_last_has_the_session(
    world: Any, decider: LaterDecider, order: tuple[int, int]
) -> None:
    clients = [world.open(), world.open()]
    for client in clients:
        client.connect("c", clean_start=False, expiry=100)
    for index in order:
        answer(world, decider.requests[index])
    first, last = (clients[index] for index in order)
    assert (first.closed, last.closed) == (True, False)
    assert first.packets[-1].reason_code == 0x8E
    assert world.broker.sessions["c"].connection is last.connection
    assert last.packets[0].session_present


@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_undecided_clients_are_refused_at_shutdown(world: Any, decider: LaterDecider, version: int, code: int) -> None:
    undecided, late = world.open(version), world.open(version)
    undecided.connect("c")
    world.broker.shut_down(world.now)
    world.flush()
    assert undecided.output[3] == code
    late.connect("d")
    for request in decider.requests:
        answer(world, request)
    assert late.output[3] == code
    assert late.closed
    assert len(undecided.packets) == 1
    assert (world.broker.sessions, world.broker.connecting) == ({}, {})


def test_the_fault_of_a_decider_accepts_no_client(world: Any) -> None:
    class Faulty(ConnectDecider):
        def decide(self, request: ConnectRequest, now: float) -> None:
            raise KeyError("user")

    world.broker.add_connect_decider(Faulty())
    client = world.open()
    with pytest.raises(KeyError):  # the shell logs it and closes the connection
        client.connect("c")
    assert world.broker.sessions == {}
    assert world.broker.counters.plugin_faults == 1
    world.broker.close_connection(client.connection, 0x83, "internal error", world.now)
    world.flush()
    assert client.packets[0].reason_code == 0x83


def test_an_mqtt_error_of_the_decider_refuses_the_client(world: Any) -> None:
    class Strict(ConnectDecider):
        def decide(self, request: ConnectRequest, now: float) -> None:
            raise MqttError(NOT_AUTHORIZED, "not from this address")

    world.broker.add_connect_decider(Strict())
    client = world.open()
    assert client.connect("c").reason_code == NOT_AUTHORIZED
    assert client.closed


def test_a_connect_is_answered_once(world: Any, decider: LaterDecider) -> None:
    world.open().connect("c")
    request = decider.requests[0]
    with pytest.raises(AssertionError, match="0x80 or above"):
        request.refuse(0, "success is no refusal")
    answer(world, request)
    with pytest.raises(AssertionError, match="answered once"):
        request.refuse(NOT_AUTHORIZED, "too late")


# --- several deciders

ALLOW, DENY, ABSTAIN = "allow", "deny", "no opinion"


class OneOfSeveral(ConnectDecider):
    """Gives its answer at once, or when the test calls `answer`."""

    def __init__(self, broker: Broker, verdict: str, later: bool) -> None:
        self.verdict = verdict
        self.later = later
        self.requests: list[ConnectRequest] = []
        broker.add_connect_decider(self)

    def decide(self, request: ConnectRequest, now: float) -> None:
        self.requests.append(request)
        if not self.later:
            self.answer()

    def answer(self) -> None:
        request = self.requests[-1]
        if self.verdict == ALLOW:
            request.accept()
        elif self.verdict == DENY:
            request.refuse(BAD_USER_NAME_OR_PASSWORD, "denied")
        else:
            request.has_no_opinion()


@pytest.mark.parametrize(
    "later", [(False, False, False), (True, True, True), (False, True, False), (True, False, True)]
)
@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((ALLOW,), 0),
        ((ABSTAIN,), NOT_AUTHORIZED),
        ((ABSTAIN, ABSTAIN), NOT_AUTHORIZED),
        ((ABSTAIN, ALLOW), 0),
        ((ALLOW, ABSTAIN, ABSTAIN), 0),
        ((ALLOW, DENY), BAD_USER_NAME_OR_PASSWORD),
        ((DENY, ALLOW), BAD_USER_NAME_OR_PASSWORD),
        ((ABSTAIN, ABSTAIN, DENY), BAD_USER_NAME_OR_PASSWORD),
    ],
)
def test_several_deciders(world: Any, verdicts: tuple[str, ...], code: int, later: tuple[bool, ...]) -> None:
    """A refusal is final; without an opinion the client is refused. No decider is asked after a refusal."""
    deciders = [OneOfSeveral(world.broker, verdict, wait) for verdict, wait in zip(verdicts, later, strict=False)]
    client = world.open()
    data = b"".join(encode_packet(packet, 5) for packet in (Connect("c"), PingReq()))
    client.send_bytes(data)
    for decider in deciders:
        if decider.later and decider.requests:
            assert not client.packets
            assert not client.reading
            decider.answer()
            world.flush()
    assert client.packets[0].reason_code == code
    assert [type(packet) for packet in client.packets] == [ConnAck, PingResp][: 1 if code else 2]
    assert client.closed is (code != 0)
    assert client.connection.held == 0
    asked = len(verdicts) if DENY not in verdicts else verdicts.index(DENY) + 1
    assert [len(decider.requests) for decider in deciders] == [1] * asked + [0] * (len(verdicts) - asked)
    assert not world.broker.connecting


def test_a_decider_sees_the_name_that_another_has_set(world: Any) -> None:
    class Renames(ConnectDecider):
        def decide(self, request: ConnectRequest, now: float) -> None:
            request.username = "from the certificate"
            request.access = (TopicAccess("#", publish=True, subscribe=False),)
            request.accept()

    world.broker.add_connect_decider(Renames())
    last = OneOfSeveral(world.broker, ALLOW, False)
    client = world.connect("c", username="written in CONNECT")
    assert last.requests[0].username == "from the certificate"
    assert world.broker.sessions["c"].username == "from the certificate"
    assert client.connection.access == (TopicAccess("#", publish=True, subscribe=False),)


def test_a_removed_decider_is_asked_no_more(world: Any) -> None:
    decider = OneOfSeveral(world.broker, DENY, False)
    world.broker.remove_connect_decider(decider)
    assert world.connect("c").connack.reason_code == 0
    assert decider.requests == []


class Expiring(ConnectDecider):
    """Accepts for 10 s."""

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.expires_at = now + 10.0
        request.accept()


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("keep_alive", [0, 4, 60])
def test_a_connection_ends_with_its_credentials(world: Any, version: int, keep_alive: int) -> None:
    """Whatever the client sends. Only MQTT 5 has a packet that says why."""
    world.broker.add_connect_decider(Expiring())
    client = world.open(version)
    client.connect("c", keep_alive=keep_alive)
    for _ in range(9):
        world.advance(1.0)
        client.send(PingReq())
    assert not client.closed
    client.take_packets()
    world.advance(1.5)
    assert client.closed
    assert client.connection.close_text == "the credentials have expired"
    assert [packet.reason_code for packet in client.packets] == ([NOT_AUTHORIZED] if version == 5 else [])
