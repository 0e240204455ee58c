"""The OpenAPI description and its page: complete, consistent, and without a word to the internet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

PATHS = {
    "/v1/clients": {"get"},
    "/v1/clients/{client_id}": {"get", "delete"},
    "/v1/subscriptions": {"get"},
    "/v1/filter_subscriptions": {"get"},
    "/v1/subscribe": {"post"},
    "/v1/unsubscribe": {"post"},
    "/v1/publish": {"post"},
}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


async def test_it_lists_every_path(rest: Any) -> None:
    document = await rest.get("/v1/openapi.json")
    assert document["openapi"].startswith("3.0")
    assert {path: set(operations) for path, operations in document["paths"].items()} == PATHS
    assert [tag["name"] for tag in document["tags"]] == ["ClientService", "SubscriptionService", "PublishService"]
    assert document["info"]["version"]


async def test_all_references_are_there_and_all_operations_have_words(rest: Any) -> None:
    document = await rest.get("/v1/openapi.json")
    schemas = document["components"]["schemas"]
    references = {inner["$ref"] for inner in walk(document) if "$ref" in inner}
    assert references == {f"#/components/schemas/{name}" for name in schemas}
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert all(operation["summary"] for operation in operations)
    assert len({operation["operationId"] for operation in operations}) == len(operations)


async def test_fields_have_types_of_the_json_mapping_and_comments(rest: Any) -> None:
    document = await rest.get("/v1/openapi.json")
    client = document["components"]["schemas"]["gmqtt.admin.api.Client"]["properties"]
    assert client["packets_received_bytes"] == {"type": "string", "format": "uint64"}
    assert client["connected_at"]["format"] == "date-time"
    assert client["keep_alive"]["description"] == "Seconds; 0 is none."
    publish = document["components"]["schemas"]["gmqtt.admin.api.PublishRequest"]["properties"]
    assert publish["payload_raw"]["format"] == "byte"
    assert publish["user_properties"]["items"] == {"$ref": "#/components/schemas/gmqtt.admin.api.UserProperties"}
    search = document["paths"]["/v1/filter_subscriptions"]["get"]["parameters"]
    assert [parameter["name"] for parameter in search] == [
        *("client_id", "filter_type", "match_type", "topic_name", "limit")
    ]
    kinds = document["components"]["schemas"]["gmqtt.admin.api.SubMatchType"]
    assert kinds["enum"][1] == "SUB_MATCH_TYPE_MATCH_NAME"
    (path_field, *_) = document["paths"]["/v1/clients/{client_id}"]["delete"]["parameters"]
    assert (path_field["in"], path_field["required"]) == ("path", True)


async def fetch(rest: Any, path: str) -> tuple[int, str, str, dict[str, str]]:
    async with rest.session.get(rest.base + path, allow_redirects=False) as response:
        return response.status, response.content_type, await response.text("latin-1"), dict(response.headers)


async def test_the_page_uses_what_this_node_serves_and_nothing_else(rest: Any) -> None:
    for path in ("/", "/docs/"):
        status, _, _, headers = await fetch(rest, path)
        assert (status, headers["Location"]) == (302, "/docs")
    status, content_type, page, headers = await fetch(rest, "/docs")
    assert (status, content_type) == (200, "text/html")
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    used = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(used) == 4
    types = {}
    for path in used:
        assert path.startswith("/docs/")
        status, types[path], text, headers = await fetch(rest, path)
        assert (status, text != "") == (200, True)
        assert "Content-Security-Policy" in headers
    assert types["/docs/swagger-ui.css"] == "text/css"
    assert types["/docs/swagger-ui-bundle.js"].endswith("javascript")
    _, _, script, _ = await fetch(rest, "/docs/start.js")
    assert re.findall(r'url: "([^"]+)"', script) == ["/v1/openapi.json"]
    assert "validatorUrl: null" in script
    assert "//" not in page + script
    _, _, style, _ = await fetch(rest, "/docs/swagger-ui.css")
    assert not re.search(r"url\((?!['\"]?data:)", style)
    assert "@import" not in style


async def test_only_the_assets_are_served(rest: Any) -> None:
    for path in ("/docs/index.html", "/docs/..%2f..%2f__init__.py", "/docs/../pyproject.toml", "/docs/swagger-ui.css/"):
        status, answer = await rest.call("GET", path)
        assert (status, answer["code"]) == (404, 5)
