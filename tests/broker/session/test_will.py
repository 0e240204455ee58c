"""Wills [MQTT5 3.1.2.5, 3.1.3.2]: when they are published, when not, and when the session ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.codec.packets import Will

WILL = Will(b"w", b"gone", 1)
DELAYED = Will(b"w", b"gone", 1, delay_interval=10)


@pytest.fixture
def watcher(world: Any) -> Any:
    client = world.connect("watcher")
    client.subscribe(b"w")
    return client


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("end", ["lost", "keep alive", "fault", "take over", "shut down", "normal"])
def test_the_will_is_published_unless_the_client_disconnects_normally(
    world: Any, watcher: Any, version: int, end: str
) -> None:
    """[MQTT-3.1.2-8]; not after a normal DISCONNECT [MQTT-3.1.2-10] [MQTT-3.14.4-3]."""
    client = world.connect("c", version, will=WILL, keep_alive=10)
    if end == "lost":
        client.cut()
    elif end == "keep alive":
        world.advance(15.5)
    elif end == "fault":
        client.send_bytes(b"\x36\x00")
    elif end == "take over":
        world.connect("c", version)
    elif end == "shut down":
        world.broker.close_client("c", False, world.now)
        world.flush()
    else:
        client.disconnect()
    assert client.closed
    assert watcher.take_payloads() == ([] if end == "normal" else [b"gone"])
    client.cut()
    world.advance(8000.0)
    assert watcher.take_payloads() == []


@pytest.mark.parametrize(
    ("reason_code", "published"), [(0x00, False), (0x04, True), (0x80, True), (0x81, True), (0x93, True), (0x97, True)]
)
def test_disconnect_reason_codes(world: Any, watcher: Any, reason_code: int, published: bool) -> None:
    """[MQTT-3.14.4-3]: only 0x00 takes the will away."""
    world.connect("c", will=WILL).disconnect(reason_code)
    assert watcher.take_payloads() == ([b"gone"] if published else [])


@pytest.mark.parametrize(
    ("expiry", "early", "late"),
    [(100, 9.9, 10.3), (5, 4.9, 5.3), (0, None, 0.0), (10, 9.9, 10.3), (0xFFFFFFFF, 9.9, 10.3)],
)
def test_the_delay_or_the_end_of_the_session(
    world: Any, watcher: Any, expiry: int, early: float | None, late: float
) -> None:
    """[MQTT-3.1.3-9] and [MQTT-3.1.2-8]: whichever is first."""
    client = world.connect("c", will=DELAYED, expiry=expiry)
    client.cut()
    if early is not None:
        world.advance(early)
        assert watcher.take_payloads() == []
        world.advance(late - early)
    assert watcher.take_payloads() == [b"gone"]
    world.advance(200.0)
    assert watcher.take_payloads() == []
    assert world.broker.counters.wills_published == 1


def test_a_client_that_came_back(world: Any, watcher: Any) -> None:
    """[MQTT-3.1.3-9]: no will when the client is there again before the delay has passed."""
    world.connect("c", will=DELAYED, expiry=100).cut()
    world.advance(9.0)
    again = world.connect("c", clean_start=False, expiry=100)
    world.advance(50.0)
    assert watcher.take_payloads() == []
    again.cut()
    world.advance(200.0)
    assert watcher.take_payloads() == []  # this connection had none
    assert len(world.broker.timers) == 1  # the watcher's keep alive: nothing of the will is kept


def test_a_client_that_came_back_too_late(world: Any, watcher: Any) -> None:
    """The delay has passed: the will is due, although no timer came yet."""
    world.connect("c", will=DELAYED, expiry=100).cut()
    world.now += 10.01
    world.connect("c", clean_start=False, expiry=100)
    assert watcher.take_payloads() == [b"gone"]
    world.advance(50.0)
    assert watcher.take_payloads() == []
    assert world.broker.counters.wills_published == 1


def test_a_will_that_new_settings_refuse(world: Any) -> None:
    """It is dropped and counted; the end of its connection, and everybody else's timers, go on."""
    clients = [world.connect(name, keep_alive=10, will=Will(b"a/b/c", b"gone")) for name in ("a", "b", "c")]
    world.broker.apply_settings(replace(world.broker.settings, max_topic_levels=2))
    world.advance(20.0)
    assert [client.closed for client in clients] == [True] * 3
    assert world.broker.sessions == {}
    assert world.drops() == {"will_refused": 3}
    assert world.broker.counters.wills_published == 0


@pytest.mark.parametrize("clean_start", [True, False])
@pytest.mark.parametrize(("old_expiry", "delay"), [(0, 10), (100, 0), (100, 10)])
def test_take_over(world: Any, watcher: Any, clean_start: bool, old_expiry: int, delay: int) -> None:
    """The old connection's will is published unless the session goes on and its delay has not passed [MQTT5 3.1.4]."""
    will = Will(b"w", b"old", delay_interval=delay)
    world.connect("c", will=will, expiry=old_expiry)
    world.connect("c", clean_start=clean_start, expiry=100, will=Will(b"w", b"new", delay_interval=1))
    goes_on = not clean_start and old_expiry and delay
    assert watcher.take_payloads() == ([] if goes_on else [b"old"])
    world.broker.close_client("c", False, world.now)
    world.advance(1.3)
    assert watcher.take_payloads() == [b"new"]


def test_clean_start_ends_the_waiting_will(world: Any, watcher: Any) -> None:
    world.connect("c", will=DELAYED, expiry=100).cut()
    assert watcher.take_payloads() == []
    world.connect("c", clean_start=True)
    assert watcher.take_payloads() == [b"gone"]


def test_disconnect_with_will_and_another_expiry(world: Any, watcher: Any) -> None:
    world.connect("c", will=DELAYED, expiry=100).disconnect(0x04, expiry=3)
    world.advance(3.3)
    assert watcher.take_payloads() == [b"gone"]
    assert "c" not in world.broker.sessions


def test_the_end_of_a_session_by_hand(world: Any, watcher: Any) -> None:
    world.connect("c", will=DELAYED, expiry=100)
    world.broker.close_client("c", True, world.now)
    world.flush()
    assert watcher.take_payloads() == [b"gone"]


def test_will_properties(world: Any, watcher: Any) -> None:
    """[MQTT-3.1.2-14/15]: QoS and RETAIN of the will; its expiry begins when it is published [MQTT5 3.1.3.2.4]."""
    will = Will(b"w", b"gone", 2, True, b"\x26\0\x01k\0\x01v", 60, 10)
    world.connect("c", will=will, expiry=100).cut()
    world.advance(10.25)
    (publish,) = watcher.take_publishes()
    assert (publish.qos, publish.retain, publish.properties) == (2, False, will.properties)
    assert publish.message_expiry_interval == 60
    world.advance(30.0)
    late = world.connect("late")
    late.subscribe(b"w")
    (publish,) = late.take_publishes()
    assert (publish.payload, publish.retain, publish.message_expiry_interval) == (b"gone", True, 30)


def test_a_session_gets_its_own_will(world: Any) -> None:
    """The session gets its own will like anybody else's messages: it comes with the rest when the client returns."""
    client = world.connect("c", will=WILL, expiry=100)
    client.subscribe(b"w")
    client.cut()
    assert world.connect("c", clean_start=False).take_payloads() == [b"gone"]
