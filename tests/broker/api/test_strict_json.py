"""JSON that the parser of protobuf takes and the API refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.errors import ApiError
from broker.api.pb import admin_pb2 as pb
from broker.api.strict_json import VALUES_MAX, count_values, is_base64, load_object


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
