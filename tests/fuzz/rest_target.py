"""Requests to the API over REST, behind HTTP: verb, path, query and body."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final
from urllib.parse import parse_qsl

from broker.api.clients import ClientService
from broker.api.errors import ApiError
from broker.api.gateway import Gateway
from broker.api.long_calls import LongCalls
from broker.api.method import CallsByKind, service_methods
from broker.api.pb import admin_pb2
from broker.api.publishing import PublishService
from broker.api.subscriptions import SubscriptionService
from broker.api.tokens import Role
from broker.api.transcoding import as_json, as_values, merge_json, read_request
from broker.auth.pb import account_pb2
from broker.config.settings import Settings
from broker.event_log.pb import event_log_pb2
from broker_world import World
from federation.pb import federation_pb2, keys_pb2
from federation.sessions.pb import sessions_pb2
from fuzz_target import Target

HTTP_INTERNAL: Final = 500
SEEDS: Final = [
    b"GET /v1/clients?page_size=2&page=1\n",
    b"GET /v1/clients?username=a&protocol_version=5&connected=true\n",
    b"GET /v1/clients/subscriber\n",
    b"GET /v1/clients/a%2Fb\n",
    b"DELETE /v1/clients/subscriber\n",
    b"GET /v1/subscriptions?page_size=2\n",
    b"GET /v1/filter_subscriptions?filter_type=1,2,3&topic_name=a&match_type=2&limit=10&client_id=subscriber\n",
    b'POST /v1/subscribe\n{"client_id": "subscriber", "subscriptions": [{"topic_name": "a/+", "qos": 1}]}',
    b'POST /v1/subscribe\n{"client_id": "subscriber", "subscriptions": [{"topic_name": "$share/g/x", "no_local": false}]}',
    b'POST /v1/unsubscribe\n{"client_id": "subscriber", "topics": ["a/+"]}',
    b'POST /v1/publish\n{"topic_name": "a", "payload": "x", "qos": 1, "retained": true}',
    b'POST /v1/publish\n{"topic_name": "a", "payload": "x", "user_properties": [{"K": "aw==", "V": "dg=="}],'
    b' "correlation_data": "YQ==", "message_expiry": 10, "content_type": "t", "response_topic": "r"}',
]
PIECES: Final = tuple(
    b'{|}|[|]|"|: |,|null|true|1.5|1e99|-1|\\u0000|\\ud800|%00|%2F|%ff|&|?|=|/|#|+|"qos": 2'.split(b"|")
)


class FailingLog:
    """The log of the gateway, which tells an exception that no method should raise."""

    def __getattr__(self, level: str) -> Any:
        return self.note

    def note(self, text: str, **fields: Any) -> None:
        if isinstance(fields.get("exc_info"), Exception):
            raise fields["exc_info"]


class Node:
    """The part of a node that the services need."""

    def __init__(self) -> None:
        self.world = World()
        self.broker = self.world.broker
        self.settings = Settings()

    def now(self) -> float:
        return self.world.now

    def wall_time(self, monotonic: float) -> float:
        return monotonic + 1_700_000_000.0

    def flush_soon(self) -> None:
        self.world.flush()


class RestTarget(Target):
    """VERB path?query, a line end, the body. The answer is JSON or an ApiError, which is not that of an inner fault."""

    def __init__(self) -> None:
        super().__init__(SEEDS, PIECES)
        self.loop = asyncio.new_event_loop()
        self.long_calls = LongCalls()

    def close(self) -> None:
        self.loop.close()

    def run(self, data: bytes) -> None:
        self.loop.run_until_complete(self._request(data))

    async def _request(self, data: bytes) -> None:
        head, _, body = data.partition(b"\n")
        verb, _, target = head.decode("latin-1").partition(" ")
        path, _, query = target.partition("?")
        node = Node()
        world = node.world
        subscriber = world.connect("subscriber")
        subscriber.subscribe(b"a/#")
        world.publish(b"a/kept", b"x", retain=True)
        gateway = Gateway(self.long_calls, FailingLog())
        services = admin_pb2.DESCRIPTOR.services_by_name
        for name, service in (
            ("ClientService", ClientService(node, self.long_calls)),  # type: ignore[arg-type]
            ("SubscriptionService", SubscriptionService(node, self.long_calls)),  # type: ignore[arg-type]
            ("PublishService", PublishService(node)),  # type: ignore[arg-type]
        ):
            for method in service_methods(services[name], service, CallsByKind(), FailingLog()):
                gateway.add(method)
        refused: ApiError | None = None
        try:
            route, path_fields = gateway.find(verb, path)
            answer = await gateway.call(route, path_fields, parse_qsl(query, keep_blank_values=True), body, Role.ADMIN)
            assert isinstance(json.loads(answer), dict)
        except ApiError as error:
            refused = error
        assert refused is None or refused.http_status < HTTP_INTERNAL, "an inner fault"
        world.flush()
        world.check()


ALL_SEEDS: Final = [
    *SEEDS,
    b'POST /v1/accounts/alice\n{"password": "secret"}',
    b'PUT /v1/log_level\n{"level": "debug"}',
    b'POST /v1/traces\n{"client_id": "a", "topic_filter": "a/#", "remote_addr": "192.0.2.1", "seconds": 60, "log": false}',
    b"GET /v1/traces/abc/lines?after=3&wait_seconds=10\n",
    b'POST /v1/event_log/hold\n{"group": "g", "log_id": "AAAA", "offset": "12"}',
    b'POST /v1/federation/join\n{"hosts": ["127.0.0.1:8902", "[::1]:1"]}',
    b'POST /v1/federation/force_leave\n{"node_name": "n"}',
    b"GET /v1/federation/members\n",
    b'POST /v1/federation/drain\n{"rate": 500}',
    b"GET /v1/federation/sessions/a%2Fb\n",
    b'POST /v1/federation/keys/install\n{"key": "MDEyMzQ1Njc4OWFiY2RlZg=="}',
]


class Unasked:
    """A servicer of any service, for methods of which only requests are read."""

    def __getattr__(self, name: str) -> Any:
        return dict.fromkeys(ALL_METHODS, Role.ADMIN) if name == "roles" else None


SERVICES: Final = [
    service
    for file in (admin_pb2, account_pb2, event_log_pb2, federation_pb2, keys_pb2, sessions_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    if not any(method.client_streaming for method in service.methods)
]
ALL_METHODS: Final = [method.name for service in SERVICES for method in service.methods]


class RequestTarget(Target):
    """As for RestTarget, to the methods of all plugins, which are not called: the request is read, and its JSON is read to the
    same request again. Only ApiError is raised, and it is no inner fault."""

    def __init__(self) -> None:
        super().__init__(ALL_SEEDS, PIECES)
        self.gateway = Gateway(LongCalls(), FailingLog())
        for service in SERVICES:
            for method in service_methods(service, Unasked(), CallsByKind(), FailingLog()):
                self.gateway.add(method)

    def run(self, data: bytes) -> None:
        head, _, body = data.partition(b"\n")
        verb, _, target = head.decode("latin-1").partition(" ")
        path, _, query = target.partition("?")
        status = 0
        try:
            route, path_fields = self.gateway.find(verb, path)
            request = read_request(route, path_fields, parse_qsl(query, keep_blank_values=True), body)
        except ApiError as error:
            status = error.http_status
        assert status < HTTP_INTERNAL, "an inner fault"
        if not status and route.has_body:
            again = type(request)()
            merge_json(again, route.method.descriptor.input_type, as_json(as_values(request)).encode())
            assert again == request
