"""Methods of the services over gRPC and REST: results, faults, status codes, the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from api_calls import publish_grpc, publish_rest
from broker.api.errors import ApiError
from broker.api.method import STREAMS_MAX, Calls, service_methods
from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import ClientServiceStub, PublishServiceStub, SubscriptionServiceStub
from broker.api.tokens import Role
from broker.codec.properties import publish_properties_to_dict

NODE_SERVICE: Final = pb.DESCRIPTOR.services_by_name["NodeService"]


async def test_clients(node: Any, channel: grpc.aio.Channel) -> None:
    stub: Any = ClientServiceStub(channel)
    client = node.world.connect("c1", expiry=60)
    answer = await stub.List(pb.ListClientRequest(page_size=5))
    assert (answer.total_count, [shown.client_id for shown in answer.clients]) == (1, ["c1"])
    shown = (await stub.Get(pb.GetClientRequest(client_id="c1"))).client
    assert (shown.version, shown.HasField("disconnected_at")) == (5, False)
    await stub.Delete(pb.DeleteClientRequest(client_id="c1", clean_session=True))
    assert client.closed
    assert node.broker.sessions == {}


async def test_subscribe_publish_unsubscribe(node: Any, channel: grpc.aio.Channel) -> None:
    subscriptions: Any = SubscriptionServiceStub(channel)
    publisher: Any = PublishServiceStub(channel)
    client = node.world.connect("c1")
    wish = pb.Subscription(topic_name="a/+", qos=1, id=9)
    request = pb.SubscribeRequest(client_id="c1", subscriptions=[wish])
    assert list((await subscriptions.Subscribe(request)).new) == [True]
    assert list((await subscriptions.Subscribe(request)).new) == [False]
    await publisher.Publish(
        pb.PublishRequest(topic_name="a/b", payload_raw=b"\xff", user_properties=[pb.UserProperties(K=b"k", V=b"v")])
    )
    (publish,) = client.take_publishes()
    assert (publish.payload, publish_properties_to_dict(publish.properties)[0x26]) == (b"\xff", [("k", "v")])
    shown = (await subscriptions.List(pb.ListSubscriptionRequest())).subscriptions
    assert list(shown) == [pb.Subscription(topic_name="a/+", qos=1, id=9, client_id="c1")]
    await subscriptions.Unsubscribe(pb.UnsubscribeRequest(client_id="c1", topics=["a/+"]))
    assert (await subscriptions.List(pb.ListSubscriptionRequest())).total_count == 0


@pytest.mark.parametrize(
    ("stub_class", "method", "request_message", "code", "words"),
    [
        (ClientServiceStub, "Get", pb.GetClientRequest(client_id="x"), grpc.StatusCode.NOT_FOUND, "no session"),
        (ClientServiceStub, "Get", pb.GetClientRequest(), grpc.StatusCode.INVALID_ARGUMENT, "client_id is empty"),
        (PublishServiceStub, "Publish", pb.PublishRequest(), grpc.StatusCode.INVALID_ARGUMENT, "topic_name"),
        (
            *(SubscriptionServiceStub, "Subscribe", pb.SubscribeRequest(client_id="x")),
            *(grpc.StatusCode.NOT_FOUND, "no session"),
        ),
    ],
)
async def test_errors(
    channel: grpc.aio.Channel, stub_class: Any, method: str, request_message: Any, code: grpc.StatusCode, words: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await getattr(stub_class(channel), method)(request_message)
    assert caught.value.code() == code
    assert words in (caught.value.details() or "")


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x02\xff\xff", b"\x0a\x7fshort"])
async def test_a_request_that_is_none(channel: grpc.aio.Channel, data: bytes) -> None:
    publish: Any = channel.unary_unary("/gmqtt.admin.api.PublishService/Publish")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish(data)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "the request is not a gmqtt.admin.api.PublishRequest"


def test_the_wire_is_that_of_the_go_broker() -> None:
    """Field numbers, read from the published definitions."""
    numbers = {
        "Client": "client_id username keep_alive version remote_addr local_addr connected_at disconnected_at "
        "session_expiry max_inflight inflight_len max_queue queue_len subscriptions_current subscriptions_total "
        "packets_received_bytes packets_received_nums packets_send_bytes packets_send_nums message_dropped",
        "ListClientRequest": "page_size page",
        "ListClientResponse": "clients total_count",
        "DeleteClientRequest": "client_id clean_session",
        "ReleaseClientRequest": "client_id",
        "Subscription": "topic_name id qos no_local retain_as_published retain_handling client_id",
        "FilterSubscriptionRequest": "client_id filter_type match_type topic_name limit",
        "SubscribeRequest": "client_id subscriptions",
        "UnsubscribeRequest": "client_id topics",
        "PublishRequest": "topic_name payload qos retained content_type correlation_data message_expiry payload_format "
        "response_topic user_properties",
        "UserProperties": "K V",
    }
    for message, names in numbers.items():
        fields = pb.DESCRIPTOR.message_types_by_name[message].fields
        assert [(f.name, f.number) for f in fields if f.number < 100] == [
            (name, number) for number, name in enumerate(names.split(), 1)
        ]
    assert (
        bytes(pb.PublishRequest(topic_name="a", payload="b", qos=1).SerializeToString()) == b"\n\x01a\x12\x01b\x18\x01"
    )


async def test_a_fault_of_a_servicer_is_internal_and_tells_nothing(make_api: Any) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("secret")

    api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await api.start()
    service.behave = fail
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, '"code": 13' in text, "secret" in text) == (500, True, False)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish_grpc(api.grpc_addresses[0])
    assert (caught.value.code(), "secret" in (caught.value.details() or "")) == (grpc.StatusCode.INTERNAL, False)
    service.behave = lambda context: None
    assert (await publish_rest(api.http_addresses[0]))[0] == 200


async def test_abort_of_the_context_means_the_same_over_both(make_api: Any) -> None:
    api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    await api.start()
    service.behave = lambda context: context.abort(grpc.StatusCode.ALREADY_EXISTS, "ünder that name")
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, text) == (409, '{"code": 6, "message": "\\u00fcnder that name", "details": []}')
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish_grpc(api.grpc_addresses[0])
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.ALREADY_EXISTS, "ünder that name")


def test_callers_of_a_role_leave_places_to_the_roles_above() -> None:
    calls = Calls(running_max=100, places_above=10)
    with ExitStack() as running:
        for role, places in ((Role.OPEN, 70), (Role.READ, 80), (Role.WRITE, 90), (Role.ADMIN, 100)):
            while calls.running < places:
                running.enter_context(calls.one(role))
            with pytest.raises(ApiError, match=role.name.lower()), calls.one(role):
                raise AssertionError("there was a place")
        assert (calls.running, calls.refused) == (100, 4)
    assert calls.running == 0


async def test_streams_of_a_reader_shut_out_no_administrator(make_api: Any) -> None:
    """All ask for the same method: the role is the caller's."""
    api, _ = make_api([], [])
    (method,) = (
        each for each in service_methods(NODE_SERVICE, Endless(), api.calls, None) if each.descriptor.name == "Events"
    )
    async with AsyncExitStack() as opened:

        async def open_one(caller: Role) -> None:
            answers = method.stream(pb.WatchEventsRequest(), None, caller)
            await anext(answers)
            opened.push_async_callback(answers.aclose)  # type: ignore[attr-defined]

        async def open_all(caller: Role) -> None:
            for _ in range(STREAMS_MAX):
                await open_one(caller)

        with pytest.raises(ApiError) as caught:
            await open_all(Role.READ)
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await open_one(Role.WRITE)
        await open_one(Role.ADMIN)


class Endless:
    """A servicer whose streams do not end."""

    roles: Final = {method.name: Role.READ for method in NODE_SERVICE.methods}

    def __getattr__(self, name: str) -> Any:
        async def answers(request: Any, context: Any) -> AsyncIterator[pb.NodeEvent]:
            while True:
                yield pb.NodeEvent()

        return answers


async def test_too_many_calls_at_once_over_both(make_api: Any) -> None:
    api, service = make_api(["127.0.0.1:0"], ["127.0.0.1:0"])
    api.calls.unary.running_max = 1
    await api.start()
    service.release.clear()
    first = asyncio.create_task(publish_rest(api.http_addresses[0]))
    await service.entered.wait()
    status, text = await publish_rest(api.http_addresses[0])
    assert (status, '"code": 8' in text) == (429, True)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish_grpc(api.grpc_addresses[0])
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert api.refused_input()["api_calls_refused"] == 2
    service.release.set()
    assert (await first)[0] == 200
