"""The service EventLog: what the log has, raw blocks of it, and holds of groups of readers."""

# not a core: a service over gRPC
from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import grpc

from broker.api.errors import ApiError, invalid_argument
from broker.api.tokens import Role
from broker.errors import MqttError
from broker.event_log.faults import LogFault, OutOfRange, WrongLogId
from broker.event_log.holds import NAME_BYTES_MAX
from broker.event_log.log import EventLog
from broker.event_log.other_logs import TAG_STREAM, OtherLogs
from broker.event_log.pb.event_log_pb2 import (
    DamagedSegment,
    DescribeLogRequest,
    FindOffsetRequest,
    FindOffsetResponse,
    HoldLogRequest,
    HoldLogResponse,
    ListRecordsRequest,
    ListRecordsResponse,
    LogBatch,
    LogDescription,
    LogGap,
    LogHold,
    LogMember,
    ParentLog,
    ReadLogRequest,
    ReadLogResponse,
    ReleaseLogRequest,
    ReleaseLogResponse,
)
from broker.event_log.pb.event_log_pb2_grpc import EventLogServicer
from broker.event_log.readers import ANSWER_BYTES_MAX
from broker.event_log.record_pages import page_of_records
from broker.routing.names import check_topic_filter, parse_filter

if TYPE_CHECKING:
    from broker.event_log.sink import Sink
    from broker.hooks import Members

DESCRIBE: Final = "event_log.Describe"
RECORDS: Final = "event_log.ListRecords"
TAG_ADDR: Final = "log_addr"  # HOST:PORT of the gRPC API of a member that keeps a log
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
BLOCKS_KEY: Final = bytes((ReadLogResponse.BLOCKS_FIELD_NUMBER << 3 | 2,))
FILTERS_MAX: Final = 1000  # of one request
ANSWERS_BYTES_MAX: Final = 2 * ANSWER_BYTES_MAX
"""Bytes of answers of Read that are being read from disk or sent. A call that would pass it waits for its turn."""
ANSWER_SECONDS_MAX: Final = 20.0
"""Longest wait of a call for its turn. Then it fails: those before it do not take their answers."""


class EventLogService(EventLogServicer):
    """`members` are the other nodes; their tag TAG_ADDR says who keeps a log. `sink` has the batches of pipelines; None on a
    node without an API."""

    roles: Final = {
        "Describe": Role.READ,
        "FindOffset": Role.READ,
        "ListRecords": Role.WRITE,  # they have payloads
        "Read": Role.WRITE,
        "Hold": Role.WRITE,
        "Release": Role.WRITE,
    }

    def __init__(self, log: EventLog, members: Members) -> None:
        self._log = log
        self._members = members
        self.answers = Answers()
        self.sink: Sink | None = None
        self.others = OtherLogs(log.node, members)
        self.others.serve(DESCRIBE, DescribeLogRequest, self.Describe)
        self.others.serve(RECORDS, ListRecordsRequest, self.ListRecords)

    async def Describe(self, request: DescribeLogRequest, context: object) -> LogDescription:
        if self.others.has(request.node):
            return await self.others.ask(DESCRIBE, request, LogDescription)
        log = self._log
        first_time_ns, last_time_ns = log.times_ns
        return LogDescription(
            node=log.node,
            log_id=log.log_id,
            first_offset=log.first_offset,
            next_offset=log.next_offset,
            first_time_ns=first_time_ns,
            last_time_ns=last_time_ns,
            bytes=log.bytes,
            segments=len(log.segments),
            stopped=log.writer.stopped,
            holds_released=log.holds_released,
            holds=[
                LogHold(group=hold.group, query=hold.query, offset=hold.offset, held_at_ns=hold.held_at_ns)
                for hold in log.holds.all()
            ],
            damaged=[
                DamagedSegment(file=damaged.file, first_offset=damaged.first_offset, fault=damaged.fault)
                for damaged in log.damaged
            ],
            members=[
                LogMember(
                    node=other.name,
                    status=other.status,
                    api_addr=other.tags.get(TAG_ADDR, ""),
                    has_log=TAG_STREAM in other.tags,
                )
                for other in self._members.others()
            ],
            now_ns=time.time_ns(),
            records_lost=log.appender.lost,
            parents=[ParentLog(log_id=parent.log_id, end_offset=parent.end_offset) for parent in log.lineage.parents],
            gaps=[LogGap(first_offset=first, end_offset=end) for first, end in log.gaps],
            batches=[] if self.sink is None else batches_shown(self.sink),
        )

    async def Read(  # type: ignore[override]  # an answer of broker.api.method
        self, request: ReadLogRequest, context: grpc.aio.ServicerContext[ReadLogRequest, ReadLogResponse]
    ) -> EncodedRead:
        filters = checked_filters(list(request.topics))
        bytes_max = min(request.max_bytes or ANSWER_BYTES_MAX, ANSWER_BYTES_MAX)
        answer = await self.answers.begin(bytes_max)
        context.add_done_callback(lambda _: answer.end())  # type: ignore[arg-type]  # the stub takes no function
        try:
            encoded, _ = await self._log.readers.read_as(
                request.log_id, request.start_offset, request.end_offset, bytes_max, filters, encode_read
            )
        except LogFault as fault:
            raise as_error(fault) from fault
        answer.resize(len(encoded))
        return EncodedRead(encoded)

    async def FindOffset(self, request: FindOffsetRequest, context: object) -> FindOffsetResponse:
        try:
            return FindOffsetResponse(offset=await self._log.readers.find(request.log_id, request.time_ns))
        except LogFault as fault:
            raise as_error(fault) from fault

    async def ListRecords(self, request: ListRecordsRequest, context: object) -> ListRecordsResponse:
        # Judged here: another member that refuses a call cannot say with which code.
        if request.from_offset and request.time:
            raise invalid_argument("from_offset and time both say where to begin; give one")
        time_ns = checked_time(request.time) if request.time else None
        filters = checked_filters([request.topic_filter] if request.topic_filter else [])
        if self.others.has(request.node):
            return await self.others.ask(RECORDS, request, ListRecordsResponse)
        answer = await self.answers.begin(ANSWER_BYTES_MAX)
        try:
            start = request.from_offset
            if time_ns is not None:
                start = await self._log.readers.find(self._log.log_id, time_ns)
            return await page_of_records(self._log, start, filters, request.limit)
        except LogFault as fault:
            raise as_error(fault) from fault
        finally:
            answer.end()

    async def Hold(self, request: HoldLogRequest, context: object) -> HoldLogResponse:
        group, query = checked_name("group", request.group), checked_name("query", request.query)
        try:
            await self._log.hold(group, query, request.log_id, request.offset)
        except LogFault as fault:
            raise as_error(fault, grpc.StatusCode.RESOURCE_EXHAUSTED) from fault
        return HoldLogResponse()

    async def Release(self, request: ReleaseLogRequest, context: object) -> ReleaseLogResponse:
        return ReleaseLogResponse(released=await self._log.release(checked_name("group", request.group), request.query))


def batches_shown(sink: Sink) -> list[LogBatch]:
    """The last batch of each query, those that are being committed first."""
    running = [LogBatch(query=query, batch=number) for query, number in sink.running.items()]
    ended = [
        LogBatch(query=query, batch=batch.number, rows=batch.rows, committed_at_ns=batch.committed_at_ns)
        for query, batch in reversed(sink.batches.items())
        if query not in sink.running
    ]
    return running + ended


class EncodedRead:
    """A ReadLogResponse that is encoded already."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def SerializeToString(self) -> bytes:
        return self._encoded


def encode_read(blocks: list[memoryview], first_offset: int, next_offset: int) -> bytes:
    """A ReadLogResponse, with one copy of its blocks. Protobuf makes two, in new memory each time, which costs the node as
    much as all else that it does for a large answer."""
    size = sum(map(len, blocks))
    rest = ReadLogResponse(first_offset=first_offset, next_offset=next_offset).SerializeToString()
    return b"".join((BLOCKS_KEY, _varint(size), *blocks, rest))


def _varint(value: int) -> bytes:
    """A whole number as protobuf encodes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Answers:
    """The answers of Read on their way, within ANSWERS_BYTES_MAX. Calls get their turn in the order in which they came.

    `refused` counts those that waited too long.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.refused = 0
        self._turn = asyncio.Lock()  # wakes its waiters in their order
        self._has_room = asyncio.Event()

    async def begin(self, size: int) -> Answer:
        """Wait until there is room for an answer of this size. Raises ApiError after ANSWER_SECONDS_MAX."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX), self._turn:
                while self.bytes and self.bytes + size > ANSWERS_BYTES_MAX:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            self.refused += 1
            text = f"{self.bytes} bytes of other answers are on their way, and their clients do not take them"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text) from None
        self.bytes += size
        return Answer(self, size)

    def add(self, size: int) -> None:
        self.bytes += size
        self._has_room.set()


class Answer:
    """One answer of Read: its bytes count until `end`."""

    def __init__(self, answers: Answers, size: int) -> None:
        self._answers = answers
        self._size = size

    def resize(self, size: int) -> None:
        self._answers.add(size - self._size)
        self._size = size

    def end(self) -> None:
        """The call is over. A second call does nothing."""
        self.resize(0)


def as_error(fault: LogFault, other: grpc.StatusCode = grpc.StatusCode.DATA_LOSS) -> ApiError:
    """`other`: the code of faults without one of their own."""
    if isinstance(fault, WrongLogId):
        return ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(fault))
    if isinstance(fault, OutOfRange):
        return ApiError(grpc.StatusCode.OUT_OF_RANGE, str(fault))
    return ApiError(other, str(fault))


def checked_filters(topics: list[str]) -> list[bytes]:
    """Raises ApiError that names the filter."""
    if len(topics) > FILTERS_MAX:
        raise invalid_argument(f"topics has {len(topics)} filters, may have at most {FILTERS_MAX}")
    filters = [text.encode() for text in topics]
    for index, topic_filter in enumerate(filters):
        try:
            check_topic_filter(topic_filter)
            share_name, _ = parse_filter(topic_filter)
        except MqttError as error:
            raise invalid_argument(f"topics[{index}]: {error.text}") from None
        if share_name:
            raise invalid_argument(f"topics[{index}]: {topics[index]} is a shared filter; leave out $share/NAME/")
    return filters


def checked_time(text: str) -> int:
    """Nanoseconds of an instant. Raises ApiError."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise invalid_argument(f'time: "{text[:40]}" is no instant with its zone, such as 2026-11-26T10:00:00Z')
    return (at - EPOCH) // MICROSECOND * 1000


def checked_name(field: str, name: str) -> str:
    """Raises ApiError that names the field."""
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES_MAX:
        raise invalid_argument(f"{field} has {size} bytes; it is a name of 1 to {NAME_BYTES_MAX} bytes")
    return name
