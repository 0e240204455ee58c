"""One link while its definition changes: it goes on with its session at the upstream."""

from __future__ import annotations

from typing import Any

from broker.codec.packets import Connect, Disconnect, Packet, Subscribe, Unsubscribe
from broker.codec.properties import SESSION_EXPIRY_INTERVAL
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
from link_world import Shell, World

URIS = ["mqtt://a.example.com", "mqtt://b.example.com"]


def change(world: World, pattern: str = "s/#", **keys: Any) -> list[Packet]:
    """Other definitions. Returns what the link before has sent."""
    before = world.shell
    body = {"uri": "mqtt://north.example.com", "reconnect-delay": 1, **keys}
    policy = {"pattern": pattern, "definition": {"federation-upstream": "north"}}
    world.links.resolve(Resolution([parse_upstream("north", body)], [], [parse_policy("p", policy)]), world.now)
    world.links.pass_on(world.now)
    sent = world.sent()
    (world.link,) = world.links.by_id.values()
    if world.link is not before.link:
        world.shell = Shell(world.link)
    return sent


def filters_of(packets: list[Packet], kind: type[Subscribe] | type[Unsubscribe]) -> list[bytes]:
    found = []
    for packet in packets:
        if isinstance(packet, kind):
            found += (
                packet.topic_filters if isinstance(packet, Unsubscribe) else [f.topic_filter for f in packet.filters]
            )
    return found


def test_filters_of_the_policy_before_are_unsubscribed() -> None:
    world = World()
    world.want(b"s/a")
    world.want(b"t/a")
    world.run()
    change(world, "t/#")
    packets = world.connect(True)
    assert filters_of(packets, Subscribe) == [b"t/a"]
    assert filters_of(packets, Unsubscribe) == [b"s/a"]


def test_filters_on_the_way_are_unsubscribed_too() -> None:
    world = World()
    world.want(b"s/a")
    world.connect()
    change(world, "t/#")
    world.want(b"t/a")
    assert filters_of(world.connect(True), Unsubscribe) == [b"s/a"]


def test_a_change_ends_the_session_of_a_link_without_interest() -> None:
    world = World()
    world.want(b"s/a")
    world.run()
    change(world, "t/#")
    world.run(session_present=True)
    world.advance(10.0)
    assert world.state() is LinkState.IDLE
    (ended,) = [packet for packet in world.sent() if isinstance(packet, Disconnect)]
    assert ended.properties[SESSION_EXPIRY_INTERVAL] == 0


def test_the_link_stays_at_the_address_of_its_session() -> None:
    world = World({"uri": URIS})
    world.want()
    first = world.link.address.host
    world.lose()
    world.until_next_try()
    world.run()
    place = world.link.address.host
    assert place != first
    change(world, uri=URIS, expires=5000)
    assert world.link.address.host == place
    world.lose()
    world.until_next_try()
    assert world.link.address.host == place


def test_another_consumer_tag_ends_the_session_of_the_one_before() -> None:
    world = World()
    world.want()
    world.run()
    (ended,) = [packet for packet in change(world, **{"consumer-tag": "other"}) if isinstance(packet, Disconnect)]
    assert ended.properties[SESSION_EXPIRY_INTERVAL] == 0
    connect, *packets = world.connect()
    assert isinstance(connect, Connect)
    assert connect.client_id == "other"
    assert filters_of(packets, Subscribe) == [b"s/a"]
