"""Definitions over REST, with the bodies of RabbitMQ's management API, and who may see and change what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api_calls import Rest
from broker.api.guard import ApiGuard
from broker.api.tokens import Role, Token, hash_token, write_tokens
from definitions_node import definitions_node
from federation.definitions.entry import POLICY, UPSTREAM, Entry, canonical
from federation.definitions.shell.service import DefinitionsService

PARAMETERS = "/v1/parameters"
UPSTREAMS = f"{PARAMETERS}/federation-upstream"
SETS = f"{PARAMETERS}/federation-upstream-set"
SECRET = {"uri": "mqtts://user:secret@127.0.0.1:1", "max-hops": 2, "expires": 90000}
ALL = {"federation-upstream-set": "all"}
DECLARED: dict[tuple[str, str], object] = {(UPSTREAM, "declared"): {"uri": "mqtt://file"}}


@pytest.fixture
async def node() -> AsyncIterator[tuple[DefinitionsService, Rest]]:
    async with definitions_node(declared=DECLARED) as (service, host), aiohttp.ClientSession() as session:
        yield service, Rest(session, f"http://{host.api.http_addresses[0]}")


async def put(rest: Rest, path: str, body: Any) -> Any:
    status, answer = await rest.call("PUT", path, body)
    assert status == 200, answer
    return answer


async def test_an_upstream_is_written_read_and_deleted(node: tuple[DefinitionsService, Rest]) -> None:
    service, rest = node
    answer = await put(rest, f"{UPSTREAMS}/my%20origin", {"value": SECRET})
    assert answer == {"warnings": ["uri: mqtts://127.0.0.1:1 does not answer from this node: Connection refused"]}
    shown = {"uri": "mqtts://***@127.0.0.1:1", "max-hops": 2, "expires": 90000}
    assert await rest.get(f"{UPSTREAMS}/my%20origin") == {
        "component": "federation-upstream",
        "name": "my origin",
        "value": shown,
        "read_only": False,
    }
    assert service.resolution().upstreams["my origin"].uris[0].password == "secret"
    listed = await rest.get(UPSTREAMS)
    assert [(item["name"], item["read_only"]) for item in listed["parameters"]] == [
        ("declared", True),
        ("my origin", False),
    ]
    assert await rest.get(PARAMETERS) == listed
    assert (await rest.call("DELETE", f"{UPSTREAMS}/my%20origin"))[0] == 200
    assert (await rest.call("DELETE", f"{UPSTREAMS}/my%20origin"))[0] == 404
    assert (await rest.call("GET", f"{UPSTREAMS}/my%20origin"))[0] == 404


async def test_a_set_and_a_policy_have_the_bodies_of_rabbitmq(node: tuple[DefinitionsService, Rest]) -> None:
    service, rest = node
    await put(rest, f"{UPSTREAMS}/u", {"value": SECRET})
    members: list[dict[str, Any]] = [
        {"upstream": "u", "uri": "mqtts://a:secret@b"},
        {"upstream": "declared", "max-hops": 3},
    ]
    await put(rest, f"{SETS}/s", {"value": members})
    assert (await rest.get(f"{SETS}/s"))["value"] == [members[0] | {"uri": "mqtts://***@b:8883"}, members[1]]
    policy = {"pattern": "a/#", "apply-to": "topics", "priority": 3, "definition": {"federation-upstream-set": "s"}}
    await put(rest, "/v1/policies/p", policy)
    assert await rest.get("/v1/policies/p") == {"name": "p", "read_only": False} | policy
    await put(rest, "/v1/policies/q", {"pattern": "b", "definition": ALL})
    assert [item["name"] for item in (await rest.get("/v1/policies"))["policies"]] == ["p", "q"]
    assert len(service.resolution().links()) == 4
    assert (await rest.call("DELETE", "/v1/policies/p"))[0] == 200
    assert (await rest.call("GET", "/v1/policies/p"))[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("PUT", f"{UPSTREAMS}/u", {"value": {"uri": "mqtt://a:secret@h:0"}}, 400, "value.uri: the port is 0"),
        ("PUT", f"{UPSTREAMS}/u", {}, 400, "value: nothing is not an object"),
        ("PUT", f"{UPSTREAMS}/u", {"value": None}, 400, "value: nothing is not an object"),
        ("PUT", f"{UPSTREAMS}/u%2Fv", {"value": {"uri": "mqtt://h"}}, 400, 'name: "u/v" is no name'),
        ("PUT", f"{UPSTREAMS}/declared", {"value": {"uri": "mqtt://h"}}, 400, "configuration file of this node"),
        ("DELETE", f"{UPSTREAMS}/declared", None, 400, "configuration file of this node"),
        ("PUT", f"{SETS}/s", {"value": [{"upstream": "gone"}]}, 400, 'value[0].upstream: there is no upstream "gone"'),
        ("PUT", f"{PARAMETERS}/shovel/s", {"value": {}}, 404, "federation-upstream"),
        ("GET", f"{PARAMETERS}/shovel", None, 404, "federation-upstream"),
        ("PUT", "/v1/policies/p", {"pattern": "a/#/b", "definition": ALL}, 400, "pattern: topic filter"),
        ("PUT", "/v1/policies/p", {"pattern": "a", "priority": "high", "definition": ALL}, 400, "priority must be"),
        ("PUT", "/v1/policies/p", {"pattern": "a"}, 400, "definition: this key is missing"),
        (
            "PUT",
            "/v1/policies/p",
            {"pattern": "a", "definition": ALL, "vhost": "v"},
            400,
            'vhost: "v" is not /, the only',
        ),
        ("PUT", "/v1/policies/v/p", {"pattern": "a", "definition": ALL}, 400, 'vhost: "v" is not /'),
        (
            "PUT",
            "/v1/policies/%2F/p",
            {"pattern": "a", "definition": ALL, "vhost": "v"},
            400,
            'vhost is "v" in the body',
        ),
        ("PUT", "/v1/policies/p", {"pattern": "a", "definition": ALL, "name": "q"}, 400, 'name is "q" in the body'),
        ("PUT", f"{UPSTREAMS}/v/u", {"value": {"uri": "mqtt://h"}}, 400, 'vhost: "v" is not /'),
        (
            "PUT",
            f"{UPSTREAMS}/u",
            {"value": {"uri": "mqtt://h"}, "component": "shovel"},
            400,
            'component is "shovel" in',
        ),
        (
            "PUT",
            f"{UPSTREAMS}/u",
            {"value": {"uri": "mqtt://h"}, "name": "v"},
            400,
            'and "u" in the path; leave it out',
        ),
        ("GET", f"{UPSTREAMS}/v/declared", None, 400, 'vhost: "v" is not /'),
        ("DELETE", f"{UPSTREAMS}/v/declared", None, 400, 'vhost: "v" is not /'),
        ("GET", "/v1/policies/v/p", None, 400, 'vhost: "v" is not /'),
        ("DELETE", "/v1/policies/v/p", None, 400, 'vhost: "v" is not /'),
        ("GET", "/v1/policy-of-topic?topic=a%2F%23", None, 400, "topic: topic name"),
    ],
)
async def test_a_refusal_names_the_key(
    node: tuple[DefinitionsService, Rest], method: str, path: str, body: Any, status: int, words: str
) -> None:
    service, rest = node
    found = await rest.call(method, path, body)
    assert found[0] == status, found
    assert words in found[1]["message"]
    assert "secret" not in found[1]["message"]
    assert service.definitions.entries() == []


async def test_tools_for_rabbitmq_say_path_and_virtual_host_in_the_body(node: tuple[DefinitionsService, Rest]) -> None:
    """As RabbitMQ's management API shows definitions, and its clients send them."""
    service, rest = node
    parameter = {"vhost": "/", "component": "federation-upstream", "name": "u", "value": {"uri": "mqtt://127.0.0.1:1"}}
    policy = {"vhost": "/", "name": "p", "pattern": "a/#", "apply-to": "topics", "priority": 0, "definition": ALL}
    for vhost in ("", "/%2F", "/%2f"):
        await put(rest, f"{UPSTREAMS}{vhost}/u", parameter)
        await put(rest, f"/v1/policies{vhost}/p", policy)
        shown = await rest.get(f"{UPSTREAMS}{vhost}/u")
        assert shown | {"vhost": "/"} == parameter | {"value": {"uri": "mqtt://127.0.0.1:1"}, "read_only": False}
        assert await rest.get(f"/v1/policies{vhost}/p") | {"vhost": "/"} == policy | {"read_only": False}
        (link,) = [link for link in service.resolution().links() if link.upstream.name == "u"]
        assert [found.name for found in link.policies] == ["p"]
        assert (await rest.call("DELETE", f"/v1/policies{vhost}/p"))[0] == 200
        assert (await rest.call("DELETE", f"{UPSTREAMS}{vhost}/u"))[0] == 200
    items = {"parameters": [parameter], "policies": [policy]}
    assert (await rest.call("POST", "/v1/definitions", items))[0] == 200
    assert list(service.resolution().upstreams) == ["declared", "u"]


async def test_what_looks_like_a_regular_expression_is_a_warning(node: tuple[DefinitionsService, Rest]) -> None:
    _, rest = node
    for pattern in ("eu.?", "eu$", "machine\\a"):
        (warning,) = (await put(rest, "/v1/policies/p", {"pattern": pattern, "definition": ALL}))["warnings"]
        assert "not a regular expression" in warning
    assert await put(rest, "/v1/policies/p", {"pattern": "a.b/+/c$d/#", "definition": ALL}) == {"warnings": []}


async def test_the_list_says_what_has_no_effect(node: tuple[DefinitionsService, Rest]) -> None:
    service, rest = node
    assert (await rest.get("/v1/parameters"))["warnings"] == []
    await put(rest, "/v1/policies/p", {"pattern": "a", "definition": {"federation-upstream": "gone"}})
    service.heard_clock("n2", service.own_time() + 1e9)
    service.heard_clock("n3", service.own_time() + 1e9)
    warnings = "\n".join((await rest.get("/v1/parameters"))["warnings"])
    assert '"gone"' in warnings
    assert "clock" in warnings


async def test_definitions_of_a_newer_node_do_not_break_the_lists(node: tuple[DefinitionsService, Rest]) -> None:
    service, rest = node
    newer = [
        Entry(UPSTREAM, "newer", 1, "m", canonical({"uri": "quic://a:secret@h"})),
        Entry(POLICY, "newer", 1, "m", canonical({"pattern": ["a"], "new": 1})),
    ]
    service.definitions.merge(newer, service.unix_time())
    assert (await rest.get(f"{UPSTREAMS}/newer"))["value"] == {"uri": "***"}
    assert (await rest.get("/v1/policies/newer"))["name"] == "newer"
    assert (await rest.get("/v1/policies"))["policies"] == []
    assert len((await rest.get("/v1/definitions"))["policies"]) == 1


@pytest.mark.parametrize(
    ("role", "status"),
    [
        (Role.READ, {"list": 200, "policy": 403, "upstream": 403, "export": 403}),
        (Role.WRITE, {"list": 200, "policy": 200, "upstream": 403, "export": 403}),
        (Role.ADMIN, {"list": 200, "policy": 200, "upstream": 200, "export": 200}),
    ],
)
async def test_each_role_may_do_its_part(tmp_path: Path, role: Role, status: dict[str, int]) -> None:
    (tmp_path / "tokens").write_bytes(write_tokens([Token("t", role, "2026-01-01", hash_token("secret"))]))
    guard = ApiGuard(str(tmp_path / "tokens"))
    guard.load()
    async with definitions_node(guard=guard) as (_, host), aiohttp.ClientSession() as session:
        rest = Rest(session, f"http://{host.api.http_addresses[0]}")
        headers = {"Authorization": "Bearer secret"}
        policy = {"pattern": "a", "definition": ALL}
        found = {
            "list": await rest.call("GET", PARAMETERS, headers=headers),
            "policy": await rest.call("PUT", "/v1/policies/p", policy, headers=headers),
            "upstream": await rest.call("PUT", f"{UPSTREAMS}/u", {"value": SECRET}, headers=headers),
            "export": await rest.call("GET", "/v1/definitions", headers=headers),
        }
        assert {name: answer[0] for name, answer in found.items()} == status
        assert (await rest.call("GET", PARAMETERS))[0] == 401


async def test_the_documentation_of_the_api_has_the_names_of_rabbitmq(node: tuple[DefinitionsService, Rest]) -> None:
    _, rest = node
    found = await rest.get("/v1/openapi.json")
    assert "/v1/parameters/{component}/{name}" in found["paths"]
    schemas = found["components"]["schemas"]
    assert "apply-to" in schemas["gmqtt.definitions.api.Policy"]["properties"]
    parameter, policy = schemas["gmqtt.definitions.api.Parameter"], schemas["gmqtt.definitions.api.Policy"]
    assert parameter["properties"]["value"]["example"]["max-hops"] == 1
    assert set(parameter["example"]) == {"value"}
    await put(rest, f"{UPSTREAMS}/u", {"value": parameter["example"]["value"] | {"uri": "mqtt://127.0.0.1:1"}})
    assert await put(rest, "/v1/policies/p", policy["example"]) == {"warnings": []}
