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

from broker.api.clients import ClientService
from broker.api.errors import ApiError, not_found
from broker.api.fields import page_bounds, timestamp
from broker.api.guard import ApiGuard
from broker.api.merging import merge
from broker.api.method import ApiMethod, Calls
from broker.api.node import NodeService
from broker.api.pb import admin_pb2
from broker.api.siblings import Siblings
from broker.api.token_service import TokenService
from broker.api.tokens import Role
from broker.api.topics import TopicService
from federation.api.sessions_of_workers import for_workers as sessions_of_workers
from federation.sessions.drain import RATE_MAX
from federation.sessions.pb import sessions_pb2
from federation.sessions.pb.sessions_pb2 import (
    Copies,
    DrainRequest,
    DrainStatus,
    GetSessionRequest,
    Keeper,
    MoveRequest,
    MoveResponse,
    Session,
)

CLIENTS: Final = admin_pb2.DESCRIPTOR.services_by_name["ClientService"]
TOKENS: Final = admin_pb2.DESCRIPTOR.services_by_name["TokenService"]
NODE: Final = admin_pb2.DESCRIPTOR.services_by_name["NodeService"]
TOPICS: Final = admin_pb2.DESCRIPTOR.services_by_name["TopicService"]
NOTED: Final[list[list[int]]] = []  # rates of drains
SESSIONS: Final = sessions_pb2.DESCRIPTOR.services_by_name["Sessions"]


class OneWorker:
    """The services of one worker, as far as they are asked here."""

    roles: Final = {
        **{"List": Role.READ, "Get": Role.READ, "Delete": Role.WRITE},
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


class Others(Siblings):
    """Calls them in this process, encoded as over the wire."""

    def __init__(self, workers: list[Any], service: Any) -> None:
        super().__init__(dict.fromkeys(range(1, len(workers) + 1), ""))
        self.workers = workers
        self.service = service
        self.is_away = False

    async def call(self, index: int, path: str, request: bytes) -> bytes:
        if self.is_away:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, f"worker {index}")
        name = path.rpartition("/")[2]
        method = method_of(self.workers[index - 1], self.service, name)
        return (await method.call(method.read_request(request), None, Role.ADMIN)).SerializeToString()


def method_of(worker: Any, service: Any, name: str) -> ApiMethod:
    return ApiMethod(service.methods_by_name[name], worker, Calls(), logging.getLogger())


HOW: Final = {
    CLIENTS: ClientService.for_workers,
    TOKENS: TokenService.for_workers,
    NODE: NodeService.for_workers,
    TOPICS: TopicService.for_workers,
    SESSIONS: sessions_of_workers(NOTED.append),
}


def merged(workers: list[Any], name: str, service: Any = CLIENTS) -> tuple[ApiMethod, Others]:
    method = method_of(workers[0], service, name)
    others = Others(workers[1:], service)
    how: Any = HOW[service]
    merge(method, others, how[name])
    return method, others


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 8), st.integers(1, 5))
def test_pages_are_those_of_one_long_list(counts: list[int], page: int, size: int) -> None:
    lists = [[f"{worker}-{number}" for number in range(count)] for worker, count in enumerate(counts)]
    method, _ = merged([OneWorker(names) for names in lists], "List")
    request = admin_pb2.ListClientRequest(page=page, page_size=size)
    answer: Any = asyncio.run(method.call(request, None, Role.ADMIN))
    whole = [name for names in lists for name in names]
    offset = (max(page, 1) - 1) * size
    assert [client.client_id for client in answer.clients] == whole[offset : offset + size]
    assert answer.total_count == len(whole)


async def test_a_client_is_found_where_it_is() -> None:
    method, others = merged([OneWorker(["a"]), OneWorker(["b"]), OneWorker([])], "Get")
    for name in ("a", "b"):
        answer: Any = await method.call(admin_pb2.GetClientRequest(client_id=name), None, Role.ADMIN)
        assert answer.client.client_id == name
    with pytest.raises(ApiError) as fault:
        await method.call(admin_pb2.GetClientRequest(client_id="c"), None, Role.ADMIN)
    assert fault.value.code is grpc.StatusCode.NOT_FOUND
    others.is_away = True  # it may be there: not found would be wrong
    with pytest.raises(ApiError) as fault:
        await method.call(admin_pb2.GetClientRequest(client_id="b"), None, Role.ADMIN)
    assert fault.value.code is grpc.StatusCode.UNAVAILABLE


async def test_what_has_no_answer_is_done_at_each() -> None:
    workers = [OneWorker([]), OneWorker([])]
    method, _ = merged(workers, "Delete")
    await method.call(admin_pb2.DeleteClientRequest(client_id="a"), None, Role.ADMIN)
    assert [worker.deleted for worker in workers] == [["a"], ["a"]]


async def test_what_a_client_did_at_all_workers_is_one_history() -> None:
    method, _ = merged([OneWorker([], events=[7.5, 2.0]), OneWorker([], events=[9.0, 7.25])], "History")
    answer: Any = await method.call(admin_pb2.GetClientRequest(client_id="a"), None, Role.ADMIN)
    assert [float(event.text) for event in answer.events] == [9.0, 7.5, 7.25, 2.0]


async def test_a_token_that_is_deleted_counts_at_no_worker(tmp_path: Path) -> None:
    """Also where a worker has no API of its own."""
    path = tmp_path / "tokens"
    path.touch(0o600)
    guards = [ApiGuard(str(path)), ApiGuard(str(path)), ApiGuard("")]
    workers: list[Any] = [TokenService(guard) for guard in guards]
    create, _ = merged(workers, "Create", TOKENS)
    await create.call(admin_pb2.CreateTokenRequest(role="read", name="a"), None, Role.ADMIN)
    await create.call(admin_pb2.CreateTokenRequest(role="read", name="b"), None, Role.ADMIN)
    assert [guard.token_count for guard in guards] == [2, 2, 0]
    delete, _ = merged(workers, "Delete", TOKENS)
    await delete.call(admin_pb2.DeleteTokenRequest(name="a"), None, Role.ADMIN)
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
    answer: Any = await method.call(Empty(), None, Role.ADMIN)
    assert answer.clients_connected == 5
    assert list(answer.messages_received) == [11, 22, 33]
    assert dict(answer.dropped) == {"a": 3, "b": 4}
    assert answer.retained_messages == 5  # all workers have them


class Told:
    """A worker that answers with what it was told, and notes what it was asked."""

    def __init__(self, **answers: Message) -> None:
        self.answers = answers
        self.asked: list[Any] = []
        self.roles = dict.fromkeys(answers, Role.READ)

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        async def answer(request: Any, context: object) -> Message:
            self.asked.append(request)
            return self.answers[name]

        return answer


async def call(workers: list[Told], name: str, service: Any, request: Message) -> Any:
    method, _ = merged(workers, name, service)
    return await method.call(request, None, Role.ADMIN)


STATES: Final = ("serving", "draining", "drained")


@given(st.lists(st.tuples(st.sampled_from(STATES), st.integers(0, 9)), min_size=1, max_size=4))
def test_a_node_is_drained_when_all_its_workers_are(each: list[tuple[str, int]]) -> None:
    statuses = [
        DrainStatus(
            state=state, clients_left=left, sessions_left=left, since=timestamp(10.0 + left), node_name=str(left)
        )
        for state, left in each
    ]
    found = asyncio.run(call([Told(GetDrain=status) for status in statuses], "GetDrain", SESSIONS, Empty()))
    for state in ("serving", "drained"):
        assert (found.state == state) is all(one == state for one, _ in each)
    assert found.clients_left == sum(left for _, left in each)
    bound = max if found.state == "drained" else min
    assert found.since.seconds == bound(10 + left for _, left in each)


async def test_a_drain_is_divided_among_workers_and_refused_before_it_begins_where_one_is_away() -> None:
    workers = [Told(Drain=DrainStatus(state="draining"), GetDrain=DrainStatus(state="serving")) for _ in range(3)]
    NOTED.clear()
    await call(workers, "Drain", SESSIONS, DrainRequest(rate=500))
    assert NOTED == [[167, 167, 166]]
    rates = [[request.rate for request in worker.asked if isinstance(request, DrainRequest)] for worker in workers]
    assert rates == [[167], [167], [166]]
    method, others = merged(workers, "Drain", SESSIONS)
    others.is_away = True
    asked = len(workers[0].asked)
    with pytest.raises(ApiError) as fault:
        await method.call(DrainRequest(), None, Role.ADMIN)
    assert fault.value.code is grpc.StatusCode.UNAVAILABLE
    assert len(workers[0].asked) == asked
    others.is_away = False
    for rate in (RATE_MAX + 1, 2):  # at one a second for each of three workers it would be faster than asked
        with pytest.raises(ApiError) as fault:
            await method.call(DrainRequest(rate=rate), None, Role.ADMIN)
        assert f"rate is {rate}" in fault.value.text
    assert len(workers[0].asked) == asked


async def test_a_session_is_moved_by_the_worker_that_has_it() -> None:
    workers = [
        Told(GetSession=Session(state=state), Move=MoveResponse(node_name=f"by {state}"))
        for state in ("elsewhere", "unknown", "here")
    ]
    assert (await call(workers, "GetSession", SESSIONS, GetSessionRequest(client_id="c"))).state == "here"
    assert (await call(workers, "Move", SESSIONS, MoveRequest(client_id="c"))).node_name == "by here"
    assert (await call(workers[:2], "Move", SESSIONS, MoveRequest(client_id="c"))).node_name == "by elsewhere"


async def test_a_copy_is_whole_where_each_store_has_it() -> None:
    one, two = (
        Copies(
            wanted=2, whole=whole, keepers=[Keeper(node_name="a", whole=True), Keeper(node_name="b", whole=whole == 2)]
        )
        for whole in (2, 1)
    )
    found = await call([Told(GetCopies=one), Told(GetCopies=two)], "GetCopies", SESSIONS, Empty())
    assert (found.wanted, found.whole) == (2, 1)
    assert {keeper.node_name: keeper.whole for keeper in found.keepers} == {"a": True, "b": False}


async def test_receivers_are_those_of_all_workers_and_workers_are_no_other_nodes() -> None:
    def answer(name: str, client: str, others: list[str], has_session: bool) -> admin_pb2.ExplainTopicResponse:
        return admin_pb2.ExplainTopicResponse(
            node_name=name,
            receivers=[admin_pb2.TopicReceiver(client_id=client)],
            receivers_count=1,
            nodes=[admin_pb2.TopicNode(node_name=other) for other in others],
            groups=[admin_pb2.TopicGroup(group="$share/g/t", nodes=others)],
            has_session=has_session,
            publish=admin_pb2.Access(allowed=has_session, reason=name),
        )

    workers = [
        Told(Explain=answer("n", "a", ["n/1", "m"], False)),
        Told(Explain=answer("n/1", "b", ["n", "m"], True)),
    ]
    found = await call(workers, "Explain", TOPICS, admin_pb2.ExplainTopicRequest(topic_name="t"))
    assert [one.client_id for one in found.receivers] == ["a", "b"]
    assert (found.receivers_count, found.node_name) == (2, "n")
    assert [node.node_name for node in found.nodes] == ["m"]
    assert [(group.group, list(group.nodes)) for group in found.groups] == [("$share/g/t", ["m"])]
    assert (found.publish.allowed, found.publish.reason) == (True, "n/1")


async def test_the_busiest_topics_are_those_of_all_workers_together() -> None:
    def answer(**messages: int) -> admin_pb2.TrafficResponse:
        topics = [admin_pb2.TopicTraffic(topic_name=name, messages=count, bytes=1) for name, count in messages.items()]
        return admin_pb2.TrafficResponse(messages=sum(messages.values()), topics=topics, topics_count=len(topics))

    workers = [Told(Traffic=answer(a=5, b=4)), Told(Traffic=answer(c=6, b=3))]
    found = await call(workers, "Traffic", TOPICS, admin_pb2.TrafficRequest(limit=2))
    assert [(topic.topic_name, topic.messages, topic.bytes) for topic in found.topics] == [("b", 7, 2), ("c", 6, 1)]
    assert (found.messages, found.topics_count) == (18, 3)
    assert workers[1].asked[0].limit == 1000


async def test_what_workers_see_alike_is_one_alarm() -> None:
    seen = (["link a is down", "worker 1: it stops"], ["link a is down", "it stops", "no event stream to n2"])
    for is_away, expected in ((False, ["worker 1: no event stream to n2"]), (True, [])):
        workers = [
            Told(Alarms=admin_pb2.NodeAlarms(alarms=[admin_pb2.Alarm(level="warn", text=text) for text in texts]))
            for texts in seen
        ]
        method, others = merged(workers, "Alarms", NODE)
        others.is_away = is_away
        answer: Any = await method.call(Empty(), None, Role.ADMIN)
        assert [alarm.text for alarm in answer.alarms] == [*seen[0], *expected]
