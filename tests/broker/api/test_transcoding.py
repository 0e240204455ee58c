"""Routes and JSON: any input gives a request or an error that names what is wrong, never anything else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from hypothesis import given
from hypothesis import strategies as st

from broker.api.errors import HTTP_STATUSES, ApiError
from broker.api.gateway import Gateway
from broker.api.method import ApiMethod, service_methods
from broker.api.openapi import SCALARS
from broker.api.pb import admin_pb2 as pb
from broker.api.route import Route
from broker.api.strict_json import is_base64, load_object
from broker.api.subscription_search import filter_matches
from broker.api.transcoding import read_request, write_response
from broker.routing.trie import Trie


class Nobody:
    """A servicer whose methods are never called."""

    def __getattr__(self, name: str) -> Any:
        return self.call

    async def call(self, request: Any, context: Any) -> Empty:
        raise AssertionError("called")


def all_routes() -> list[Route]:
    gateway = Gateway(None)
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service_methods(service, Nobody(), None):
            gateway.add(method)
    return gateway.routes


ROUTES = {f"{route.verb} {route.template}": route for route in all_routes()}
PUBLISH = ROUTES["POST /v1/publish"]
SUBSCRIBE = ROUTES["POST /v1/subscribe"]
SEARCH = ROUTES["GET /v1/filter_subscriptions"]


def read(route: Route, query: list[tuple[str, str]], body: bytes) -> Any:
    """The request, or the ApiError; anything else that is raised fails the test."""
    try:
        return read_request(route, {}, query, body)
    except ApiError as error:
        return error


NAMES = st.sampled_from(
    [
        *("topic_name", "topicName", "payload", "qos", "retained", "payload_raw", "user_properties", "K", "V"),
        *("client_id", "clientId", "subscriptions", "no_local", "id", "x", ""),
    ]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["1", "a/b", "Zm9v", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON_VALUES, route=st.sampled_from([PUBLISH, SUBSCRIBE]))
def test_any_json_gives_a_request_or_an_argument_error(value: Any, route: Route) -> None:
    answer = read(route, [], json.dumps(value).encode())
    if isinstance(answer, ApiError):
        assert (answer.number, answer.http_status) == (3, 400)
        assert "\n" not in answer.text
        assert len(answer.text) < 1500
    else:
        assert answer.DESCRIPTOR is route.method.descriptor.input_type


@given(body=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_give_a_request_or_an_argument_error(body: bytes) -> None:
    answer = read(PUBLISH, [], body)
    assert isinstance(answer, pb.PublishRequest) or answer.number == 3


@given(query=st.lists(st.tuples(NAMES | st.sampled_from(["limit", "match_type", "filterType"]), st.text(max_size=5))))
def test_any_query_gives_a_request_or_an_argument_error(query: list[tuple[str, str]]) -> None:
    answer = read(SEARCH, query, b"")
    assert isinstance(answer, pb.FilterSubscriptionRequest) or answer.number == 3


REQUESTS = st.builds(
    pb.PublishRequest,
    topic_name=st.text(st.characters(exclude_categories=["Cs"])),
    payload=st.text(st.characters(exclude_categories=["Cs"])),
    qos=st.integers(0, 2**32 - 1),
    retained=st.booleans(),
    payload_raw=st.binary(),
    user_properties=st.lists(st.builds(pb.UserProperties, K=st.binary(), V=st.binary()), max_size=3),
)


@given(request=REQUESTS, both=st.booleans())
def test_what_is_written_is_read_back(request: pb.PublishRequest, both: bool) -> None:
    text = write_response(request) if both else json_format.MessageToJson(request)
    assert read_request(PUBLISH, {}, [], text.encode()) == request


@given(data=st.binary(), url_safe=st.booleans(), padded=st.booleans())
def test_base64_of_either_alphabet_is_base64(data: bytes, url_safe: bool, padded: bool) -> None:
    text = (base64.urlsafe_b64encode(data) if url_safe else base64.b64encode(data)).decode()
    text = text if padded else text.rstrip("=")
    assert is_base64(text)
    body = json.dumps({"payload_raw": text}).encode()
    request: Any = read_request(PUBLISH, {}, [], body)
    assert request.payload_raw == data


@pytest.mark.parametrize("value", ["?", "a b", "Zm9v\n", "a", "aaaaa", "Zm=9v", "ü", 7, True, ["Zm9v"], {}])
def test_what_is_no_base64(value: Any) -> None:
    assert not is_base64(value)
    with pytest.raises(ApiError, match="payload_raw must be text in base64"):
        load_object(json.dumps({"payload_raw": value}), pb.PublishRequest.DESCRIPTOR)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("7", 7), (7, 7), (7.0, 7), (None, 0), ("SUB_MATCH_TYPE_MATCH_NAME", None), (1.5, None), (True, None), ("", None)],
)
def test_numbers_may_be_text(value: Any, wanted: int | None) -> None:
    body = json.dumps({"qos": value}).encode()
    if wanted is None:
        with pytest.raises(ApiError, match="qos"):
            read_request(PUBLISH, {}, [], body)
    else:
        request: Any = read_request(PUBLISH, {}, [], body)
        assert request.qos == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("true", True), ("1", True), ("T", True), ("False", False), ("0", False), ("f", False)]
)
def test_booleans_of_a_query(text: str, wanted: bool) -> None:
    route = ROUTES["DELETE /v1/clients/{client_id}"]
    request: Any = read_request(route, {"client_id": "c"}, [("cleanSession", text)], b"")
    assert request == pb.DeleteClientRequest(client_id="c", clean_session=wanted)


# --- routes


@pytest.mark.parametrize(
    ("template", "body", "words"),
    [
        ("/v1/{page}", "", "{page} of /v1/{page} is no text field"),
        ("/v1/{nothing}", "", "{nothing} of"),
        ("/v1/{name=a/*}", "", "is no name and no {field}"),
        ("/v1/**", "", "is no name"),
        ("/v1//a", "", "is no name"),
        ("/v1/a", "page", 'body "page" is not possible'),
    ],
)
def test_templates_that_are_not_understood_are_refused_at_once(template: str, body: str, words: str) -> None:
    method = pb.DESCRIPTOR.services_by_name["ClientService"].methods_by_name["List"]
    with pytest.raises(ValueError) as caught:
        Route(ApiMethod(method, Nobody(), None), "GET", template, body)
    assert words in str(caught.value)


def test_a_path_is_taken_once() -> None:
    gateway = Gateway(None)
    method = ApiMethod(pb.DESCRIPTOR.services_by_name["ClientService"].methods_by_name["List"], Nobody(), None)
    gateway.add(method)
    with pytest.raises(ValueError, match=r"GET /v1/clients is taken by gmqtt\.admin\.api\.ClientService\.List"):
        gateway.add(method)


def test_all_grpc_codes_have_a_status_and_all_types_a_schema() -> None:
    assert {code.value[0] for code in HTTP_STATUSES} == set(range(17))
    kinds = {field.type for message in pb.DESCRIPTOR.message_types_by_name.values() for field in message.fields}
    assert kinds - set(SCALARS) == {11, 14}  # messages and enums have references


# --- the search's matcher agrees with the tree

LEVELS = st.sampled_from(["a", "b", "", "+", "$x"])


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=4),
    hash_last=st.booleans(),
    names=st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4),
)
def test_filter_matches_as_the_tree_does(levels: list[str], hash_last: bool, names: list[str]) -> None:
    topic_filter = "/".join(levels + ["#"] * hash_last).encode()
    topic = "/".join(names).encode()
    if not topic_filter or not topic:
        return
    tree = Trie()
    tree.set(topic_filter, object())
    assert filter_matches(topic_filter, topic) == bool(tree.match(topic))
