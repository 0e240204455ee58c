"""Client identifiers that belong to users: a table of the rule, and clients that try the one of another user."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec import properties as props
from broker.codec.packets import Auth
from broker.codec.reason_codes import CLIENT_IDENTIFIER_NOT_VALID, NOT_AUTHORIZED, SUCCESS
from broker.errors import MqttError
from broker.hooks import AuthenticationRequest, ConnectDecider, ConnectRequest
from broker.origin import NAME
from broker.session.client_ids import client_id_of
from broker_world import World
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import encode_connect

ASSIGNED = "gmqttd-0"


@pytest.mark.parametrize(
    ("rule", "username", "client_id", "expected"),
    [
        ("off", "alice", "x", "x"),
        ("off", "", "x", "x"),
        ("off", "alice", "", ASSIGNED),
        ("equal", "alice", "x", "alice"),
        ("equal", "alice", "alice", "alice"),
        ("equal", "alice", "", "alice"),
        ("equal", "", "", ASSIGNED),
        ("equal", "", "x", None),
        ("prefix", "alice", "alice:", "alice:"),
        ("prefix", "alice", "alice:1", "alice:1"),
        ("prefix", "alice", "", f"alice:{ASSIGNED}"),
        ("prefix", "alice", "alice", None),
        ("prefix", "alice", "alice-1", None),
        ("prefix", "alice", "alicent:1", None),
        ("prefix", "alice", "bob:1", None),
        ("prefix", "alice", "alice:b:1", None),
        ("prefix", "alice:b", "alice:b:1", "alice:b:1"),
        ("prefix", "aa:bb", "aa:bb", None),
        ("prefix", "", "", ASSIGNED),
        ("prefix", "", ":1", None),
        ("prefix", "x" * 65_530, "", None),
    ],
)
def test_the_rule(rule: str, username: str, client_id: str, expected: str | None) -> None:
    """None is a refusal with Client Identifier not valid."""
    arguments = rule, client_id or ASSIGNED, not client_id, username
    if expected is not None:
        assert client_id_of(*arguments) == expected
        return
    with pytest.raises(MqttError) as caught:
        client_id_of(*arguments)
    assert caught.value.reason_code == CLIENT_IDENTIFIER_NOT_VALID
    assert "user name" in caught.value.text


@given(st.lists(st.text("a:", max_size=4), min_size=2, max_size=2, unique=True), st.text("a:", min_size=1, max_size=6))
@pytest.mark.parametrize("rule", ["prefix", "equal"])
def test_no_two_users_have_one_client_id(rule: str, usernames: list[str], client_id: str) -> None:
    found = []
    for username in usernames:
        try:
            found.append(client_id_of(rule, client_id, False, username))
        except MqttError:
            found.append(f"refused {username}")
    assert found[0] != found[1]


def connack_of(world: World, client_id: str, username: str | None, **options: Any) -> Any:
    return world.open().connect(client_id, username=username, **options)


@pytest.mark.parametrize(("rule", "client_id"), [("prefix", "alice:1"), ("equal", "whatever")])
def test_a_client_keeps_its_queue_from_other_users(rule: str, client_id: str) -> None:
    """They neither end its connection nor its session; its own user does."""
    world = World(client_id_by_user=rule)
    alice = world.connect(client_id, username="alice", expiry=100)
    alice.subscribe(b"t", qos=1)
    for name in (client_id, "alice", "alice:1"):
        for username in ("mallory", None):
            connack_of(world, name, username)
    assert not alice.closed
    alice.disconnect()
    for name in (client_id, "alice", "alice:1"):
        for username in ("mallory", None):
            connack_of(world, name, username)
    world.connect("sender:1", username="sender").publish(b"t", b"kept", 1)
    again = world.open()
    connack = again.connect(client_id, username="alice", clean_start=False, expiry=100)
    assert connack is not None
    assert (connack.reason_code, connack.session_present) == (SUCCESS, True)
    assert again.take_payloads() == [b"kept"]


@pytest.mark.parametrize(("rule", "begins"), [("off", "gmqttd-"), ("prefix", "alice:gmqttd-"), ("equal", "alice")])
def test_an_empty_client_id_gets_one_of_the_user(rule: str, begins: str) -> None:
    """CONNACK of MQTT 5 says which; the client takes its session up with it."""
    world = World(client_id_by_user=rule)
    connack = connack_of(world, "", "alice", expiry=100)
    assigned = connack.properties[props.ASSIGNED_CLIENT_IDENTIFIER]
    assert assigned.startswith(begins)
    assert list(world.broker.sessions) == [assigned]
    assert connack_of(world, assigned, "alice", clean_start=False, expiry=100).session_present
    assert connack_of(world, "", None).properties[props.ASSIGNED_CLIENT_IDENTIFIER].startswith("gmqttd-")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_refusal_has_its_reason(version: int) -> None:
    world = World(client_id_by_user="prefix")
    client = world.open(version)
    connack = client.connect("bob:1", username="alice")
    assert connack is not None
    assert connack.reason_code == CLIENT_IDENTIFIER_NOT_VALID
    assert client.closed
    assert world.broker.sessions == {}


@pytest.mark.parametrize("name", ["link:x", "$queue/x", "$node/x"])
def test_a_user_name_is_no_way_to_an_identifier_of_the_node(name: str) -> None:
    world = World(client_id_by_user="equal")
    assert connack_of(world, "c", name).reason_code == CLIENT_IDENTIFIER_NOT_VALID


class Users(ConnectDecider):
    """Clients whose user name is `link` have that role. Re-authentication is for any user."""

    def methods(self) -> tuple[str, ...]:
        return ("any",)

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.is_link = request.username == "link"
        request.accept()

    def reauthenticate(self, request: AuthenticationRequest, now: float) -> None:
        request.username = request.data.decode()
        request.accept()


@pytest.mark.parametrize("rule", ["prefix", "equal"])
def test_a_link_keeps_its_client_id_and_takes_no_session_of_a_user(rule: str) -> None:
    world = World(client_id_by_user=rule)
    bridging_of(world.broker)
    world.broker.add_connect_decider(Users())
    claim = {props.USER_PROPERTY: [(NAME.decode(), encode_connect(b"paris", 1, False).decode())]}
    alice = world.connect("alice:1", username="alice", expiry=100)
    identifier = alice.connection.client_id
    assert connack_of(world, "federation-link-paris", "link", properties=claim).reason_code == SUCCESS
    assert "federation-link-paris" in world.broker.sessions
    assert connack_of(world, identifier, "link", properties=claim).reason_code == CLIENT_IDENTIFIER_NOT_VALID
    assert not alice.closed
    connack_of(world, "federation-link-paris", "mallory", properties=claim)
    link = world.broker.sessions["federation-link-paris"]
    assert (link.username, link.connection is not None) == ("link", True)


@pytest.mark.parametrize(("rule", "is_closed"), [("off", False), ("equal", True)])
def test_a_client_does_not_become_another_user_while_it_is_connected(rule: str, is_closed: bool) -> None:
    world = World(client_id_by_user=rule)
    world.broker.add_connect_decider(Users())
    client = world.open()
    client.connect("c", username="alice", properties={props.AUTHENTICATION_METHOD: "any"})
    client.send(Auth(0x19, {props.AUTHENTICATION_METHOD: "any", props.AUTHENTICATION_DATA: b"alice"}))
    assert not client.closed
    client.send(Auth(0x19, {props.AUTHENTICATION_METHOD: "any", props.AUTHENTICATION_DATA: b"bob"}))
    assert client.closed == is_closed
    reasons = [packet.reason_code for packet in client.take_packets() if hasattr(packet, "reason_code")]
    assert reasons[-1] == (NOT_AUTHORIZED if is_closed else SUCCESS)
