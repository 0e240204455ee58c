"""All links of a node: a fault in one of them is its own."""

from __future__ import annotations

import pytest

from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.interest import STEPS_PER_CALL
from federation.links.link import CONNECT_SECONDS_MAX
from federation.links.status import LinkState
from link_world import World


def test_a_fault_in_a_deadline_stops_its_link_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    upstreams = [parse_upstream(name, {"uri": f"mqtt://{name}.example.com"}) for name in ("north", "south")]
    policy = parse_policy("p", {"pattern": "s/#", "definition": {"federation-upstream-set": "all"}})
    world.links.resolve(Resolution(upstreams, [], [policy]), world.now)
    for link_id in world.links.plans():
        world.links.run(link_id, 1, world.now)
    world.want()
    first, second = world.links.by_id.values()
    fault = KeyError("deadline")

    def fail(now: float) -> None:
        raise fault

    monkeypatch.setattr(first, "handle_timeout", fail)
    faults = world.links.handle_timeout(world.now + CONNECT_SECONDS_MAX)
    assert (faults, first.state, second.state) == ([fault], LinkState.SHUTDOWN, LinkState.ERROR)
    monkeypatch.undo()
    first.restart(world.now)
    assert first.state is LinkState.STARTING


def test_a_new_link_is_told_of_all_filters_before_it_connects() -> None:
    world = World()
    for number in range(STEPS_PER_CALL + 1):
        world.want(b"t/%d" % number)
    north = parse_upstream("north", {"uri": "mqtt://north.example.com"})
    policy = parse_policy("p", {"pattern": "t/#", "definition": {"federation-upstream": "north"}})
    world.links.resolve(Resolution([north], [], [policy]), world.now)
    (link,) = world.links.by_id.values()
    assert (link.state, link.wants_connection) == (LinkState.STARTING, False)
    assert world.links.pass_on(world.now)
    link.restart(world.now)
    assert not link.wants_connection
    assert not world.links.pass_on(world.now)
    assert (link.state, link.wants_connection) == (LinkState.STARTING, True)
    assert len(link.subscriptions.wanted) == STEPS_PER_CALL + 1
