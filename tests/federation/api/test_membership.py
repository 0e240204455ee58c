"""Membership over REST and gRPC, against a control that does what a test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty

from broker.api.server import ApiServer
from broker.config.addresses import parse_address
from broker.config.settings import ApiSettings
from broker.config.settings_listeners import ApiListener
from broker.server.logging import get_logger
from federation.api.gossip_metrics import gossip_metrics
from federation.api.membership import MembershipService
from federation.gossip.counters import Counters
from federation.gossip.messages import DEAD, SUSPECT
from federation.pb import federation_pb2 as pb
from federation.pb.federation_pb2_grpc import MembershipStub
from federation.serf.coordinates import Coordinates
from federation.serf.events import MemberStatus
from federation.serf.joins import JOIN_ADDRESSES_MAX
from membership_control import OWN_TAGS, Control


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
async def api(control: Control) -> AsyncIterator[ApiServer]:
    listeners = (ApiListener(parse_address("127.0.0.1:0")),)
    api = ApiServer(ApiSettings(grpc=listeners, http=listeners), {}, get_logger("api"))
    api.register(
        pb.DESCRIPTOR.services_by_name["Membership"], MembershipService(control, lambda at: 1_800_000_000 + at)
    )
    await api.start()
    yield api
    await api.stop()


async def call(api: ApiServer, method: str, path: str, data: str | None = None) -> tuple[int, str]:
    url = f"http://{api.http_addresses[0]}/v1/federation/{path}"
    # As `curl -d` sends it.
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with aiohttp.ClientSession() as session, session.request(method, url, data=data, headers=headers) as response:
        return response.status, await response.text()


def member(**values: object) -> dict[str, object]:
    """A member as REST shows it."""
    shown = {"suspected": False, "gossip_version": 2, "serf_version": 4, "zone": "", "tags": {}}
    return shown | {"status": "STATUS_ALIVE", "since": "2027-01-15T08:00:00Z"} | values


NODE1 = member(name="node1", node_name="node1", addr="192.168.0.105:8902", tags=OWN_TAGS)
NODE2 = member(name="node2", node_name="node2", addr="[::1]:8912", zone="west", tags={"zone": "west"})


async def members(api: ApiServer) -> list[Any]:
    status, text = await call(api, "GET", "members")
    assert status == 200
    found: list[Any] = json.loads(text)["members"]
    return found


async def test_members_have_estimates_suspicions_versions_zones_and_times(api: ApiServer, control: Control) -> None:
    assert await members(api) == [NODE1, NODE2]
    control.core.coordinates.ping_completed("node2", 0.5, Coordinates("node2", Random(3), Counters()).ack_payload())
    estimate = control.core.coordinates.round_trip("node2")
    control.accuse(SUSPECT, 50.0)
    assert await members(api) == [NODE1, NODE2 | {"suspected": True, "round_trip_seconds": estimate}]
    shown = {metric.name: metric.samples for metric in gossip_metrics(control.core, 58.0)}
    assert shown["gmqtt_gossip_member_suspected"] == {("node1",): 0, ("node2",): 1}
    assert shown["gmqtt_gossip_member_info"] == {
        ("node1", "ALIVE", "", "2", "4"): 1,
        ("node2", "ALIVE", "west", "2", "4"): 1,
    }
    control.accuse(DEAD, 60.0)
    shown = {metric.name: metric.samples for metric in gossip_metrics(control.core, 75.0)}
    assert shown["gmqtt_gossip_member_status_age_seconds"] == {("node1",): 75, ("node2",): 15}
    assert ("node2", "FAILED", "west", "2", "4") in shown["gmqtt_gossip_member_info"]
    failed = {"status": "STATUS_FAILED", "since": "2027-01-15T08:01:00Z", "round_trip_seconds": estimate}
    assert await members(api) == [NODE1, NODE2 | failed]


async def test_the_health_of_the_gossip(api: ApiServer, control: Control) -> None:
    async def health() -> Any:
        status, text = await call(api, "GET", "health")
        assert status == 200
        return json.loads(text)

    first = await health()
    assert first == {
        "node_name": "node1",
        "awareness": 0,
        "queues": {"memberlist": 2, "intents": 0, "queries": 0, "events": 0},
        "suspected": 0,
        "queries": 0,
        "coordinate_error": 1.5,
        "encrypted": False,
    }
    serf = control.core
    serf.user_event("deploy", b"")
    serf.query("load", b"", 0.0)
    control.accuse(SUSPECT, 1.0)
    serf.gossip.membership.awareness.adjust(3)
    serf.gossip.exchanges.merges.merged_at = 90.0
    second = await health()
    assert second == first | {
        "awareness": 3,
        "queues": {"memberlist": second["queues"]["memberlist"], "intents": 0, "queries": 1, "events": 1},
        "suspected": 1,
        "queries": 1,
        "last_push_pull": "2027-01-15T08:01:30Z",
    }
    shown = {metric.name: metric.samples for metric in gossip_metrics(serf, 100.0)}
    assert list(shown["gmqtt_gossip_push_pull_age_seconds"].values()) == [10.0]
    assert list(shown["gmqtt_gossip_suspected"].values()) == [1]
    assert list(shown["gmqtt_gossip_health_score"].values()) == [3]
    assert sum(shown["gmqtt_gossip_queue_length"].values()) == sum(second["queues"].values())
    assert list(shown["gmqtt_gossip_asked_queries"].values()) == [1]


async def test_the_walk_through(api: ApiServer, control: Control) -> None:
    assert await call(api, "POST", "join", '{"hosts":["127.0.0.1:8932"]}') == (200, "{}")
    assert control.joined == [["127.0.0.1:8932"]]
    assert [found["name"] for found in await members(api)] == ["node1", "node2"]
    assert await call(api, "POST", "leave") == (200, "{}")
    assert await call(api, "POST", "leave", "{}") == (200, "{}")
    assert control.left == 2
    assert await call(api, "POST", "force_leave", '{"node_name":"node2"}') == (200, "{}")
    assert await call(api, "POST", "force_leave", '{"nodeName":"node2"}') == (200, "{}")
    assert await call(api, "POST", "force_leave", '{"node_name":"node2", "prune":true}') == (200, "{}")
    assert control.forced == ["node2", "node2", "node2 pruned"]


async def test_tags_are_set_and_deleted(api: ApiServer) -> None:
    for data, tags in (
        ('{"tags":{"rack":"b7","color":"red"}}', {"rack": "b7", "color": "red"}),
        ('{"tags":{"color":"blue"},"delete":["rack","never"]}', {"color": "blue"}),
    ):
        status, text = await call(api, "POST", "tags", data)
        assert (status, json.loads(text)) == (200, {"tags": tags | {"fed_addr": "192.168.0.105:8901"}})


async def test_addresses_are_completed(api: ApiServer, control: Control) -> None:
    await call(api, "POST", "join", '{"hosts":["node3", "10.0.0.1", "[::1]:7", "tcp://n:1"]}')
    assert control.joined == [["node3:8902", "10.0.0.1:8902", "[::1]:7", "n:1"]]


@pytest.mark.parametrize(
    ("path", "data", "status", "code", "words"),
    [
        ("join", "", 400, 3, "hosts is empty"),
        ("join", '{"hosts":[]}', 400, 3, "hosts is empty"),
        ("join", '{"hosts":["127.0.0.1:1"]}', 503, 14, "127.0.0.1:1: connection refused"),
        ("join", '{"hosts":["ok","a b"]}', 400, 3, 'hosts[1]: \\"a b\\" has the host'),
        ("join", '{"hosts":["a:70000"]}', 400, 3, "hosts[0]"),
        ("join", '{"hosts":["a:0"]}', 400, 3, "hosts[0]"),
        ("join", '{"hosts":[":8902"]}', 400, 3, "must have a host"),
        ("join", '{"hosts":["unix:///x"]}', 400, 3, "unix socket"),
        ("join", '{"hosts":"a"}', 400, 3, "hosts must be a list"),
        ("join", '{"hosts":[1]}', 400, 3, "hosts"),
        ("join", '{"host":["a"]}', 400, 3, 'there is no field named \\"host\\"; known here: hosts'),
        (
            "join",
            f'{{"hosts":[{",".join(["1"] * (JOIN_ADDRESSES_MAX + 1))}]}}'.replace("1", '"a"'),
            400,
            3,
            "at most 64",
        ),
        ("leave", '{"now":1}', 400, 3, "known here: none"),
        ("tags", '{"delete":["fed_addr"]}', 400, 3, "'fed_addr' is one of the node's own"),
        ("tags", '{"tags":{"store":"x"}}', 400, 3, "'store' is one of the node's own"),
        ("tags", f'{{"tags":{{"long":"{"x" * 500}"}}}}', 400, 3, "at most 512"),
        ("force_leave", "{}", 400, 3, "node_name is empty"),
        ("force_leave", '{"node_name":"node1"}', 400, 9, "this node itself"),
    ],
)
async def test_errors(
    api: ApiServer, control: Control, path: str, data: str, status: int, code: int, words: str
) -> None:
    got, text = await call(api, "POST", path, data)
    assert (got, f'"code": {code},' in text) == (status, True), text
    assert words in text
    assert (control.joined, control.left, control.forced) == ([], 0, [])


async def test_calls_before_the_start_and_after_the_end_are_refused(api: ApiServer, control: Control) -> None:
    control.running = False
    for method, path, data in (
        ("POST", "join", '{"hosts":["a"]}'),
        ("POST", "leave", None),
        ("POST", "force_leave", '{"node_name":"node2"}'),
        ("POST", "tags", "{}"),
        ("GET", "members", None),
        ("GET", "health", None),
    ):
        status, text = await call(api, method, path, data)
        assert (status, '"code": 14' in text, "not running" in text) == (503, True, True)


async def test_grpc(api: ApiServer, control: Control) -> None:
    async with grpc.aio.insecure_channel(api.grpc_addresses[0]) as channel:
        stub: Any = MembershipStub(channel)
        await stub.Join(pb.JoinRequest(hosts=["n"]))
        listed = (await stub.ListMembers(Empty())).members
        assert [(member.name, member.status) for member in listed] == [
            ("node1", pb.STATUS_ALIVE),
            ("node2", pb.STATUS_ALIVE),
        ]
        assert (await stub.GetHealth(Empty())).queues["memberlist"] == 2
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Join(pb.JoinRequest(hosts=["127.0.0.1:1"]))
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        await stub.Leave(Empty())
    assert (control.joined, control.left) == ([["n:8902"]], 1)


def test_member_statuses_have_the_numbers_of_the_wire() -> None:
    for status in MemberStatus:
        name = "STATUS_UNSPECIFIED" if status == MemberStatus.NONE else f"STATUS_{status.name}"
        assert int(pb.Status.Value(name)) == int(status)
