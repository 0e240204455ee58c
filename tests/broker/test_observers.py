"""Observers of clients, deliveries and messages: what they are told, in which order, and that a fault reaches nobody else."""

from __future__ import annotations

from typing import Any

from broker.codec.packets import Will
from broker.codec.runs import Run
from broker.faults import Faults
from broker.hooks import ClientObserver, DeliveryObserver, Tap
from broker.message import Message
from broker.publisher import Publisher


class Told(Faults):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def plugin_failed(self, call: str, error: Exception) -> None:
        self.calls.append(call)


class Clients(ClientObserver):
    """Writes down every call; raises afterwards when it is faulty."""

    def __init__(self, is_faulty: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._is_faulty = is_faulty

    def _told(self, *call: Any) -> None:
        self.calls.append(call)
        if self._is_faulty:
            raise RuntimeError("fault of an observer")

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        self._told("client_connected", client_id, version)

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        self._told("client_disconnected", client_id)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self._told("client_refused", client_id)

    def session_created(self, client_id: str) -> None:
        self._told("session_created", client_id)

    def session_resumed(self, client_id: str) -> None:
        self._told("session_resumed", client_id)

    def session_terminated(self, client_id: str, reason: str) -> None:
        self._told("session_terminated", client_id, reason)

    def subscribed(self, client_id: str, full_filter: bytes, qos: int) -> None:
        self._told("subscribed", client_id, full_filter, qos)

    def unsubscribed(self, client_id: str, full_filter: bytes) -> None:
        self._told("unsubscribed", client_id, full_filter)

    def will_published(self, client_id: str, message: Message) -> None:
        self._told("will_published", client_id, message.topic)


EXPECTED: list[tuple[Any, ...]] = [
    ("session_created", "c"),
    ("client_connected", "c", 5),
    ("subscribed", "c", b"a", 1),
    ("subscribed", "c", b"a", 0),
    ("subscribed", "c", b"$share/g/b", 2),
    ("unsubscribed", "c", b"a"),
    ("client_disconnected", "c"),
    ("will_published", "c", b"will"),
    ("session_resumed", "c"),
    ("client_connected", "c", 5),
    ("client_disconnected", "c"),
    ("unsubscribed", "c", b"$share/g/b"),
    ("session_terminated", "c", "expired"),
    ("session_created", "c"),
    ("client_connected", "c", 5),
    ("client_disconnected", "c"),
    ("session_terminated", "c", "replaced"),
    ("session_created", "c"),
    ("client_connected", "c", 5),
    ("client_disconnected", "c"),
    ("session_terminated", "c", "ended"),
    ("client_refused", ""),
]


def live(world: Any) -> None:
    """What EXPECTED tells."""
    client = world.connect("c", expiry=100, will=Will(b"will", b"x"))
    client.subscribe(b"a", qos=1)
    client.subscribe(b"a", qos=0)
    client.subscribe(b"$share/g/b")
    client.unsubscribe(b"a", b"unknown")
    client.cut()
    client = world.connect("c", clean_start=False, expiry=100)
    client.disconnect()
    world.advance(102.0)
    world.connect("c", expiry=100).disconnect()
    world.connect("c").disconnect()
    world.open().send_bytes(b"\x16\x03\x01\0\0")


def test_observers_of_clients_are_told_in_order(world: Any) -> None:
    observers = [Clients(), Clients()]
    for observer in observers:
        world.broker.add_observer(observer)
    live(world)
    assert [observer.calls for observer in observers] == [EXPECTED, EXPECTED]
    world.broker.remove_observer(observers[0])
    world.connect("d")
    assert (len(observers[0].calls), len(observers[1].calls)) == (len(EXPECTED), len(EXPECTED) + 2)
    world.broker.remove_observer(observers[1])
    assert world.broker.observer is None


def test_a_fault_of_one_observer_does_not_affect_the_others(world: Any) -> None:
    faults = world.broker.faults = Told()
    faulty, sound = Clients(is_faulty=True), Clients()
    world.broker.add_observer(faulty)
    world.broker.add_observer(sound)
    live(world)
    assert sound.calls == faulty.calls == EXPECTED
    assert faults.calls == [f"ClientObserver.{call[0]!s}" for call in EXPECTED]
    assert world.broker.counters.plugin_faults == len(EXPECTED)


class Deliveries(DeliveryObserver):
    def __init__(self, is_faulty: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._is_faulty = is_faulty

    def _told(self, *call: Any) -> None:
        self.calls.append(call)
        if self._is_faulty:
            raise RuntimeError("fault of an observer")

    def delivered(self, client_id: str, message: Message, qos: int) -> None:
        self._told("delivered", client_id, message.payload, qos)

    def delivered_run(self, client_id: str, run: Run) -> None:
        self._told("delivered_run", client_id, run.count)

    def dropped(self, client_id: str, qos: int, reason: str) -> None:
        self._told("dropped", client_id, qos, reason)


def test_observers_of_deliveries_see_messages_runs_and_drops(make_world: Any) -> None:
    world = make_world(max_queued_messages=2, max_inflight=1)
    faults = world.broker.faults = Told()
    faulty, sound = Deliveries(is_faulty=True), Deliveries()
    world.broker.add_delivery_observer(faulty)
    world.broker.add_delivery_observer(sound)
    reader = world.connect("r", auto=False)
    reader.subscribe(b"a", qos=1)
    sender = world.connect("s")
    sender.send_bytes(b"\x30\x05\0\x01a\0x" * 3)
    for number in range(3):
        world.broker.publish(Message(b"a", b"%d" % number, 1, False), world.now)
    assert sound.calls == faulty.calls
    assert sound.calls == [
        ("delivered_run", "r", 3),
        ("delivered", "r", b"0", 1),
        ("dropped", "r", 1, "queue_full"),
    ]
    assert faults.calls == [f"DeliveryObserver.{call[0]}" for call in sound.calls]


class Taps(Tap):
    def __init__(self, is_faulty: bool = False) -> None:
        self.seen: list[tuple[bytes, int]] = []
        self._is_faulty = is_faulty

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        self.seen.append((message.topic, 1))
        if self._is_faulty:
            raise RuntimeError("fault of a tap")

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        self.seen.append((run.topic, run.count))
        if self._is_faulty:
            raise RuntimeError("fault of a tap")


def test_each_tap_sees_every_message(world: Any) -> None:
    faults = world.broker.faults = Told()
    faulty, sound = Taps(is_faulty=True), Taps()
    world.broker.add_tap(faulty)
    world.broker.add_tap(sound)
    reader = world.connect("r")
    reader.subscribe(b"#")
    sender = world.connect("s")
    sender.send_bytes(b"\x30\x05\0\x01a\0x" * 3)
    sender.publish(b"b", b"y", 1)
    assert reader.take_payloads() == [b"x", b"x", b"x", b"y"]
    assert sound.seen == faulty.seen == [(b"a", 3), (b"b", 1)]
    assert faults.calls == ["Tap.published_run", "Tap.published"]
    world.broker.remove_tap(faulty)
    world.broker.remove_tap(sound)
    assert world.broker.tap is None
