"""Retained messages that were deleted while a domain had no subscription: its next one brings the deletions."""

from __future__ import annotations

import pytest

from broker.codec import properties as props
from link_clients import NAME, headers, linked, named_world, with_header


def test_a_subscription_of_a_link_brings_what_was_deleted() -> None:
    world = named_world()
    for topic, payload in ((b"a/1", b"x"), (b"a/2", b"x"), (b"a/3", b"x"), (b"b", b"x")):
        world.publish(topic, payload, retain=True)
    for topic in (b"a/1", b"a/2", b"b"):
        world.publish(topic, b"", retain=True)
    world.publish(b"a/2", b"again", retain=True)
    link = linked(world)
    link.subscribe(b"a/#")
    found = link.take_publishes()
    assert {(publish.topic, publish.payload) for publish in found} == {
        (b"a/3", b"x"),
        (b"a/2", b"again"),
        (b"a/1", b""),
    }
    (deletion,) = [publish for publish in found if not publish.payload]
    assert deletion.retain
    assert " late=1 " in headers(deletion)[0]
    link.subscribe(b"a/#", retain_handling=1)
    assert link.take_publishes() == []
    plain = world.connect("plain")
    plain.subscribe(b"a/#")
    assert sorted(plain.take_payloads()) == [b"again", b"x"]


def test_a_link_of_an_older_version_gets_no_deletions() -> None:
    world = named_world()
    world.publish(b"a", b"x", retain=True)
    world.publish(b"a", b"", retain=True)
    link = world.connect("old", properties={props.USER_PROPERTY: [(NAME, "1 domain=oslo max-hops=1")]})
    link.subscribe(b"a")
    assert link.take_publishes() == []


def test_deletions_do_not_go_back_to_the_domain_that_made_them() -> None:
    world = named_world()
    world.publish(b"a", b"x", retain=True)
    linked(world).publish(b"a", b"", retain=True)
    link = linked(world)
    link.subscribe(b"#")
    assert link.take_publishes() == []


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("held_at", "deletes"),
    [(0, False), (5, True), (50, False)],
)
def test_a_late_deletion_deletes_what_is_older_and_tells_nobody_otherwise(
    held_at: int, deletes: bool, qos: int
) -> None:
    world = named_world()
    reader = world.connect("reader")
    reader.subscribe(b"a")
    link = linked(world)
    if held_at:
        link.publish(b"a", b"x", retain=True, properties=with_header(f"1 time={held_at} path=paris"))
    reader.take_payloads()
    for _ in range(2):
        link.publish(b"a", b"", qos, retain=True, properties=with_header("1 time=10 late=1 path=paris"))
    assert reader.take_payloads() == ([b""] if deletes else [])
    assert (world.broker.retained.get(b"a") is None) == (deletes or not held_at)
