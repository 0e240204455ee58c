"""The service EventLog over gRPC and REST, with a real log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from api_calls import Rest
from broker.api.errors import ApiError
from broker.api.server import ApiServer
from broker.event_log import service as module
from broker.event_log.index import Segment
from broker.event_log.lineage import Lineage
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.pb.event_log_pb2_grpc import EventLogStub
from broker.event_log.segment import segment_name
from broker.event_log.service import Answers, EventLogService, encode_read
from event_log_reader import AppendingLog, Clock, MakeLog
from waiting import eventually

ANSWER_OPTIONS = (("grpc.max_receive_message_length", -1),)
MIB = 2**20


@pytest.fixture
async def stub(api: ApiServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(api.grpc_addresses[0], options=ANSWER_OPTIONS) as channel:
        yield EventLogStub(channel)


async def fill(log: AppendingLog, count: int, payload: bytes = b"x", topic: str = "a/b") -> None:
    for _ in range(count):
        log.append(topic.encode(), payload, 1, client_id="c")
        await log.flush()  # a block each


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_describe_tells_the_log_and_the_other_members(
    stub: Any, rest: Rest, log: AppendingLog, clock: Clock
) -> None:
    empty = await stub.Describe(pb.DescribeLogRequest())
    assert (empty.first_offset, empty.next_offset, empty.first_time_ns, empty.last_time_ns) == (0, 0, 0, 0)
    await fill(log, 2)
    clock.advance(1.0)
    await fill(log, 1)
    await log.hold("reports", "q1", log.log_id, 1)
    log.appender.lost = 5
    shown = await stub.Describe(pb.DescribeLogRequest())
    assert (shown.node, shown.log_id, shown.first_offset, shown.next_offset) == ("a", log.log_id, 0, 3)
    assert (shown.first_time_ns, shown.last_time_ns) == (clock.now_ns - 10**9, clock.now_ns)
    assert shown.bytes == log.bytes > 0
    assert (shown.segments, shown.stopped, shown.holds_released, shown.records_lost) == (1, "", 0, 5)
    (hold,) = shown.holds
    assert (hold.group, hold.query, hold.offset, hold.held_at_ns) == ("reports", "q1", 1, clock.now_ns)
    assert [(member.node, member.status, member.api_addr) for member in shown.members] == [
        ("b", "ALIVE", "192.0.2.1:8084"),
        ("go", "FAILED", ""),
    ]
    assert shown.now_ns > 0
    answer = await rest.get("/v1/event_log")
    assert (answer["node"], answer["next_offset"], len(answer["members"])) == ("a", "3", 2)


async def test_the_offset_of_an_instant(stub: Any, rest: Rest, log: AppendingLog, clock: Clock) -> None:
    await fill(log, 2)
    clock.advance(1.0)
    await fill(log, 1)
    found = await stub.FindOffset(pb.FindOffsetRequest(log_id=log.log_id, time_ns=clock.now_ns - 5))
    assert found.offset == 2
    answer = await rest.get(f"/v1/event_log/offset?log_id={log.log_id}&time_ns={clock.now_ns + 1}")
    assert answer == {"offset": "3"}


async def test_holds_are_made_and_released(stub: Any, rest: Rest, log: AppendingLog) -> None:
    await fill(log, 3)
    for query, offset in (("q1", 1), ("q2", 2)):
        body = {"group": "g", "query": query, "log_id": log.log_id, "offset": offset}
        assert await rest.post("/v1/event_log/hold", body) == {}
    await stub.Hold(pb.HoldLogRequest(group="other", query="q", log_id=log.log_id, offset=3))
    assert [(hold.group, hold.query, hold.offset) for hold in log.holds.all()] == [
        ("g", "q1", 1),
        ("g", "q2", 2),
        ("other", "q", 3),
    ]
    assert await rest.post("/v1/event_log/release", {"group": "g"}) == {"released": 2}
    assert (await stub.Release(pb.ReleaseLogRequest(group="other", query="q"))).released == 1
    assert log.holds.all() == []


@pytest.mark.parametrize(
    ("method", "fields", "code", "text"),
    [
        (
            "Read",
            {"log_id": "other", "end_offset": 1},
            "FAILED_PRECONDITION",
            "the log of node a has the id .*, not other",
        ),
        ("Read", {"start_offset": 1, "end_offset": 4}, "OUT_OF_RANGE", "offsets 1 to 4 .* has 0 to 3"),
        ("Read", {"start_offset": 2, "end_offset": 1}, "OUT_OF_RANGE", "offsets 2 to 1"),
        ("Read", {"end_offset": 1, "topics": ["a", "#/b"]}, "INVALID_ARGUMENT", r"topics\[1\]: topic filter '#/b'"),
        ("Read", {"end_offset": 1, "topics": ["$share/g/a"]}, "INVALID_ARGUMENT", r"leave out \$share/NAME/"),
        ("Read", {"end_offset": 1, "topics": ["a"] * 1_001}, "INVALID_ARGUMENT", "topics has 1001 filters"),
        ("FindOffset", {"log_id": "other"}, "FAILED_PRECONDITION", "not other"),
        ("Hold", {"group": "", "query": "q"}, "INVALID_ARGUMENT", "group has 0 bytes"),
        ("Hold", {"group": "g", "query": "x" * 300}, "INVALID_ARGUMENT", "query has 300 bytes"),
        ("Hold", {"group": "g", "query": "q", "offset": 4}, "OUT_OF_RANGE", "offsets 4 .* has 0 to 3"),
        ("Hold", {"group": "g", "query": "q", "log_id": "other"}, "FAILED_PRECONDITION", "not other"),
        ("Release", {"group": ""}, "INVALID_ARGUMENT", "group has 0 bytes"),
    ],
)
async def test_errors_of_requests_name_the_remedy(
    stub: Any, log: AppendingLog, method: str, fields: dict[str, Any], code: str, text: str
) -> None:
    await fill(log, 3)
    kind = {"Read": "ReadLog", "FindOffset": "FindOffset", "Hold": "HoldLog", "Release": "ReleaseLog"}[method]
    request_class = getattr(pb, f"{kind}Request")
    if "log_id" in request_class.DESCRIPTOR.fields_by_name:
        fields = {"log_id": log.log_id} | fields
    found, details = await refused(getattr(stub, method)(request_class(**fields)))
    assert found.name == code
    with pytest.raises(ValueError, match=text):
        raise ValueError(details)


async def test_an_answer_counts_until_its_call_is_over(stub: Any, service: EventLogService, log: AppendingLog) -> None:
    await fill(log, 1, b"x" * 1_000)
    for _ in range(3):
        await stub.Read(pb.ReadLogRequest(log_id=log.log_id, start_offset=0, end_offset=1))
        await refused(stub.Read(pb.ReadLogRequest(log_id="other")))
    await eventually(lambda: service.answers.bytes == 0, "the answers are taken")


async def test_calls_that_are_given_up_leave_no_bytes_behind(
    stub: Any, service: EventLogService, log: AppendingLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWERS_BYTES_MAX", 8_000)
    await fill(log, 20, b"x" * 1_000)
    request = pb.ReadLogRequest(log_id=log.log_id, start_offset=0, end_offset=20, max_bytes=4_000)
    for turns in range(60):
        calls = [asyncio.ensure_future(stub.Read(request)) for _ in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert (await stub.Read(request)).blocks
    await eventually(lambda: service.answers.bytes == 0, "all calls are over")


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3 * MIB])
@pytest.mark.parametrize("next_offset", [0, 1, 2**63])
def test_an_encoded_answer_is_that_of_protobuf(size: int, next_offset: int) -> None:
    encoded = encode_read([memoryview(b"b" * size)], 5, next_offset)
    assert pb.ReadLogResponse.FromString(encoded) == pb.ReadLogResponse(
        blocks=b"b" * size, first_offset=5, next_offset=next_offset
    )


async def test_what_is_lost_is_told(make_log: MakeLog, stub: Any, log: AppendingLog, tmp_path: Path) -> None:
    await fill(log, 10)
    log.lineage = Lineage("old").child(log.log_id, 6)
    path = tmp_path / "log" / segment_name(0)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    request = pb.ReadLogRequest(log_id=log.log_id, start_offset=0, end_offset=10)
    assert (await refused(stub.Read(request)))[0] is grpc.StatusCode.OUT_OF_RANGE
    log.segments.insert(0, Segment(0, 3, 1, 1, 100))
    shown = await stub.Describe(pb.DescribeLogRequest())
    assert [(gap.first_offset, gap.end_offset) for gap in shown.gaps] == [(3, 10)]
    assert [(parent.log_id, parent.end_offset) for parent in shown.parents] == [("old", 6)]
    assert [(damaged.first_offset, bool(damaged.file)) for damaged in shown.damaged] == [(0, True)]
    answer = await stub.Read(pb.ReadLogRequest(log_id="old", start_offset=4, end_offset=6))
    assert (answer.first_offset, answer.next_offset, answer.blocks) == (10, 10, b"")
    code, text = await refused(stub.Read(pb.ReadLogRequest(log_id="old", start_offset=4, end_offset=7)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "old" in text
    assert "offset 6" in text


async def test_answers_wait_for_room_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWERS_BYTES_MAX", 100)
    answers = Answers()
    first = await answers.begin(60)
    done: list[int] = []

    async def begin(size: int) -> None:
        await answers.begin(size)
        done.append(size)

    waiting = [asyncio.create_task(begin(50)), asyncio.create_task(begin(30))]
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == [], "the small one does not pass the large one"
    first.resize(10)
    await asyncio.gather(*waiting)
    assert done == [50, 30]
    assert answers.bytes == 90
    first.end()
    first.end()
    assert answers.bytes == 80


async def test_an_answer_of_any_size_has_room_alone() -> None:
    answers = Answers()
    answer = await answers.begin(module.ANSWERS_BYTES_MAX * 2)
    answer.end()
    assert answers.bytes == 0


async def test_a_call_fails_when_others_do_not_take_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.01)
    answers = Answers()
    await answers.begin(module.ANSWERS_BYTES_MAX)
    with pytest.raises(ApiError, match="other answers are on their way"):
        await answers.begin(1)
