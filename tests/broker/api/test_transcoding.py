"""Routes and JSON: any input gives a request or an error that names what is wrong, never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty
from hypothesis import given
from hypothesis import strategies as st

from api_calls import READERS
from broker.api.errors import ApiError
from broker.api.gateway import Gateway
from broker.api.long_calls import LongCalls
from broker.api.method import CallsByKind, service_methods
from broker.api.pb import admin_pb2 as pb
from broker.api.route import Route
from broker.api.transcoding import as_json, as_values, read_request, write_response
from federation.definitions.pb.definitions_pb2 import Parameter


class Nobody:
    """A servicer whose methods are never called."""

    roles = READERS

    def __getattr__(self, name: str) -> Any:
        return self.call

    async def call(self, request: Any, context: Any) -> Empty:
        raise AssertionError("called")


def all_routes() -> list[Route]:
    gateway = Gateway(LongCalls(), None)
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service_methods(service, Nobody(), CallsByKind(), None):
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


def written(response: Any) -> str:
    """The JSON of a copy of a response: writing takes the lists out."""
    copy = type(response)()
    copy.CopyFrom(response)
    steps = write_response(copy)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return str(end.value)


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
def test_written_requests_are_read_back(request: pb.PublishRequest, both: bool) -> None:
    text = written(request) if both else json_format.MessageToJson(request)
    assert read_request(PUBLISH, {}, [], text.encode()) == request


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


@given(
    clients=st.lists(st.builds(pb.Client, client_id=st.text(st.characters(exclude_categories=["Cs"]))), max_size=3),
    count=st.integers(0, 9),
)
def test_lists_are_written_as_protobuf_writes_them(clients: list[pb.Client], count: int) -> None:
    response = pb.ListClientResponse(clients=clients, total_count=count)
    text = written(response)
    as_protobuf = json_format.MessageToJson(
        response,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        indent=4,
        ensure_ascii=False,
    )
    assert sorted(line.rstrip(",") for line in text.splitlines()) == sorted(
        line.rstrip(",") for line in as_protobuf.splitlines()
    )
    assert list(json.loads(text)) == ["clients", "total_count"]
    assert json_format.Parse(text, pb.ListClientResponse()) == response


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (Empty(), "{}"),
        (pb.ListClientResponse(), '{\n    "clients": [],\n    "total_count": 0\n}'),
        (pb.SubscribeResponse(new=[True]), '{\n    "new": [\n        true\n    ]\n}'),
        (
            pb.PublishRequest(user_properties=[pb.UserProperties(K=b"k")]),
            '"user_properties": [\n        {\n            "K": "aw==",\n            "V": ""\n        }\n    ]',
        ),
    ],
)
def test_zero_values_and_empty_lists_are_written(response: Any, text: str) -> None:
    assert text in written(response)


def test_json_values_keep_their_whole_numbers() -> None:
    parameter = Parameter()
    json_format.ParseDict({"uri": "u", "hops": 2, "seconds": 0.5, "list": [{"count": 100}]}, parameter.value)
    assert as_json(as_values(parameter)["value"]).count(".") == 1
    assert as_values(parameter)["value"] == {"uri": "u", "hops": 2, "seconds": 0.5, "list": [{"count": 100}]}


@pytest.mark.parametrize("query", [[("foo", "1")], [("zone", "c2"), ("x.y", "")], [("", "")], [("Page", "7")]])
def test_query_parameters_that_no_field_has_are_ignored_as_by_the_go_broker(query: list[tuple[str, str]]) -> None:
    clients, client = ROUTES["GET /v1/clients"], ROUTES["GET /v1/clients/{client_id}"]
    assert read_request(clients, {}, [*query, ("page", "3")], b"") == pb.ListClientRequest(page=3)
    assert read_request(client, {"client_id": "c1"}, query, b"") == pb.GetClientRequest(client_id="c1")
    assert read_request(PUBLISH, {}, [*query, ("topic_name", "b")], b'{"topic_name": "a"}') == pb.PublishRequest(
        topic_name="a"
    )
