"""A link that pushes, beside one that takes the same topics back, over a broker that strips properties."""

from __future__ import annotations

from copy import copy

from broker.codec.packets import ConnAck, PubAck, Publish
from broker.message import Message
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.status import LinkState
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
    assert world.link.sessions_lost == 0
    world.until_next_try()
    world.version = 5
    world.run()
    assert world.state() is LinkState.RUNNING


def test_a_message_that_comes_back_is_known_by_its_content() -> None:
    """In both directions between two brokers, over one that strips properties."""
    world = World({"content-window": 2_000})
    into = world.link.plan.upstream
    out = parse_upstream("out", {"uri": "mqtt://north.example.com", "direction": "out", "content-window": 2_000})
    policy = parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream-set": "all"}})
    world.version = 4
    worlds = {}
    world.links.resolve(Resolution([out, into], [], [policy]), world.now)
    for link_id, plan in world.links.plans().items():
        world.links.run(link_id, 1, world.now)
        worlds[plan.upstream.name] = made = copy(world)
        made.link = world.links.by_id[link_id]
        made.shell = Shell(made.link)
    world.want(b"s/#")
    for made in worlds.values():
        made.link.connected(made.link.attempt, made.now)
        made.receive(ConnAck(False, 0x84), version=4)
        made.shell.out = b""
        made.run()
    for number in (1, 2):
        worlds["out"].broker.publish(Message(b"s/a", b"x", 0, False), world.now, None)
        worlds["out"].flush()
        (pushed,) = worlds["out"].sent()
        assert pushed == Publish(b"s/a", b"x")
        worlds["north"].receive(Publish(b"s/a", b"x", 1, packet_id=number), Publish(b"s/b", b"x"))
        assert worlds["north"].sent() == [PubAck(number)]
        assert worlds["out"].sent() == []
    status = worlds["north"].link.status(world.now)
    assert (status.received, status.dropped) == (4, {"link_content": 2})
