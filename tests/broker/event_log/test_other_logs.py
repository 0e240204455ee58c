"""The log of another member, asked for at this node: what it has, and its records."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from broker.api.errors import ApiError
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.service import DESCRIBE, EventLogService
from event_log_reader import MakeLog
from linked_members import Linked

Services = dict[str, EventLogService]


@pytest.fixture
async def members() -> dict[str, Linked]:
    return {}


@pytest.fixture
async def services(make_log: MakeLog, members: dict[str, Linked], tmp_path: Path) -> Services:
    """Of n1 and n2, with as many records as the number says; their payloads are the names of the nodes."""
    found: Services = {}
    for count, name in ((1, "n1"), (2, "n2")):
        log = await make_log(name, dir=str(tmp_path / name))
        for number in range(count):
            log.append(b"t/%d" % number, name.encode(), 0)
        await log.flush()
        found[name] = EventLogService(log, Linked(name, members))
    return found


async def described(service: EventLogService, node: str) -> pb.LogDescription:
    return await service.Describe(pb.DescribeLogRequest(node=node), None)


async def test_each_member_tells_of_each_log(services: Services) -> None:
    for service in services.values():
        for name, count in (("n1", 1), ("n2", 2)):
            found = await described(service, name)
            assert (found.node, found.next_offset) == (name, count)
            assert [(member.node, member.has_log) for member in found.members] == [
                ("n2" if name == "n1" else "n1", True)
            ]
            records = await service.ListRecords(pb.ListRecordsRequest(node=name), None)
            assert [record.payload for record in records.records] == [name] * count
    own = await described(services["n1"], "")
    assert own.node == "n1"
    asked = pb.ListRecordsRequest(node="n2", topic_filter="t/1", limit=5)
    assert [record.topic_name for record in (await services["n1"].ListRecords(asked, None)).records] == ["t/1"]


async def test_faults_name_what_is_wrong(services: Services, members: dict[str, Linked]) -> None:
    with pytest.raises(ApiError, match='no member "n3"') as fault:
        await described(services["n1"], "n3")
    assert fault.value.code is grpc.StatusCode.NOT_FOUND
    for named, wrong in (
        ("yesterday", pb.ListRecordsRequest(node="n2", time="yesterday")),
        ("from_offset and time", pb.ListRecordsRequest(node="n2", time="2026-11-26T10:00:00Z", from_offset=1)),
        ("topics", pb.ListRecordsRequest(node="n2", topic_filter="a/#/b")),
    ):
        with pytest.raises(ApiError, match=named) as fault:
            await services["n1"].ListRecords(wrong, None)
        assert fault.value.code is grpc.StatusCode.INVALID_ARGUMENT
    members["n1"].answers[DESCRIBE] = b"\xff"
    with pytest.raises(ApiError) as fault:
        await described(services["n1"], "n2")
    assert fault.value.code is grpc.StatusCode.UNAVAILABLE
