"""Wrappers of plugins: their order, refusals, faults; and what they change of SUBSCRIBE, UNSUBSCRIBE, PUBLISH and wills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.codec.packets import PubAck, PubComp, PubRec, SubscribeFilter, Will
from broker.codec.properties import USER_PROPERTY
from broker.counters import Counters
from broker.faults import Faults
from broker.listener_facts import NO_LISTENER
from broker.message import Message
from broker.wrappers import (
    AcceptRequest,
    Chain,
    PublishRequest,
    Request,
    RunRequest,
    SubscribeRequest,
    UnsubscribeRequest,
    WillRequest,
)

NOT_AUTHORIZED = 0x87
IMPLEMENTATION_SPECIFIC = 0x83
USER_PROPERTY_BYTES = bytes([USER_PROPERTY]) + b"\0\x01a\0\x01b"

Proceed = Callable[[Any], None]


class Told(Faults):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def plugin_failed(self, call: str, error: Exception) -> None:
        self.calls.append(call)


def chain(*wrappers: Any) -> tuple[Chain[AcceptRequest], Counters, Told]:
    counters, faults = Counters(), Told()
    made = Chain("accept", wrappers[0], counters, faults)
    for wrapper in wrappers[1:]:
        made.append(wrapper)
    return made, counters, faults


def request() -> AcceptRequest:
    return AcceptRequest("127.0.0.1:1", NO_LISTENER)


# --- the chain ---


def test_the_first_wrapper_stands_outermost() -> None:
    calls: list[str] = []

    def wrapper(name: str) -> Any:
        def around(request: AcceptRequest, proceed: Proceed) -> None:
            calls.append(name)
            proceed(request)
            calls.append(name.upper())

        return around

    made, _, _ = chain(wrapper("a"), wrapper("b"), wrapper("c"))
    assert made.run(request())
    assert calls == ["a", "b", "c", "C", "B", "A"]


def test_a_refusal_is_final() -> None:
    asked: list[str] = []

    def refuses(request: AcceptRequest, proceed: Proceed) -> None:
        request.refuse(0x89, "first")
        proceed(request)

    def later(request: AcceptRequest, proceed: Proceed) -> None:
        asked.append("later")
        proceed(request)

    def outer(request: AcceptRequest, proceed: Proceed) -> None:
        proceed(request)
        request.refuse(0x97, "second")

    made, _, _ = chain(outer, refuses, later)
    found = request()
    assert not made.run(found)
    assert (found.reason_code, found.reason, asked) == (0x89, "first", [])


def test_a_wrapper_that_does_not_proceed_ends_the_chain() -> None:
    asked: list[str] = []
    made, _, _ = chain(lambda request, proceed: None, lambda request, proceed: asked.append("inner"))
    assert made.run(request())
    assert asked == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_wrapper_that_raises_refuses(is_late: bool) -> None:
    def faulty(request: AcceptRequest, proceed: Proceed) -> None:
        if is_late:
            proceed(request)
        raise KeyError("rule")

    made, counters, faults = chain(lambda request, proceed: proceed(request), faulty)
    found = request()
    assert not made.run(found)
    assert (found.reason_code, counters.plugin_faults, faults.calls) == (IMPLEMENTATION_SPECIFIC, 1, ["accept"])


def test_a_refusal_has_a_reason_code_of_an_error() -> None:
    with pytest.raises(AssertionError, match="0x00 is no reason code of a refusal"):
        Request().refuse(0)


# --- SUBSCRIBE and UNSUBSCRIBE ---


@pytest.mark.parametrize("version", [4, 5])
def test_subscriptions_are_refused_and_changed(world: Any, version: int) -> None:
    seen: list[tuple[str, bytes, int]] = []

    def around(request: SubscribeRequest, proceed: Proceed) -> None:
        seen.append((request.client.username, request.filter.topic_filter, request.identifier))
        if request.filter.topic_filter == b"secret":
            request.refuse(NOT_AUTHORIZED)
        request.filter.qos = min(request.filter.qos, 1)
        if request.filter.topic_filter == b"old":
            request.filter = SubscribeFilter(b"new", 0)
        proceed(request)

    world.broker.wrap_subscribe(around)
    client = world.connect("c", version, username="u")
    refused = NOT_AUTHORIZED if version == 5 else 0x80
    assert client.subscribe(b"a", b"secret", b"old", identifier=7 if version == 5 else 0) == [1, refused, 0]
    assert sorted(world.broker.sessions["c"].subscriptions) == [b"a", b"new"]
    assert seen == [("u", name, 7 if version == 5 else 0) for name in (b"a", b"secret", b"old")]
    assert world.broker.counters.subscriptions_refused == 1
    world.check()


def test_a_changed_filter_is_checked(world: Any) -> None:
    def around(request: SubscribeRequest, proceed: Proceed) -> None:
        request.filter.topic_filter = b"a/#/b"

    world.broker.wrap_subscribe(around)
    assert world.connect("c").subscribe(b"a") == [0x8F]


def test_unsubscribing_is_refused(world: Any) -> None:
    def around(request: UnsubscribeRequest, proceed: Proceed) -> None:
        if request.full_filter == b"kept":
            request.refuse(NOT_AUTHORIZED)

    world.broker.wrap_unsubscribe(around)
    client = world.connect("c")
    client.subscribe(b"kept", b"other")
    assert client.unsubscribe(b"kept", b"other", b"unknown") == [NOT_AUTHORIZED, 0, 0x11]
    assert list(world.broker.sessions["c"].subscriptions) == [b"kept"]
    client.disconnect()
    assert world.broker.local_interest() == [], "the end of the session asks nobody"


# --- PUBLISH ---


def wrap(world: Any) -> list[tuple[str, bytes]]:
    """Topics that begin with `no` are refused, `old` becomes `new`. Returns (client id, payload) of the messages seen."""
    seen: list[tuple[str, bytes]] = []

    def around(request: PublishRequest, proceed: Proceed) -> None:
        message = request.message
        seen.append((request.client.client_id, message.payload))
        if message.topic.startswith(b"no"):
            request.refuse(NOT_AUTHORIZED)
        elif message.topic == b"old":
            request.message = Message(b"new", message.payload + b"!", 0, message.retain, message.properties)
        proceed(request)

    world.broker.wrap_publish(around)
    return seen


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("with_properties", [False, True])
def test_messages_are_refused_and_changed(world: Any, version: int, with_properties: bool) -> None:
    seen = wrap(world)
    reader = world.connect("reader")
    reader.subscribe(b"#")
    sender = world.connect("c", version)
    fields = {"properties": USER_PROPERTY_BYTES} if with_properties and version == 5 else {}
    for qos in (0, 1, 2):
        for topic in (b"no", b"old", b"a"):
            sender.publish(topic, b"%d" % qos, qos, **fields)
    got = [(publish.topic, publish.payload, publish.qos) for publish in reader.take_publishes()]
    assert got == [found for qos in (0, 1, 2) for found in ((b"new", b"%d!" % qos, qos), (b"a", b"%d" % qos, qos))]
    assert seen == [("c", b"%d" % qos) for qos in (0, 1, 2) for _ in range(3)]
    code = NOT_AUTHORIZED if version == 5 else 0
    answers = [packet for packet in sender.take_packets() if not isinstance(packet, PubComp)]
    assert [(type(packet), packet.reason_code) for packet in answers] == [
        *((PubAck, found) for found in (code, 0, 0)),
        *((PubRec, found) for found in (code, 0, 0)),
    ]
    assert world.drops() == {"refused_by_plugin": 1 if version == 5 else 3}
    world.check()


def test_a_message_without_receivers_has_its_reason_code(world: Any) -> None:
    wrap(world)
    sender = world.connect("c")
    sender.publish(b"a", b"", 1)
    sender.publish(b"a", b"", 1, properties=USER_PROPERTY_BYTES)
    assert [packet.reason_code for packet in sender.take_packets()] == [0x10, 0x10]


def test_a_new_topic_that_is_invalid_refuses_the_message(world: Any) -> None:
    faults = world.broker.faults = Told()

    def around(request: PublishRequest, proceed: Proceed) -> None:
        request.message = Message(b"a/#", b"", 1, False)

    world.broker.wrap_publish(around)
    sender = world.connect("c")
    sender.publish(b"a", b"", 1)
    assert [packet.reason_code for packet in sender.take_packets()] == [IMPLEMENTATION_SPECIFIC]
    assert len(faults.calls) == world.broker.counters.plugin_faults == 1
    assert not sender.closed


RUN = b"\x30\x05\0\x01a\0x" * 3 + b"\x30\x06\0\x02no\0x" * 3


def test_a_run_is_taken_apart_for_wrappers_of_messages(world: Any) -> None:
    seen = wrap(world)
    reader = world.connect("reader")
    reader.subscribe(b"#")
    world.connect("c").send_bytes(RUN)
    assert reader.take_payloads() == [b"x"] * 3
    assert seen == [("c", b"x")] * 6
    assert world.drops() == {"refused_by_plugin": 3}


def of_runs(seen: list[tuple[bytes, int]]) -> Any:
    def around(request: RunRequest, proceed: Proceed) -> None:
        seen.append((request.run.topic, request.run.count))
        if request.run.topic == b"no":
            request.refuse()
        proceed(request)

    return around


def test_a_run_stays_one_for_wrappers_of_runs(world: Any) -> None:
    seen: list[tuple[bytes, int]] = []
    world.broker.wrap_publish(lambda request, proceed: proceed(request), of_runs(seen))
    world.broker.wrap_publish(lambda request, proceed: proceed(request), of_runs(seen))
    reader = world.connect("reader")
    reader.subscribe(b"#")
    world.connect("c").send_bytes(RUN)
    assert reader.take_payloads() == [b"x"] * 3
    assert seen == [(b"a", 3), (b"a", 3), (b"no", 3)]
    assert world.drops() == {"refused_by_plugin": 3}


@pytest.mark.parametrize("first", [True, False])
def test_one_wrapper_without_runs_takes_all_runs_apart(world: Any, first: bool) -> None:
    seen: list[tuple[bytes, int]] = []
    if first:
        messages = wrap(world)
    world.broker.wrap_publish(lambda request, proceed: proceed(request), of_runs(seen))
    if not first:
        messages = wrap(world)
    world.connect("c").send_bytes(RUN)
    assert (len(messages), seen) == (6, [])


# --- wills ---


def test_wills_are_refused_and_changed(world: Any) -> None:
    def around(request: WillRequest, proceed: Proceed) -> None:
        if request.message.payload == b"no":
            request.refuse()
        else:
            request.message = Message(b"new", request.client.client_id.encode(), 0, False)
        proceed(request)

    world.broker.wrap_will(around)
    reader = world.connect("reader")
    reader.subscribe(b"#")
    for payload in (b"no", b"yes"):
        world.connect("c", will=Will(b"w", payload)).cut()
    assert [(publish.topic, publish.payload) for publish in reader.take_publishes()] == [(b"new", b"c")]
    assert world.drops() == {"refused_by_plugin": 1}
    assert world.broker.counters.wills_published == 1
