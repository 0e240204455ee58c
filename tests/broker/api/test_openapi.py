"""The OpenAPI description: complete, consistent, with examples that work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from broker.api import node as node_module
from broker.api.openapi import SCALARS
from broker.api.pb import admin_pb2 as pb

PATHS = {
    "/v1/node": {"get"},
    "/v1/alarms": {"get"},
    "/v1/rates": {"get"},
    "/v1/events": {"get"},
    "/v1/log_level": {"put"},
    "/v1/clients": {"get"},
    "/v1/clients/{client_id}": {"get", "delete"},
    "/v1/clients/{client_id}/history": {"get"},
    "/v1/clients/{client_id}/release": {"post"},
    "/v1/subscriptions": {"get"},
    "/v1/filter_subscriptions": {"get"},
    "/v1/subscribe": {"post"},
    "/v1/unsubscribe": {"post"},
    "/v1/traces": {"post", "get"},
    "/v1/traces/{id}": {"delete"},
    "/v1/traces/{id}/lines": {"get"},
    "/v1/publish": {"post"},
    "/v1/configuration": {"get"},
    "/v1/retained": {"get"},
    "/v1/retained/{topic_name}": {"get", "delete"},
    "/v1/topics/explain": {"get"},
    "/v1/topics/traffic": {"get"},
    "/v1/topics/watch": {"get"},
    "/v1/tokens": {"get", "post"},
    "/v1/tokens/{name}": {"delete"},
}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


async def test_the_document_lists_every_path(rest: Any) -> None:
    document = await rest.get("/v1/openapi.json")
    assert document["openapi"].startswith("3.0")
    assert {path: set(operations) for path, operations in document["paths"].items()} == PATHS
    assert [tag["name"] for tag in document["tags"]] == [
        "ClientService",
        "SubscriptionService",
        "NodeService",
        "TraceService",
        "PublishService",
        "TokenService",
        "RetainedService",
        "TopicService",
    ]
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
    assert client["packets_received_bytes"] == {"type": "string", "format": "uint64", "example": "0"}
    assert client["connected_at"]["format"] == "date-time"
    assert client["keep_alive"]["description"] == "Keep alive interval of CONNECT, in seconds; 0 is none."
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


async def test_examples_are_requests_that_the_node_takes(node: Any, rest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[str] = []
    monkeypatch.setattr(node_module, "setup_logging", lambda log: levels.append(log.level))
    monkeypatch.setattr(node, "observe_clients", lambda: None, raising=False)
    document = await rest.get("/v1/openapi.json")
    schemas = document["components"]["schemas"]
    client = node.world.connect("client1")
    client.subscribe(b"sensors/+", qos=1)
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if "requestBody" in operation:
                name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
                status, answer = await rest.call(verb.upper(), path, schemas[name]["example"])
                if path == "/v1/tokens":  # the request is right; this node has no file for the answer
                    assert (status, "api.token_file" in answer["message"]) == (400, True), answer
                else:
                    assert status == 200, answer
    assert levels == ["debug"]
    assert client.take_payloads() == [b"21.5"]


async def test_no_form_is_filled_with_a_maximum(rest: Any) -> None:
    document = await rest.get("/v1/openapi.json")
    bounded = [schema for schema in walk(document) if "maximum" in schema]
    assert len(bounded) > 10
    assert {schema["example"] for schema in bounded} == {0}


def test_every_type_of_the_definitions_has_a_schema() -> None:
    kinds = {field.type for message in pb.DESCRIPTOR.message_types_by_name.values() for field in message.fields}
    assert kinds - set(SCALARS) == {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_ENUM}  # they have references
