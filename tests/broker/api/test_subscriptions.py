"""SubscriptionService on a real broker, over REST."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api_calls import ErrorCase
from broker.api.subscriptions import FILTERS_MAX

SUBSCRIBE = "/v1/subscribe"
LONG = "a/" * 128 + "a"


def body(**fields: Any) -> str:
    return json.dumps(fields)


def subscription(**fields: Any) -> str:
    return body(client_id="c1", subscriptions=[{"topic_name": "a", **fields}])


async def test_subscriptions_come_in_pages_across_clients(node: Any, rest: Any) -> None:
    wanted = []
    for index in range(7):
        client = node.world.connect(f"c{index}")
        for number in range(index):
            client.subscribe(f"t/{number}".encode(), qos=1)
            wanted.append((f"c{index}", f"t/{number}"))
    for page_size in (1, 3, 4, 21, 100):
        got = []
        for page in range(1, 30):
            answer = await rest.get(f"/v1/subscriptions?page={page}&page_size={page_size}")
            assert answer["total_count"] == 21
            assert len(answer["subscriptions"]) <= page_size
            got += [(entry["client_id"], entry["topic_name"]) for entry in answer["subscriptions"]]
        assert got == wanted


async def test_subscribe_marks_new_subscriptions_and_sends_retained_messages(node: Any, rest: Any) -> None:
    client = node.world.connect("c1")
    client.subscribe(b"a/b", qos=0)
    node.world.publish(b"r", b"kept", retain=True)
    wishes = [
        {"topic_name": "a/b", "qos": 2},
        {"topic_name": "r", "qos": 1, "id": 7, "retain_as_published": True},
        {"topic_name": "$share/g/x", "retain_handling": 2},
        {"topic_name": "r", "no_local": True, "retain_handling": 1},
    ]
    answer = await rest.post("/v1/subscribe", {"client_id": "c1", "subscriptions": wishes})
    assert answer == {"new": [False, True, True, False]}
    assert client.take_payloads() == [b"kept"]
    assert node.broker.sessions["c1"].subscriptions[b"a/b"].qos == 2
    shown = (await rest.get("/v1/filter_subscriptions?match_type=1&topic_name=r"))["subscriptions"]
    assert shown == [
        {
            "topic_name": "r",
            "id": 0,
            "qos": 0,
            "no_local": True,
            "retain_as_published": False,
            "retain_handling": 1,
            "client_id": "c1",
        }
    ]
    node.world.publish(b"a/b", b"live", qos=1)
    assert client.take_payloads() == [b"live"]


async def test_unsubscribe_removes_subscriptions(node: Any, rest: Any) -> None:
    client = node.world.connect("c1")
    client.subscribe(b"a/b", b"$share/g/a/b", b"c")
    answer = await rest.post("/v1/unsubscribe", {"client_id": "c1", "topics": ["a/b", "$share/g/a/b", "never/there"]})
    assert answer == {}
    assert list(node.broker.sessions["c1"].subscriptions) == [b"c"]


async def test_unsubscribing_an_unknown_client_is_no_error_as_on_the_go_broker(rest: Any) -> None:
    assert await rest.post("/v1/unsubscribe", {"client_id": "nobody", "topics": ["a"]}) == {}


async def test_a_subscription_that_the_broker_refuses(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    node.broker.apply_settings(node.settings.mqtt.__class__(max_subscriptions_per_client=1))
    wishes = [{"topic_name": "a"}, {"topic_name": "b"}]
    status, answer = await rest.call("POST", "/v1/subscribe", {"client_id": "c1", "subscriptions": wishes})
    assert (status, answer["code"]) == (429, 8)
    assert answer["message"] == "subscriptions[1].topic_name: b is refused: Quota exceeded"
    wishes = [{"topic_name": "$stream/earliest/a"}]
    _, answer = await rest.call("POST", "/v1/subscribe", {"client_id": "c1", "subscriptions": wishes})
    assert "event_log" in answer["message"]


@pytest.mark.interpreted  # it stands in for a method of the broker
async def test_a_session_that_ends_between_two_subscriptions(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    subscribe = node.broker.subscribe

    def subscribe_and_end(client_id: str, *arguments: Any) -> list[int]:
        codes: list[int] = subscribe(client_id, *arguments)
        node.broker.close_client(client_id, True, node.now())
        return codes

    node.broker.subscribe = subscribe_and_end
    wishes = [{"topic_name": "a"}, {"topic_name": "b"}]
    status, answer = await rest.call("POST", SUBSCRIBE, {"client_id": "c1", "subscriptions": wishes})
    assert (status, answer["message"]) == (404, 'client "c1" has no session on this node')


async def test_one_request_has_a_bounded_number_of_filters(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    topics = [f"t/{number}" for number in range(FILTERS_MAX + 1)]
    wishes = [{"topic_name": topic} for topic in topics]
    for path, fields in ((SUBSCRIBE, {"subscriptions": wishes}), ("/v1/unsubscribe", {"topics": topics})):
        status, answer = await rest.call("POST", path, {"client_id": "c1", **fields})
        assert (status, f"may have at most {FILTERS_MAX}" in answer["message"]) == (400, True)
    answer = await rest.post(SUBSCRIBE, {"client_id": "c1", "subscriptions": wishes[:FILTERS_MAX]})
    assert answer == {"new": [True] * FILTERS_MAX}


@pytest.mark.parametrize("node", [{"subscription_identifier_available": False}], indirect=True)
async def test_identifiers_that_the_configuration_does_not_offer(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    status, answer = await rest.call("POST", SUBSCRIBE, subscription(id=1))
    assert (status, answer["code"]) == (400, 3)
    assert "mqtt.subscription_identifier_available is false" in answer["message"]


ERRORS: list[ErrorCase] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("POST", SUBSCRIBE, "", 400, 3, "client_id is empty"),
    ("POST", SUBSCRIBE, body(client_id="nobody", subscriptions=[]), 404, 5, 'client "nobody" has no session'),
    ("POST", SUBSCRIBE, body(client_id="c1"), 400, 3, "subscriptions is empty"),
    ("POST", SUBSCRIBE, subscription(topic_name=""), 400, 3, "subscriptions[0].topic_name: empty topic filter"),
    ("POST", SUBSCRIBE, subscription(topic_name="a/#/b"), 400, 3, "subscriptions[0].topic_name: topic filter"),
    ("POST", SUBSCRIBE, subscription(topic_name="$share/g"), 400, 3, "subscriptions[0].topic_name: shared filter"),
    ("POST", SUBSCRIBE, subscription(topic_name=LONG), 400, 3, "129 levels"),
    ("POST", SUBSCRIBE, subscription(topic_name="a\0"), 400, 3, "U+0000"),
    ("POST", SUBSCRIBE, subscription(qos=3), 400, 3, "subscriptions[0].qos is 3"),
    ("POST", SUBSCRIBE, subscription(qos=-1), 400, 3, "qos"),
    ("POST", SUBSCRIBE, subscription(qos="one"), 400, 3, 'qos must be a whole number of 0..4294967295, not "one"'),
    ("POST", SUBSCRIBE, subscription(retain_handling=3), 400, 3, "subscriptions[0].retain_handling is 3"),
    ("POST", SUBSCRIBE, subscription(id=268435456), 400, 3, "subscriptions[0].id is 268435456"),
    ("POST", SUBSCRIBE, subscription(no_local="yes"), 400, 3, "no_local"),
    ("POST", SUBSCRIBE, subscription(topic_name="$share/g/a", no_local=True), 400, 3, "shared subscription"),
    ("POST", SUBSCRIBE, subscription(topic="a"), 400, 3, 'subscriptions[0].topic: there is no field named "topic"'),
    ("POST", "/v1/unsubscribe", body(client_id="c1"), 400, 3, "topics is empty"),
    ("POST", "/v1/unsubscribe", body(client_id="c1", topics=["a", "+a"]), 400, 3, "topics[1]: topic filter"),
    ("POST", "/v1/unsubscribe", body(topics=["a"]), 400, 3, "client_id is empty"),
]


@pytest.mark.parametrize("case", ERRORS, ids=[f"{case[0]} {case[1]} {case[5]}"[:70] for case in ERRORS])
async def test_errors(node: Any, rest: Any, case: ErrorCase) -> None:
    node.world.connect("c1")
    await rest.fails(case)
    assert node.broker.sessions["c1"].subscriptions == {}
