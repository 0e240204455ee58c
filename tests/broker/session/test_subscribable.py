"""What a client may subscribe to: the settings, its access, and the bound of links."""

from __future__ import annotations

from typing import Any

import pytest

from broker.session.subscribable import judge_filter
from broker_world import World
from link_ends import remote_end
from topic_rights import TopicRights


@pytest.mark.parametrize(
    ("limits", "full", "expected"),
    [
        ({}, b"a/+", (0, b"", b"a/+")),
        ({}, b"$share/g/a/#", (0, b"g", b"a/#")),
        ({}, b"a/#/b", (0x8F, b"", b"")),
        ({}, b"", (0x8F, b"", b"")),
        ({"max_topic_levels": 2}, b"a/b/c", (0x8F, b"", b"")),
        ({"shared_subscription_available": False}, b"$share/g/a", (0x9E, b"", b"")),
        ({"wildcard_subscription_available": False}, b"a/+", (0xA2, b"", b"")),
        ({"wildcard_subscription_available": False}, b"a", (0, b"", b"a")),
    ],
)
def test_filters_are_judged_by_the_settings(
    limits: dict[str, Any], full: bytes, expected: tuple[int, bytes, bytes]
) -> None:
    world = World(**limits)
    world.connect("c")
    assert judge_filter(world.broker, world.broker.sessions["c"], full) == expected


def test_filters_are_judged_by_the_access_of_the_client() -> None:
    world = World()
    TopicRights(world, reader="a")
    world.connect("c", username="reader")
    session = world.broker.sessions["c"]
    assert judge_filter(world.broker, session, b"a") == (0, b"", b"a")
    assert judge_filter(world.broker, session, b"b") == (0x87, b"", b"")


def test_a_link_has_a_bound_of_subscriptions_of_its_own() -> None:
    world = World(max_subscriptions_per_client=1, link_max_subscriptions=2)
    client = world.connect("c")
    assert client.subscribe(b"a", b"b") == [2, 0x97]
    world.broker.sessions["c"].bridge_end = remote_end(world.broker, b"berlin")
    assert client.subscribe(b"b", b"c") == [2, 0x97]
