"""The admin services on a real broker, mostly over REST; gRPC has the same servicers behind it (test_grpc.py)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from broker.api.pb.admin_pb2 import Client
from broker.codec.properties import publish_properties_to_dict
from broker.hooks import Forwarder, Peer, RemoteRoute
from broker.message import Message

WALL = 1_700_000_000 + 1_000  # of the virtual clock's start


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


# --- clients


async def test_a_client_is_shown_with_all_fields(node: Any, rest: Any) -> None:
    client = node.world.connect("c1", keep_alive=30, expiry=60)
    client.subscribe(b"a/#")
    node.world.advance(5)
    answer = await rest.get("/v1/clients/c1")
    shown = answer["client"]
    assert list(answer) == ["client"]
    # A connected client has no disconnected_at; all else is there, zero or not.
    fields = set(Client.DESCRIPTOR.fields_by_name)
    assert set(shown) == fields - {"disconnected_at"}
    assert (shown["client_id"], shown["keep_alive"], shown["version"], shown["session_expiry"]) == ("c1", 30, 5, 60)
    assert shown["remote_addr"] == "127.0.0.1:1"
    assert shown["connected_at"] == "2023-11-14T22:30:00Z"
    assert (shown["subscriptions_current"], shown["subscriptions_total"]) == (1, 1)
    assert shown["packets_received_nums"] == "2"  # 64 bits: text in JSON
    assert int(shown["packets_send_bytes"]) > 0


async def test_a_client_that_is_away_has_the_time_of_its_end(node: Any, rest: Any) -> None:
    client = node.world.connect("c1", expiry=60)
    node.world.advance(2)
    client.cut()
    shown = (await rest.get("/v1/clients/c1"))["client"]
    assert shown["disconnected_at"] == "2023-11-14T22:30:02Z"


async def test_clients_come_in_pages(node: Any, rest: Any) -> None:
    for index in range(25):
        node.world.connect(f"c{index}")
    names = [f"c{index}" for index in range(25)]
    for query, wanted in [
        ("", names[:20]),
        ("?page=2", names[20:]),
        ("?page=3&page_size=4", names[8:12]),
        ("?page=3&pageSize=4", names[8:12]),
        ("?page=7&page_size=4", names[24:]),
        ("?page=8&page_size=4", []),
        ("?page=4294967295&page_size=1000", []),
    ]:
        answer = await rest.get(f"/v1/clients{query}")
        assert [client["client_id"] for client in answer["clients"]] == wanted, query
        assert answer["total_count"] == 25


async def test_an_empty_node_says_so_with_empty_lists(rest: Any) -> None:
    assert await rest.get("/v1/clients") == {"clients": [], "total_count": 0}
    assert await rest.get("/v1/subscriptions") == {"subscriptions": [], "total_count": 0}
    assert await rest.get("/v1/filter_subscriptions") == {"subscriptions": []}


@pytest.mark.parametrize("client_id", ["a/b", "100%", "ü b", "..", "?x=1"])
async def test_a_client_id_in_the_path_is_percent_encoded(node: Any, rest: Any, client_id: str) -> None:
    node.world.connect(client_id)
    encoded = "".join(f"%{byte:02X}" for byte in client_id.encode())
    assert (await rest.get(f"/v1/clients/{encoded}"))["client"]["client_id"] == client_id


async def test_delete_disconnects_and_ends_the_session_only_when_asked(node: Any, rest: Any) -> None:
    for query, stays in (("", True), ("?clean_session=false", True), ("?clean_session=true", False)):
        client = node.world.connect("c1", expiry=60)
        assert await rest.call("DELETE", f"/v1/clients/c1{query}") == (200, {})
        assert client.closed
        assert ("c1" in node.broker.sessions) is stays
    assert await rest.call("DELETE", "/v1/clients/nobody") == (200, {})


# --- subscriptions


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


async def test_filter_finds_by_client_kind_and_topic(node: Any, rest: Any) -> None:
    first = node.world.connect("c1")
    first.subscribe(b"a/+", b"$SYS/x", b"$share/g/a/#")
    second = node.world.connect("c2")
    second.subscribe(b"a/b", b"#", b"$share/g/b", b"b/#")
    for query, wanted in [
        ("", {"a/+", "$SYS/x", "$share/g/a/#", "a/b", "#", "$share/g/b", "b/#"}),
        ("client_id=c1", {"a/+", "$SYS/x", "$share/g/a/#"}),
        ("client_id=nobody", set()),
        ("filter_type=1", {"$SYS/x"}),
        ("filter_type=2", {"$share/g/a/#", "$share/g/b"}),
        ("filter_type=3", {"a/+", "a/b", "#", "b/#"}),
        ("filter_type=1,2", {"$SYS/x", "$share/g/a/#", "$share/g/b"}),
        ("filter_type=1,2,3&client_id=c2", {"a/b", "#", "$share/g/b", "b/#"}),
        ("match_type=1&topic_name=a/%2B", {"a/+"}),
        ("match_type=SUB_MATCH_TYPE_MATCH_NAME&topic_name=$share/g/b", {"$share/g/b"}),
        ("match_type=2&topic_name=a/b", {"a/+", "a/b", "#", "$share/g/a/#"}),
        ("match_type=2&topic_name=a/b&filter_type=3", {"a/+", "a/b", "#"}),
        ("match_type=2&topic_name=b", {"#", "$share/g/b", "b/#"}),
        ("match_type=2&topic_name=$SYS/x", {"$SYS/x"}),
    ]:
        answer = await rest.get(f"/v1/filter_subscriptions?{query}")
        found = [entry["topic_name"] for entry in answer["subscriptions"]]
        assert set(found) == wanted, query
        assert len(found) == len(wanted)
    assert len((await rest.get("/v1/filter_subscriptions?limit=2"))["subscriptions"]) == 2


async def test_subscribe_says_what_is_new_and_sends_retained_messages(node: Any, rest: Any) -> None:
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


async def test_unsubscribe_takes_away(node: Any, rest: Any) -> None:
    client = node.world.connect("c1")
    client.subscribe(b"a/b", b"$share/g/a/b", b"c")
    answer = await rest.post("/v1/unsubscribe", {"client_id": "c1", "topics": ["a/b", "$share/g/a/b", "never/there"]})
    assert answer == {}
    assert list(node.broker.sessions["c1"].subscriptions) == [b"c"]


async def test_a_subscription_that_the_broker_refuses(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    node.broker.apply_settings(node.settings.mqtt.__class__(max_subscriptions_per_client=1))
    wishes = [{"topic_name": "a"}, {"topic_name": "b"}]
    status, answer = await rest.call("POST", "/v1/subscribe", {"client_id": "c1", "subscriptions": wishes})
    assert (status, answer["code"]) == (429, 8)
    assert answer["message"] == "subscriptions[1].topic_name: b is refused: Quota exceeded"


# --- publishing


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


# --- errors

SUBSCRIBE = "/v1/subscribe"
LONG = "a/" * 128 + "a"


def body(**fields: Any) -> str:
    return json.dumps(fields)


def subscription(**fields: Any) -> str:
    return body(client_id="c1", subscriptions=[{"topic_name": "a", **fields}])


ERRORS: list[tuple[str, str, str | bytes | None, int, int, str]] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("GET", "/v1/clients/nobody", None, 404, 5, 'client "nobody" has no session'),
    ("GET", "/v1/clients/%ff", None, 400, 3, "client_id in the path is not UTF-8"),
    ("GET", "/v1/clients?page=x", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=-1", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=4294967296", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=", None, 400, 3, '"page" does not fit'),
    ("GET", "/v1/clients?page=1&page=2", None, 400, 3, '"page" is given 2 times'),
    ("GET", "/v1/clients?page_size=1&pageSize=2", None, 400, 3, '"page_size" is given 2 times'),
    ("GET", "/v1/clients?page_size=1001", None, 400, 3, "page_size is 1001, may be at most 1000"),
    ("GET", "/v1/clients?pages=1", None, 400, 3, 'unknown query parameter "pages"; known here: page_size, page'),
    ("GET", "/v1/clients/c1?client_id=c2", None, 400, 3, 'unknown query parameter "client_id"'),
    ("GET", "/v1/clients", "{}", 400, 3, "takes no body"),
    ("DELETE", "/v1/clients/c1?clean_session=maybe", None, 400, 3, '"clean_session" is "maybe", must be true or false'),
    ("GET", "/v1/nothing", None, 404, 5, "there is no /v1/nothing"),
    ("GET", "/v1/clients/", None, 404, 5, "there is no /v1/clients/"),
    ("GET", "/v1/clients/a/b", None, 404, 5, "there is no /v1/clients/a/b"),
    ("GET", "//v1/clients", None, 404, 5, "there is no"),
    ("GET", "/v1/a%0Ab", None, 404, 5, "there is no /v1/a%0Ab"),
    ("POST", "/v1/clients", "{}", 405, 12, "only GET"),
    ("PUT", "/v1/clients/c1", "{}", 405, 12, "only GET, DELETE"),
    ("GET", "/v1/publish", None, 405, 12, "only POST"),
    ("GET", "/v1/filter_subscriptions?match_type=1", None, 400, 3, "topic_name must be set"),
    ("GET", "/v1/filter_subscriptions?topic_name=a", None, 400, 3, "match_type must be set"),
    ("GET", "/v1/filter_subscriptions?match_type=3&topic_name=a", None, 400, 3, "match_type is 3"),
    ("GET", "/v1/filter_subscriptions?match_type=NO&topic_name=a", None, 400, 3, '"match_type" does not fit'),
    ("GET", "/v1/filter_subscriptions?match_type=1&topic_name=a/%23/b", None, 400, 3, "topic_name: topic filter"),
    ("GET", "/v1/filter_subscriptions?match_type=2&topic_name=a/%23", None, 400, 3, "topic_name: topic name"),
    ("GET", "/v1/filter_subscriptions?filter_type=4", None, 400, 3, 'filter_type has "4"'),
    ("GET", "/v1/filter_subscriptions?filter_type=1;2", None, 400, 3, 'filter_type has "1;2"'),
    ("GET", "/v1/filter_subscriptions?limit=1001", None, 400, 3, "limit is 1001"),
    ("GET", "/v1/filter_subscriptions?limit=-1", None, 400, 3, "limit is -1"),
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
    ("POST", SUBSCRIBE, subscription(qos="one"), 400, 3, "qos field: not a whole number: 'one'"),
    ("POST", SUBSCRIBE, subscription(retain_handling=3), 400, 3, "subscriptions[0].retain_handling is 3"),
    ("POST", SUBSCRIBE, subscription(id=268435456), 400, 3, "subscriptions[0].id is 268435456"),
    ("POST", SUBSCRIBE, subscription(no_local="yes"), 400, 3, "no_local"),
    ("POST", SUBSCRIBE, subscription(topic_name="$share/g/a", no_local=True), 400, 3, "shared subscription"),
    ("POST", SUBSCRIBE, subscription(topic="a"), 400, 3, 'subscriptions[0].topic: there is no field named "topic"'),
    ("POST", "/v1/unsubscribe", body(client_id="c1"), 400, 3, "topics is empty"),
    ("POST", "/v1/unsubscribe", body(client_id="c1", topics=["a", "+a"]), 400, 3, "topics[1]: topic filter"),
    ("POST", "/v1/unsubscribe", body(topics=["a"]), 400, 3, "client_id is empty"),
    ("POST", "/v1/unsubscribe", body(client_id="nobody", topics=["a"]), 404, 5, "has no session"),
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
    (
        "POST",
        "/v1/publish",
        body(topic_name="a", user_properties=[{"K": "?"}]),
        400,
        3,
        "user_properties[0].K must be text in base64",
    ),
    (
        "POST",
        "/v1/publish",
        body(topic_name="a", user_properties=[7]),
        400,
        3,
        "user_properties[0] must be a JSON object",
    ),
    ("POST", "/v1/publish", body(topic_name="a", user_properties={}), 400, 3, "user_properties must be a list"),
    ("POST", "/v1/publish", body(topic_name="a", payload_raw=1), 400, 3, "payload_raw must be text in base64"),
    ("POST", "/v1/publish", body(topic_name="a", payload_raw="YWI=YWI="), 400, 3, "payload_raw must be text in base64"),
    ("POST", "/v1/publish", body(topic_name="a", qos=True), 400, 3, "qos"),
    ("POST", "/v1/publish", body(topic_name="a", message_expiry=2**32), 400, 3, "message_expiry"),
    ("POST", "/v1/publish", body(topic_name="a", message_expiry=1.5), 400, 3, "message_expiry"),
    ("POST", "/v1/publish", body(topic_name=["a"]), 400, 3, "topic_name"),
    ("POST", "/v1/publish", body(topic_name="\ud800"), 400, 3, "topic_name"),
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
    ("POST", "/v1/publish", "null", 400, 3, "gmqtt.admin.api.PublishRequest"),
    ("POST", "/v1/publish", "1", 400, 3, "gmqtt.admin.api.PublishRequest"),
    ("POST", "/v1/publish", "[" * 100_000, 400, 3, "nested too deeply"),
    ("POST", "/v1/publish", b"\xff{}", 400, 3, "not UTF-8"),
    ("POST", "/v1/publish?topic_name=a", "{}", 400, 3, 'query parameter "topic_name" is not possible here'),
]


@pytest.mark.parametrize(
    ("method", "path", "text", "status", "code", "words"), ERRORS, ids=[f"{e[0]} {e[1]} {e[5]}"[:70] for e in ERRORS]
)
async def test_errors(
    node: Any, rest: Any, method: str, path: str, text: str | bytes | None, status: int, code: int, words: str
) -> None:
    node.world.connect("c1")
    assert await rest.call("GET", "/v1/clients/c1")  # the node works, before and after
    got_status, answer = await rest.call(method, path, text)
    assert (got_status, answer["code"], answer["details"]) == (status, code, [])
    assert words in answer["message"]
    assert len(answer["message"]) < 1000
    assert list(answer) == ["code", "message", "details"]
    assert node.broker.sessions["c1"].subscriptions == {}
    assert (await rest.call("GET", "/v1/clients/c1"))[0] == 200


@pytest.mark.parametrize(
    "node", [{"retain_available": False, "subscription_identifier_available": False}], indirect=True
)
async def test_what_the_configuration_does_not_offer(node: Any, rest: Any) -> None:
    node.world.connect("c1")
    status, answer = await rest.call("POST", "/v1/publish", body(topic_name="a", retained=True))
    assert (status, answer["code"]) == (400, 9)
    assert "mqtt.retain_available is false" in answer["message"]
    status, answer = await rest.call("POST", SUBSCRIBE, subscription(id=1))
    assert (status, answer["code"]) == (400, 3)
    assert "mqtt.subscription_identifier_available is false" in answer["message"]
