"""The session of a link at its upstream: where it is, how long it is kept, and who ends it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from broker.codec import properties as props
from broker.codec.packets import ConnAck, Disconnect, Properties, SubscribeFilter, Unsubscribe
from broker.message import NEVER
from broker.origin import NAME
from federation.links.bridging.headers import LinkWelcome, encode_welcome
from federation.links.link import IDLE_SECONDS
from federation.links.reconnecting import SessionPlace
from federation.links.status import LinkState
from link_world import Shell, World


def test_a_session_that_is_there_needs_no_subscriptions_again() -> None:
    world = World()
    world.want()
    assert len(world.run()) == 1
    world.lose()
    world.until_next_try()
    assert world.run(session_present=True) == []
    world.lose()
    world.until_next_try()
    assert len(world.run(session_present=False)) == 1
    status = world.link.status(world.now)
    assert (status.sessions_lost, status.reconnects) == (1, 2)


def test_a_session_without_interest_is_ended_when_the_upstream_is_back() -> None:
    world = World()
    world.want()
    world.run()
    world.lose()
    world.want_no_more()
    world.advance(0.1)
    world.until_next_try()
    world.lose("away")
    world.advance(3 * IDLE_SECONDS)
    assert world.state() in (LinkState.STARTING, LinkState.ERROR)
    if world.state() is LinkState.ERROR:
        world.until_next_try()
    assert [type(packet) for packet in world.run(session_present=True)] == [Unsubscribe]
    world.advance(IDLE_SECONDS)
    assert world.sent() == [Disconnect(0, {props.SESSION_EXPIRY_INTERVAL: 0})]
    assert (world.state(), world.link.wants_connection) == (LinkState.IDLE, False)


def test_a_session_is_not_ended_over_a_connection_that_may_be_dead() -> None:
    world = World()
    world.want()
    world.run()
    world.want_no_more()
    assert [type(packet) for packet in world.sent()] == [Unsubscribe]
    world.advance(2 * IDLE_SECONDS)
    assert world.link.wants_connection
    world.lose()
    world.until_next_try()
    assert [type(packet) for packet in world.run(session_present=True)] == [Unsubscribe]
    world.advance(IDLE_SECONDS)
    assert world.sent() == [Disconnect(0, {props.SESSION_EXPIRY_INTERVAL: 0})]
    assert world.state() is LinkState.IDLE


def test_a_link_without_interest_tries_no_longer_than_its_session_is_kept() -> None:
    world = World({"expires": 60_000})
    world.want()
    world.run()
    world.lose()
    world.want_no_more()
    world.advance(200)
    assert (world.state(), world.link.wants_connection) == (LinkState.IDLE, False)


def test_a_link_with_mqtt_3_1_1_goes_back_to_its_session_until_expires() -> None:
    world = World({"uri": ["mqtt://a.example.com", "mqtt://b.example.com"], "expires": 60_000})
    world.want()
    first = world.link.address
    world.link.connected(world.link.attempt, world.now)
    world.receive(ConnAck(False, 0x84), version=4)
    world.version, world.shell.out = 4, b""
    world.run()
    world.lose()
    world.advance(59)
    assert (world.link.address, world.link.status(world.now).sessions_lost) == (first, 0)
    world.advance(60)
    assert world.link.status(world.now).sessions_lost == 1


def test_a_session_of_another_process_loses_filters_that_are_not_wanted() -> None:
    welcome: Properties = {
        props.USER_PROPERTY: [(NAME.decode(), encode_welcome(LinkWelcome(b"paris", 1, "", 10, 10)).decode())]
    }
    nothing: Properties = {}
    for properties, sweeps in ((welcome, True), (nothing, False)):
        world = World()
        world.want()
        found = world.run(session_present=True, properties=properties)
        assert [type(packet) for packet in found] == [SubscribeFilter] + [Unsubscribe] * sweeps
        world.lose()
        world.until_next_try()
        assert world.run(session_present=True, properties=properties) == []


def test_the_row_of_a_link_that_runs_again_has_no_old_error() -> None:
    world = World()
    world.want()
    world.run()
    world.lose("away")
    assert world.link.status(world.now).last_error == "away"
    world.until_next_try()
    world.run(session_present=True)
    status = world.link.status(world.now)
    assert (status.last_error, status.error_at) == ("", NEVER)


KEYS = {"uri": ["mqtt://a.example.com", "mqtt://b.example.com"], "expires": 60_000}


def restarted(before: World) -> World:
    """The next process of the node, or another node, which knows where the link has left its session."""
    world = World(KEYS)
    ((link_id, session),) = before.links.sessions().items()
    world.links.end(link_id, world.now)
    world.links.run(link_id, 2, world.now, session)
    world.link = world.links.by_id[link_id]
    world.shell = Shell(world.link)
    return world


@pytest.mark.parametrize("is_present", [True, False])
def test_a_session_that_is_lost_while_the_node_is_down_is_counted(is_present: bool) -> None:
    before = World(KEYS)
    before.want()
    before.run()
    world = restarted(before)
    assert world.link.state is LinkState.IDLE  # what waits there stays until somebody wants it
    assert world.links.sessions() == before.links.sessions()
    world.want()
    assert world.link.address == before.link.address
    world.run(session_present=is_present)
    assert world.link.status(world.now).sessions_lost == (0 if is_present else 1)
    assert world.links.sessions() == before.links.sessions()


def random_world(body: dict[str, Any] = KEYS, session: SessionPlace | None = None) -> World:
    """A node that names the sessions of its links at random, where it knows of none."""
    world = World(body)
    world.links.secret = b"secret"
    (link_id,) = world.links.plans()
    world.links.end(link_id, world.now)
    world.links.run(link_id, 2, world.now, session)
    world.link = world.links.by_id[link_id]
    world.shell = Shell(world.link)
    return world


def test_a_new_session_has_a_random_name_which_stays_with_it() -> None:
    plain = World(KEYS).link.client_id
    world = random_world()
    assert re.fullmatch(re.escape(plain) + "-[0-9a-f]{12}", world.link.client_id)
    world.want()
    world.run()
    ((_, place),) = world.links.sessions().items()
    assert place is not None
    assert place.client_id == world.link.client_id
    assert random_world(session=place).link.client_id == place.client_id
    assert random_world().link.client_id == place.client_id, (
        "the node has lost the file of its sessions, not the secret"
    )
    assert restarted(world).link.client_id == place.client_id, "by a node that makes no such names, too"
    world.links.resolve(world.resolution(KEYS | {"prefetch-count": 7}), world.now)
    (changed,) = world.links.by_id.values()
    assert changed is not world.link
    assert changed.client_id == place.client_id


def test_a_link_that_may_have_an_unknown_session_keeps_its_name() -> None:
    world = World(KEYS)
    (link_id,) = world.links.plans()
    for secret in (b"", b"secret"):
        world.links.secret = secret
        world.links.plain_ids = {link_id}
        world.links.end(link_id, world.now)
        world.links.run(link_id, 2, world.now)
        assert world.links.by_id[link_id].client_id == world.link.client_id


def test_a_session_of_a_build_without_random_names_keeps_its_name() -> None:
    plain = World(KEYS).link.client_id
    assert random_world(session=SessionPlace(plain, "b.example.com", 1883)).link.client_id == plain


@pytest.mark.parametrize("end", ["-0123456789abc", "-0123456789aG", "-x", "0123456789ab"])
def test_a_session_of_a_name_that_the_link_cannot_have_is_not_taken_over(end: str) -> None:
    place = SessionPlace(World(KEYS).link.client_id + end, "b.example.com", 1883)
    assert random_world(session=place).link.client_id != place.client_id


@pytest.mark.parametrize("keys", [{"consumer-tag": "mine"}, {"direction": "out"}])
def test_a_consumer_tag_is_used_as_it_is_and_a_link_that_pushes_has_no_queue_there(keys: dict[str, Any]) -> None:
    assert random_world(KEYS | keys).link.client_id == World(KEYS | keys).link.client_id


def test_a_session_that_the_link_has_ended_is_not_missed() -> None:
    before = World(KEYS)
    before.want()
    before.run()
    before.want_no_more()
    before.answer(before.sent())
    before.advance(IDLE_SECONDS)
    world = restarted(before)
    world.want()
    world.run()
    assert (world.link.status(world.now).sessions_lost, list(before.links.sessions().values())) == (0, [None])


def test_the_next_address_is_tried_when_the_session_of_the_process_before_has_expired() -> None:
    before = World(KEYS)
    before.want()
    before.run()
    world = restarted(before)
    world.want()
    world.advance(130)
    assert world.link.status(world.now).sessions_lost == 1


def test_a_link_that_moves_goes_on_with_its_session_although_another_address_answers() -> None:
    before = World(KEYS)
    before.want()
    before.lose()
    before.until_next_try()
    before.run()  # at the second address
    world = restarted(before)
    world.want()
    for _ in range(3):
        assert world.link.address == before.link.address
        world.lose()
        world.until_next_try()
