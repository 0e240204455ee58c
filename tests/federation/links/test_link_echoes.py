"""A link that pushes, beside one that takes the same topics back, over a broker that strips properties."""

from __future__ import annotations

from broker.codec.packets import ConnAck
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
