"""Paths and verbs: which method answers, and what the error says when none does."""

from __future__ import annotations

from typing import Any

import pytest

from api_calls import READERS, ErrorCase
from broker.api.errors import ApiError
from broker.api.gateway import PLUGINS, Gateway
from broker.api.long_calls import LongCalls
from broker.api.method import ApiMethod, Calls
from broker.api.pb import admin_pb2 as pb
from broker.auth.pb import account_pb2
from broker.event_log.pb import event_log_pb2
from federation.definitions.pb import definitions_pb2
from federation.links.pb import link_status_pb2
from federation.pb import federation_pb2


class Nobody:
    """A servicer whose methods are never called."""

    roles = READERS

    def __getattr__(self, name: str) -> Any:
        return self.call

    async def call(self, request: Any, context: Any) -> Any:
        raise AssertionError("called")


def test_a_path_is_taken_once() -> None:
    gateway = Gateway(LongCalls(), None)
    method = ApiMethod(pb.DESCRIPTOR.services_by_name["ClientService"].methods_by_name["List"], Nobody(), Calls(), None)
    gateway.add(method)
    with pytest.raises(ValueError, match=r"GET /v1/clients is taken by gmqtt\.admin\.api\.ClientService\.List"):
        gateway.add(method)


def first_names(routes: Gateway) -> set[str]:
    return {route.segments[1] for route in routes.routes}


def test_each_path_of_a_plugin_that_is_not_loaded_names_it() -> None:
    for plugin, files in (
        ("admin", [pb]),
        ("auth", [account_pb2]),
        ("event_log", [event_log_pb2]),
        ("federation", [federation_pb2]),
        ("links", [definitions_pb2, link_status_pb2]),
    ):
        loaded = Gateway(LongCalls(), None)
        services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
        for method in [method for service in services for method in service.methods if not method.client_streaming]:
            loaded.add(ApiMethod(method, Nobody(), Calls(), None))
        assert first_names(loaded) == {name for name, owner in PLUGINS.items() if owner == plugin}
        empty = Gateway(LongCalls(), None)
        for route in loaded.routes:
            with pytest.raises(ApiError, match=f'the plugin "{plugin}" serves it and is not loaded') as caught:
                empty.find(route.verb, route.template)
            assert (caught.value.http_status, "plugin_order" in caught.value.text) == (404, True)
            with pytest.raises(ApiError, match="lists all paths"):
                loaded.find(route.verb, f"{route.template}/more/and/more/again")


ERRORS: list[ErrorCase] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("GET", "/v1/nothing", None, 404, 5, "there is no /v1/nothing"),
    ("GET", "/v1/clients/", None, 404, 5, "there is no /v1/clients/"),
    ("GET", "/v1/clients/a/b", None, 404, 5, "there is no /v1/clients/a/b"),
    ("GET", "//v1/clients", None, 404, 5, "there is no"),
    ("GET", "/v1/a%0Ab", None, 404, 5, "there is no /v1/a%0Ab"),
    ("POST", "/v1/clients", "{}", 405, 12, "only GET"),
    ("PUT", "/v1/clients/c1", "{}", 405, 12, "only GET, DELETE"),
    ("GET", "/v1/publish", None, 405, 12, "only POST"),
]


@pytest.mark.parametrize("case", ERRORS, ids=[f"{case[0]} {case[1]} {case[5]}"[:70] for case in ERRORS])
async def test_errors(node: Any, rest: Any, case: ErrorCase) -> None:
    await rest.fails(case)
