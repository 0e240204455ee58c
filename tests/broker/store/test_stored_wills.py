"""A will outlives the process: with its session, or on its own when that ends with the connection."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization import ALLOW, DENY, Authorizer, ClientIdentity, Verdict
from broker.codec.packets import Will
from restarts import kept, member, restarted, restored


@pytest.mark.parametrize(
    ("connected", "delay", "expiry", "downtime", "waits"),
    [
        (True, 0, 100, 50.0, 0.25),  # its connection ended without DISCONNECT
        (True, 10, 100, 50.0, 10.25),
        (False, 10, 100, 4.0, 6.25),
        (False, 10, 100, 50.0, 0.0),
        (False, 100, 10, 50.0, 0.0),
    ],
)
def test_a_will_is_published_when_it_is_due(
    make_world: Any, connected: bool, delay: int, expiry: int, downtime: float, waits: float
) -> None:
    """By then all sessions are there, also those that were restored after its own."""
    world = kept(make_world)
    client = member(world, will=Will(b"w", b"gone", 1, delay_interval=delay), expiry=expiry)
    world.connect("watcher", expiry=100_000).subscribe(b"w")
    if not connected:
        client.cut()
    after = restored(make_world, world, downtime)
    watcher = after.broker.sessions["watcher"]
    assert watcher.queue_length() == 0
    if waits:
        after.advance(waits - 0.25)
        assert watcher.queue_length() == 0
    after.advance(0.25)
    assert watcher.queue_length() == 1
    after.advance(1000.0)
    assert watcher.queue_length() == 1
    assert after.broker.counters.wills_published == 1
    assert list(after.broker.sessions) == ["watcher"]


def test_no_will_of_a_client_that_comes_back_in_time(make_world: Any) -> None:
    world = kept(make_world)
    member(world, will=Will(b"w", b"gone", delay_interval=10))
    after = restarted(make_world, world)
    member(after)
    after.advance(100.0)
    assert after.broker.counters.wills_published == 0


def test_no_will_after_a_disconnect(make_world: Any) -> None:
    world = kept(make_world)
    member(world, will=Will(b"w", b"gone", delay_interval=10)).disconnect()
    after = restarted(make_world, world)
    after.advance(100.0)
    assert after.broker.counters.wills_published == 0


@pytest.mark.parametrize("delay", [0, 10])
def test_the_will_of_a_client_whose_session_ends_with_its_connection(make_world: Any, delay: int) -> None:
    """The end of the process has ended the connection, and the session [MQTT-3.1.2-8]."""
    world = kept(make_world)
    will = Will(b"w", b"gone", 1, True, delay_interval=delay)
    device = world.connect("device", will=will)
    device.subscribe(b"a")
    world.connect("watcher", expiry=100_000).subscribe(b"w")
    after = restarted(make_world, world)
    after.advance(0.25)
    assert after.broker.sessions["watcher"].queue_length() == 1
    assert after.broker.counters.wills_published == 1
    assert list(after.broker.sessions) == ["watcher"]
    again = restarted(make_world, after, 10.0)
    again.advance(0.25)
    assert again.broker.counters.wills_published == 0
    again.check()


@pytest.mark.parametrize("end", ["DISCONNECT", "cut", "take-over"])
def test_a_will_that_is_over_is_in_the_store_no_more(make_world: Any, end: str) -> None:
    world = kept(make_world)
    device = world.connect("device", will=Will(b"w", b"gone", 1))
    assert len(world.stored) == 1
    if end == "DISCONNECT":
        device.disconnect()
    elif end == "cut":
        device.cut()
    else:
        world.connect("device")
    assert world.stored == {}
    assert world.broker.counters.wills_published == (end != "DISCONNECT")


def test_a_client_does_not_wait_for_its_will_in_the_store(make_world: Any) -> None:
    world = kept(make_world)
    write, world.commit = world.commit, lambda: False
    client = world.open()
    assert client.connect("device", will=Will(b"w", b"gone", 1)) is not None
    world.commit = write
    world.flush()
    assert len(world.stored) == 1


def test_the_rights_of_the_client_judge_its_will_after_the_restart(make_world: Any) -> None:
    class NobodyMay(Authorizer):
        def authorize_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
            return DENY if client.client_id == "device" else ALLOW

    world = kept(make_world)
    world.connect("device", will=Will(b"w", b"gone", 1))
    after = restored(make_world, world)
    after.broker.add_authorizer(NobodyMay())
    after.advance(0.25)
    assert after.broker.counters.wills_published == 0
    after.check()
