"""PublishService on a real broker, over REST."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from api_calls import ErrorCase
from broker.api.publishing import USER_PROPERTIES_MAX
from broker.codec.properties import publish_properties_to_dict
from broker.hooks import Forwarder, Peer, RemoteRoute, Tap
from broker.message import Message
from broker.session.group_queues import GroupQueues


class KeepingPeer(Peer):
    """Another node that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("other", True)
        self.messages: list[Message] = []

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        self.messages.append(message)


class OneNode(Forwarder):
    """Interest of one other node in every topic."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def route(self, topic: bytes) -> RemoteRoute | None:
        return RemoteRoute([self.peer], [])

    def peers(self) -> list[Peer]:
        return [self.peer]


def body(**fields: Any) -> str:
    return json.dumps(fields)


async def test_publish_reaches_subscribers_and_other_nodes(node: Any, rest: Any) -> None:
    peer = KeepingPeer()
    node.broker.forwarder = OneNode(peer)
    client = node.world.connect("c1")
    client.subscribe(b"a/+")
    request = {
        "topic_name": "a/b",
        "payload": "grüße",
        "qos": 1,
        "content_type": "text/plain",
        "correlation_data": "c-1",
        "message_expiry": 90,
        "payload_format": 1,
        "response_topic": "re/ply",
        "user_properties": [{"K": base64.b64encode(b"k").decode(), "V": base64.b64encode(b"v").decode()}],
    }
    assert await rest.post("/v1/publish", request) == {}
    (publish,) = client.take_publishes()
    assert (publish.topic, publish.payload, publish.qos, publish.retain) == (b"a/b", "grüße".encode(), 1, False)
    (message,) = peer.messages
    assert message.expires_at == node.now() + 90
    assert publish_properties_to_dict(message.properties) == {
        1: 1,
        3: "text/plain",
        8: "re/ply",
        9: b"c-1",
        0x26: [("k", "v")],
    }
    assert node.flushes == 1


async def test_retained_publish_is_kept_and_an_empty_one_deletes(node: Any, rest: Any) -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    await rest.post("/v1/publish", {"topicName": "r", "payloadRaw": raw, "retained": True})
    late = node.world.connect("late")
    late.subscribe(b"r")
    assert late.take_payloads() == [b"\xff\x00"]
    await rest.post("/v1/publish", {"topic_name": "r", "retained": True})
    later = node.world.connect("later")
    later.subscribe(b"r")
    assert later.take_payloads() == []


@pytest.mark.parametrize("node", [{"retain_available": False}], indirect=True)
async def test_retained_messages_that_the_configuration_does_not_offer(node: Any, rest: Any) -> None:
    status, answer = await rest.call("POST", "/v1/publish", body(topic_name="a", retained=True))
    assert (status, answer["code"]) == (400, 9)
    assert "mqtt.retain_available is false" in answer["message"]


async def test_user_properties_have_a_bound(rest: Any) -> None:
    pairs = [{"K": "aw==", "V": "dg=="}] * (USER_PROPERTIES_MAX + 1)
    status, answer = await rest.call("POST", "/v1/publish", body(topic_name="a", user_properties=pairs))
    assert (status, f"may have at most {USER_PROPERTIES_MAX}" in answer["message"]) == (400, True)


ERRORS: list[ErrorCase] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("POST", "/v1/publish", "", 400, 3, "topic_name: empty topic name"),
    ("POST", "/v1/publish", body(topic_name="a/+"), 400, 3, "topic_name: topic name 'a/+' has a wildcard"),
    ("POST", "/v1/publish", body(topic_name="a", qos=3), 400, 3, "qos is 3"),
    ("POST", "/v1/publish", body(topic_name="a", payload_format=2), 400, 3, "payload format is 2"),
    ("POST", "/v1/publish", body(topic_name="a", response_topic="#"), 400, 3, "response topic"),
    ("POST", "/v1/publish", body(topic_name="a", content_type="a" * 65536), 400, 3, "content type"),
    ("POST", "/v1/publish", body(topic_name="a", payload="b", payload_raw="Yg=="), 400, 3, "payload and payload_raw"),
    (
        *("POST", "/v1/publish", body(topic_name="a", correlation_data="b", correlation_data_raw="Yg==")),
        *(400, 3, "correlation_data and correlation_data_raw"),
    ),
    (
        "POST",
        "/v1/publish",
        body(topic_name="a", payload_raw="/w==", payload_format=1),
        400,
        3,
        "payload_raw is not UTF-8",
    ),
    ("POST", "/v1/publish", body(topic_name="a", user_properties=[{"K": "/w=="}]), 400, 3, "user_properties[0]"),
    ("POST", "/v1/publish", body(topic_name="a", user_properties=[7]), 400, 3, "[0] must be a JSON object"),
    ("POST", "/v1/publish", body(topic_name="a", user_properties={}), 400, 3, "user_properties must be a list"),
    ("POST", "/v1/publish", body(topic_name="a", qos=True), 400, 3, "qos"),
    ("POST", "/v1/publish", body(topic_name="a", message_expiry=2**32), 400, 3, "message_expiry"),
    ("POST", "/v1/publish", body(topic_name="\ud800"), 400, 3, "topic_name"),
    ("POST", "/v1/publish", '{"\\ud800": 1}', 400, 3, "there is no field named"),
    (
        "POST",
        "/v1/publish",
        body(topic_name="a", topicName="b"),
        400,
        3,
        "topicName: topic_name is given more than once",
    ),
    ("POST", "/v1/publish", '{"topic_name":"a","topic_name":"b"}', 400, 3, '"topic_name" is given more than once'),
    ("POST", "/v1/publish", '{"topic_name":', 400, 3, "line 1 column 15"),
    (
        "POST",
        "/v1/publish",
        "[]",
        400,
        3,
        "the body must be a JSON object: the fields of gmqtt.admin.api.PublishRequest",
    ),
    ("POST", "/v1/publish", "[" * 4000, 400, 3, "nested too deeply"),
    ("POST", "/v1/publish", b"\xff{}", 400, 3, "not UTF-8"),
]


@pytest.mark.parametrize("case", ERRORS, ids=[f"{case[0]} {case[1]} {case[5]}"[:70] for case in ERRORS])
async def test_errors(node: Any, rest: Any, case: ErrorCase) -> None:
    await rest.fails(case)


async def test_a_topic_with_more_levels_than_the_broker_allows(node: Any, rest: Any) -> None:
    levels = node.broker.settings.max_topic_levels + 1
    await rest.fails(("POST", "/v1/publish", body(topic_name="/".join("a" * levels)), 400, 3, "topic_name: "))


async def test_a_full_event_log_refuses(node: Any, rest: Any) -> None:
    class Full(Tap):
        def refuses(self, topic: bytes) -> bool:
            return True

    await rest.post("/v1/publish", {"topic_name": "r", "payload": "kept", "retained": True})
    full = Full()
    node.broker.add_tap(full)
    await rest.fails(("DELETE", "/v1/retained/r", None, 429, 8, "the event log has no room"))
    await rest.fails(("POST", "/v1/publish", body(topic_name="a"), 429, 8, "the event log has no room"))
    node.broker.remove_tap(full)
    assert await rest.post("/v1/publish", {"topic_name": "a"}) == {}


async def test_a_message_that_a_full_queue_of_a_group_rejects_is_told(node: Any, rest: Any) -> None:
    GroupQueues(node.broker).declare(b"g", b"jobs", 1, 10_000, 0.0, node.now(), True)
    assert await rest.post("/v1/publish", {"topic_name": "jobs", "qos": 1}) == {}
    await rest.fails(
        ("POST", "/v1/publish", body(topic_name="jobs", qos=1), 429, 8, "the queue of a shared group is full")
    )
    assert await rest.post("/v1/publish", {"topic_name": "other", "qos": 1}) == {}
