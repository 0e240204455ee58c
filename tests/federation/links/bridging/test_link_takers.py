"""The session that a link of another domain has made is its queue: who may take it up, and end it."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from broker.hooks import ConnectDecider, ConnectRequest
from broker_world import Client, World
from link_clients import link_options, named_world


class Roles(ConnectDecider):
    """The user `paris` may be a link, `all-of-paris` and `all-of-rome` those of one domain."""

    def decide(self, request: ConnectRequest, now: float) -> None:
        request.is_link = request.username != "joe"
        request.link_domain = request.username.removeprefix("all-of-") if "all-of-" in request.username else ""
        request.accept()


def world_with_queue() -> World:
    """A link of the user `paris` is away, and one message waits for it."""
    world = named_world()
    world.broker.add_connect_decider(Roles())
    link = world.connect("link", **link_options(), username="paris", expiry=100)
    link.subscribe(b"#", qos=1)
    link.disconnect()
    world.publish(b"t", b"kept", qos=1)
    return world


def taken_up(world: World, username: str, is_link: bool, clean_start: bool = False) -> tuple[Client, int]:
    client = world.open()
    options = link_options() if is_link else {}
    connack = client.connect("link", clean_start=clean_start, username=username, expiry=100, **options)
    assert connack is not None
    return client, connack.reason_code


@pytest.mark.parametrize("clean_start", [True, False])
@pytest.mark.parametrize(
    ("username", "is_link", "may"),
    [
        ("paris", True, True),
        ("paris", False, True),
        ("joe", False, False),
        ("joe", True, False),
        ("other", True, False),  # with the role
        ("all-of-paris", True, True),
        ("all-of-paris", False, True),
        ("all-of-rome", False, False),
    ],
)
def test_another_user_neither_resumes_nor_ends_the_session_of_a_link(
    username: str, is_link: bool, may: bool, clean_start: bool
) -> None:
    world = world_with_queue()
    client, code = taken_up(world, username, is_link, clean_start)
    assert code == (0 if may else 0x85)
    if may:
        assert client.take_payloads() == ([] if clean_start else [b"kept"])
    else:
        link, _ = taken_up(world, "paris", True)
        assert link.take_payloads() == [b"kept"]


def test_another_user_does_not_take_over_the_connection_of_a_link() -> None:
    world = named_world()
    world.broker.add_connect_decider(Roles())
    link = world.connect("link", **link_options(), username="paris", expiry=100)
    assert taken_up(world, "joe", False)[1] == 0x85
    assert not link.closed


def test_a_session_of_a_link_that_has_expired_is_nobodys() -> None:
    world = world_with_queue()
    world.broker.sessions["link"].expiry_interval = 0
    assert taken_up(world, "joe", False)[1] == 0


def test_a_released_session_is_taken_up_once_by_another_user() -> None:
    world = world_with_queue()
    end = world.broker.sessions["link"].bridge_end
    assert end is not None
    end.is_released = True
    assert taken_up(world, "other", True)[1] == 0
    assert taken_up(world, "paris", True)[1] == 0x85
    plain = world.connect("plain")
    assert world.broker.sessions[plain.connection.client_id].bridge_end is None


def test_every_client_may_take_up_a_session_where_there_are_no_users() -> None:
    world = named_world()
    world.connect("link", **link_options(), expiry=100).disconnect()
    connack = world.open().connect("link", clean_start=False, expiry=100)
    assert connack is not None
    assert connack.session_present


def test_an_account_of_one_domain_is_no_link_of_another_one() -> None:
    world = named_world()
    world.broker.add_connect_decider(Roles())
    client = world.open()
    connack = client.connect("link", **link_options("paris"), username="all-of-rome")
    assert connack is not None
    assert ("gmqttd-link", "1 refused=role") in props.get_user_properties(connack.properties)
