"""JSON that the parser of protobuf takes and the API refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from broker.api.errors import ApiError
from broker.api.pb import admin_pb2 as pb
from broker.api.strict_json import VALUES_MAX, count_values, is_base64, load_object, wanted_kind
from federation.definitions.pb import definitions_pb2


@given(data=st.binary(), url_safe=st.booleans(), padded=st.booleans())
def test_base64_of_either_alphabet_is_base64(data: bytes, url_safe: bool, padded: bool) -> None:
    text = (base64.urlsafe_b64encode(data) if url_safe else base64.b64encode(data)).decode()
    text = text if padded else text.rstrip("=")
    assert is_base64(text)
    body = json.dumps({"payload_raw": text})
    assert load_object(body, pb.PublishRequest.DESCRIPTOR) == {"payload_raw": text}


@pytest.mark.parametrize("value", ["?", "a b", "Zm9v\n", "a", "aaaaa", "Zm=9v", "ü", 7, True, ["Zm9v"], {}])
def test_values_that_are_no_base64_are_refused(value: Any) -> None:
    assert not is_base64(value)
    with pytest.raises(ApiError, match="payload_raw must be text in base64"):
        load_object(json.dumps({"payload_raw": value}), pb.PublishRequest.DESCRIPTOR)


@pytest.mark.parametrize(
    ("message", "body", "place", "wanted"),
    [
        (definitions_pb2.Policy, {"priority": "high"}, "priority", "whole number"),
        (definitions_pb2.Policy, {"priority": 1.5}, "priority", "whole number"),
        (definitions_pb2.Policy, {"priority": 2**31}, "priority", "2147483647"),
        (definitions_pb2.Policy, {"priority": True}, "priority", "whole number"),
        (definitions_pb2.Policy, {"pattern": ["a"]}, "pattern", "text"),
        (definitions_pb2.Policy, {"definition": [1]}, "definition", "object"),
        (definitions_pb2.Policy, {"read_only": "yes"}, "read_only", "true or false"),
        (definitions_pb2.AllDefinitions, {"policies": [{}, {"apply-to": 7}]}, "policies[1].apply-to", "text"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_place(message: Any, body: Any, place: str, wanted: str) -> None:
    with pytest.raises(ApiError) as caught:
        load_object(json.dumps(body), message.DESCRIPTOR)
    text = str(caught.value)
    assert place in text
    assert wanted in text
    assert "parse" not in text


@given(st.sampled_from(["count", "id", "time"]), st.integers(-(2**64), 2**64), st.sampled_from([int, str, float]))
def test_whole_numbers_are_those_of_protobuf(kind: str, number: int, form: Any) -> None:
    found: dict[str, tuple[str, Any]] = {
        "count": ("priority", definitions_pb2.Policy),
        "id": ("time", definitions_pb2.ExchangeRequest),
        "time": ("clock", definitions_pb2.VersionedDefinition),
    }
    name, message = found[kind]
    value = form(number)
    field = message.DESCRIPTOR.fields_by_name[name]
    try:
        json_format.ParseDict({name: value}, message())
    except json_format.ParseError:
        assert wanted_kind(value, field) != ""
    else:
        assert wanted_kind(value, field) == ""


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"', "\\", '\\"', ",[{", '","']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def size(value: Any) -> int:
    """Values in a JSON value, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return 1 + sum(size(one) for one in inner)


@given(value=JSON_VALUES, ascii_only=st.booleans(), indent=st.none() | st.just(2))
def test_values_are_counted_without_reading_them(value: Any, ascii_only: bool, indent: int | None) -> None:
    counted = count_values(json.dumps(value, ensure_ascii=ascii_only, indent=indent))
    assert size(value) <= counted <= 2 * size(value)


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        "{" * 100_000,
        '"' * 100_000,
        '{"topics": [' + ",".join(['"a"'] * (VALUES_MAX + 1)) + "]}",
        '{"topics": [' + ",".join(["[]"] * (VALUES_MAX + 1)) + "]}",
    ],
)
def test_a_body_with_too_many_values_is_not_read(body: str) -> None:
    with pytest.raises(ApiError, match=f"more than {VALUES_MAX} values"):
        load_object(body, pb.UnsubscribeRequest.DESCRIPTOR)


def test_text_may_look_like_many_values() -> None:
    payload = '[{"a": 1}, ' * 10_000
    assert load_object(json.dumps({"payload": payload}), pb.PublishRequest.DESCRIPTOR) == {"payload": payload}
