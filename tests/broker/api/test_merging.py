"""The answers of several workers as one."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from broker.api.errors import ApiError, not_found
from broker.api.fields import page_bounds, timestamp
from broker.api.guard import ApiGuard
from broker.api.merging import HOW, merge
from broker.api.method import ApiMethod, Calls
from broker.api.pb import admin_pb2
from broker.api.siblings import Siblings, decoded_figures, encoded_figures, joined_metrics
from broker.api.token_service import TokenService
from broker.api.tokens import Role
from broker.auth.pb import account_pb2
from broker.metrics.metric import counter, counters, gauge

CLIENTS: Final = admin_pb2.DESCRIPTOR.services_by_name["ClientService"]
TOKENS: Final = admin_pb2.DESCRIPTOR.services_by_name["TokenService"]
NODE: Final = admin_pb2.DESCRIPTOR.services_by_name["NodeService"]


class OneWorker:
    """The services of one worker, as far as they are asked here."""

    roles: Final = {
        **{"List": Role.READ, "Get": Role.READ, "Delete": Role.WRITE, "Rates": Role.READ},
        "History": Role.READ,
    }

    def __init__(self, names: list[str], **figures: Any) -> None:
        self.names = names
        self.figures = figures
        self.deleted: list[str] = []

    async def List(self, request: admin_pb2.ListClientRequest, context: object) -> admin_pb2.ListClientResponse:
        offset, count = page_bounds(request.page, request.page_size)
        found = [admin_pb2.Client(client_id=name) for name in self.names[offset : offset + count]]
        return admin_pb2.ListClientResponse(clients=found, total_count=len(self.names))

    async def Get(self, request: Any, context: object) -> Message:
        if isinstance(request, Empty):
            return admin_pb2.Node(**self.figures)
        if request.client_id not in self.names:
            raise not_found(request.client_id)
        return admin_pb2.GetClientResponse(client=admin_pb2.Client(client_id=request.client_id))

    async def Delete(self, request: Any, context: object) -> Empty:
        self.deleted.append(request.client_id)
        return Empty()

    async def History(self, request: Any, context: object) -> admin_pb2.ClientHistory:
        events = [admin_pb2.ClientEvent(time=timestamp(at), text=str(at)) for at in self.figures["events"]]
        return admin_pb2.ClientHistory(events=events)

    async def Rates(self, request: Empty, context: object) -> admin_pb2.NodeRates:
        return admin_pb2.NodeRates(series=[admin_pb2.Series(name="sessions", values=self.figures["values"])])


class Others(Siblings):
    """Calls them in this process, encoded as over the wire."""

    def __init__(self, workers: list[OneWorker], service: Any) -> None:
        super().__init__(dict.fromkeys(range(1, len(workers) + 1), ""))
        self.workers = workers
        self.service = service
        self.is_away = False

    async def call(self, index: int, path: str, request: bytes) -> bytes:
        if self.is_away:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, f"worker {index}")
        name = path.rpartition("/")[2]
        method = method_of(self.workers[index - 1], self.service, name)
        return (await method.call(method.read_request(request), None)).SerializeToString()


def method_of(worker: OneWorker, service: Any, name: str) -> ApiMethod:
    return ApiMethod(service.methods_by_name[name], worker, Calls(), logging.getLogger())


def merged(workers: list[OneWorker], name: str, service: Any = CLIENTS) -> tuple[ApiMethod, Others]:
    method = method_of(workers[0], service, name)
    others = Others(workers[1:], service)
    merge(method, others)
    return method, others


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 8), st.integers(1, 5))
def test_pages_are_those_of_one_long_list(counts: list[int], page: int, size: int) -> None:
    lists = [[f"{worker}-{number}" for number in range(count)] for worker, count in enumerate(counts)]
    method, _ = merged([OneWorker(names) for names in lists], "List")
    request = admin_pb2.ListClientRequest(page=page, page_size=size)
    answer: Any = asyncio.run(method.call(request, None))
    whole = [name for names in lists for name in names]
    offset = (max(page, 1) - 1) * size
    assert [client.client_id for client in answer.clients] == whole[offset : offset + size]
    assert answer.total_count == len(whole)


async def test_a_client_is_found_where_it_is() -> None:
    method, others = merged([OneWorker(["a"]), OneWorker(["b"]), OneWorker([])], "Get")
    for name in ("a", "b"):
        answer: Any = await method.call(admin_pb2.GetClientRequest(client_id=name), None)
        assert answer.client.client_id == name
    with pytest.raises(ApiError) as fault:
        await method.call(admin_pb2.GetClientRequest(client_id="c"), None)
    assert fault.value.code is grpc.StatusCode.NOT_FOUND
    others.is_away = True  # it may be there: not found would be wrong
    with pytest.raises(ApiError) as fault:
        await method.call(admin_pb2.GetClientRequest(client_id="b"), None)
    assert fault.value.code is grpc.StatusCode.UNAVAILABLE


async def test_what_has_no_answer_is_done_at_each() -> None:
    workers = [OneWorker([]), OneWorker([])]
    method, _ = merged(workers, "Delete")
    await method.call(admin_pb2.DeleteClientRequest(client_id="a"), None)
    assert [worker.deleted for worker in workers] == [["a"], ["a"]]


async def test_what_a_client_did_at_all_workers_is_one_history() -> None:
    method, _ = merged([OneWorker([], events=[7.5, 2.0]), OneWorker([], events=[9.0, 7.25])], "History")
    answer: Any = await method.call(admin_pb2.GetClientRequest(client_id="a"), None)
    assert [float(event.text) for event in answer.events] == [9.0, 7.5, 7.25, 2.0]


async def test_a_token_that_is_deleted_counts_at_no_worker(tmp_path: Path) -> None:
    """Also where a worker has no API of its own."""
    path = tmp_path / "tokens"
    path.touch(0o600)
    guards = [ApiGuard(str(path)), ApiGuard(str(path)), ApiGuard("")]
    workers: list[Any] = [TokenService(guard) for guard in guards]
    create, _ = merged(workers, "Create", TOKENS)
    await create.call(admin_pb2.CreateTokenRequest(role="read", name="a"), None)
    await create.call(admin_pb2.CreateTokenRequest(role="read", name="b"), None)
    assert [guard.token_count for guard in guards] == [2, 2, 0]
    delete, _ = merged(workers, "Delete", TOKENS)
    await delete.call(admin_pb2.DeleteTokenRequest(name="a"), None)
    assert [guard.token_count for guard in guards] == [1, 1, 0]


async def test_figures_of_a_node_are_sums() -> None:
    one = {"clients_connected": 2, "messages_received": [1, 2, 3], "dropped": {"a": 1}, "retained_messages": 5}
    two = {
        "clients_connected": 3,
        "messages_received": [10, 20, 30],
        "dropped": {"a": 2, "b": 4},
        "retained_messages": 5,
    }
    method, _ = merged([OneWorker([], **one), OneWorker([], **two)], "Get", NODE)
    answer: Any = await method.call(Empty(), None)
    assert answer.clients_connected == 5
    assert list(answer.messages_received) == [11, 22, 33]
    assert dict(answer.dropped) == {"a": 3, "b": 4}
    assert answer.retained_messages == 5  # all workers have them


async def test_rates_are_added_from_the_newest_on() -> None:
    workers = [
        OneWorker([], values=[1.0, 2.0, 3.0]),
        OneWorker([], values=[10.0, 20.0]),
    ]  # the second was started again
    method, _ = merged(workers, "Rates", NODE)
    answer: Any = await method.call(Empty(), None)
    assert list(answer.series[0].values) == [1.0, 12.0, 23.0]


def test_every_merged_method_exists() -> None:
    services = [
        service for file in (admin_pb2.DESCRIPTOR, account_pb2.DESCRIPTOR) for service in file.services_by_name.values()
    ]
    assert HOW.keys() <= {method.full_name for service in services for method in service.methods}


def test_metrics_of_workers_are_added_or_labelled() -> None:
    one = [counter("c_total", "C.", 1.0), gauge("g", "G.", 2.0), counters("k_total", "K.", "kind", [("a", 1.0)])]
    two = [counter("c_total", "C.", 5.0), gauge("g", "G.", 7.0), counters("k_total", "K.", "kind", [("b", 2.0)])]
    not_ready, told = decoded_figures(encoded_figures(["it is full"], two))
    assert not_ready == ["it is full"]
    found = {metric.name: metric for metric in joined_metrics({0: one, 1: told})}
    assert found["c_total"].samples == {(): 6.0}
    assert found["k_total"].samples == {("a",): 1.0, ("b",): 2.0}
    assert found["g"].labels == ("worker",)
    assert found["g"].samples == {("0",): 2.0, ("1",): 7.0}
