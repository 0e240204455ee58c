"""A link that pushes, beside one that takes the same topics back, over a broker that strips properties."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from broker.codec.packets import ConnAck, Publish
from broker.message import Message
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
from link_clients import with_header
from link_world import Shell, World


def test_a_link_pushes_no_echoes_to_a_broker_without_version_5() -> None:
    world = World({"direction": "out"})
    again = parse_upstream("again", {"uri": "mqtt://north.example.com"})
    out = world.link.plan.upstream
    policy = parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream-set": "all"}})
    world.links.resolve(Resolution([out, again], [], [policy]), world.now)
    world.shell.out = b""
    for link_id, plan in world.links.plans().items():
        world.links.run(link_id, 1, world.now)
        if plan.upstream == out:
            world.link = world.links.by_id[link_id]
            world.shell = Shell(world.link)
    world.link.connected(world.link.attempt, world.now)
    world.receive(ConnAck(False, 0x84), version=4)
    world.shell.out = b""
    world.version = 4
    world.connect()
    assert world.state() is LinkState.ERROR
    assert world.link.last_error.startswith('s/# comes back over the upstream "again"')
    assert world.link.status(world.now).sessions_lost == 0
    world.until_next_try()
    world.version = 5
    world.run()
    assert world.state() is LinkState.RUNNING


def both_ways(**keys: Any) -> dict[str, World]:
    """Two upstreams at one address of another kind, `north` in and `out`; their links do not run yet."""
    world = World(keys)
    into = world.link.plan.upstream
    out = parse_upstream("out", {"uri": "mqtt://north.example.com", "direction": "out", **keys})
    policy = parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream-set": "all"}})
    worlds = {}
    world.links.resolve(Resolution([out, into], [], [policy]), world.now)
    for link_id, plan in world.links.plans().items():
        world.links.run(link_id, 1, world.now)
        worlds[plan.upstream.name] = made = copy(world)
        made.link = world.links.by_id[link_id]
        made.shell = Shell(made.link)
    world.want(b"s/#")
    return worlds


@pytest.mark.parametrize("header", ["", "1 node=n~1 seq=1 path=oslo", "1 via=aaaaaaaa path=-,oslo"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_is_not_pushed_to_the_address_that_it_came_from(header: str, qos: int) -> None:
    worlds = both_ways(**{"max-hops": 5})
    for made in worlds.values():
        made.run()
    worlds["out"].sent()
    properties = with_header(header) if header else b""
    worlds["north"].receive(Publish(b"s/a", b"x", qos, packet_id=1 if qos else 0, properties=properties))
    assert worlds["out"].sent() == []
    worlds["out"].broker.publish(Message(b"s/a", b"y", 0, False), 100.0, None)
    (pushed,) = worlds["out"].sent()
    assert isinstance(pushed, Publish)
    assert pushed.payload == b"y"
