"""The service EventLogSink: checks rows and names, and calls the sink."""

from __future__ import annotations

import errno
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

import grpc

from broker.api.errors import ApiError, invalid_argument
from broker.api.long_calls import LongCalls, Steps
from broker.event_log.faults import LogFault
from broker.event_log.pb.event_log_pb2 import (
    AbortRequest,
    AbortResponse,
    CommitRequest,
    CommitResponse,
    StageRequest,
    StageResponse,
)
from broker.event_log.pb.event_log_pb2_grpc import EventLogSinkServicer
from broker.event_log.sink import Sink
from broker.event_log.staged_rows import RowFault, RowLimits, encode_frame, encode_row
from broker.event_log.staging import QUERY, QUERY_FORM, STAGED_FILES_MAX, Partition, StagingFault, StagingFull

if TYPE_CHECKING:
    from broker.server.host import Host

ROWS_MAX: Final = 100_000  # of one request
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Result = TypeVar("Result")


class EventLogSinkService(EventLogSinkServicer):
    """`refused` counts calls that met a bound."""

    def __init__(self, server: Host, sink: Sink, long_calls: LongCalls) -> None:
        self._server = server
        self._sink = sink
        self._long_calls = long_calls
        self.refused = 0

    async def Stage(self, request: StageRequest, context: object) -> StageResponse:
        query = checked_query(request.query)
        mqtt = self._server.settings.mqtt
        limits = RowLimits(mqtt.max_packet_size, mqtt.max_topic_levels, mqtt.retain_available)
        frame = await self._long_calls.run(frame_of(request, limits))
        partition = Partition(request.partition, request.attempt, len(request.rows))
        staging = self._sink.stage(query, request.batch, partition, request.position, frame)
        return StageResponse(rows=await self._answer(staging))

    async def Commit(self, request: CommitRequest, context: object) -> CommitResponse:
        query = checked_query(request.query)
        rows, was_committed = await self._answer(self._sink.commit(query, request.batch, checked_partitions(request)))
        return CommitResponse(rows=rows, was_committed=was_committed)

    async def Abort(self, request: AbortRequest, context: object) -> AbortResponse:
        await self._answer(self._sink.abort(checked_query(request.query), request.batch))
        return AbortResponse()

    async def _answer(self, call: Awaitable[Result]) -> Result:
        """The result of a call of the sink. Raises ApiError."""
        try:
            return await call
        except StagingFull as fault:
            self.refused += 1
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(fault)) from None
        except StagingFault as fault:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(fault)) from None
        except LogFault as fault:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, str(fault)) from None
        except OSError as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.errno in NO_SPACE else grpc.StatusCode.UNAVAILABLE
            raise ApiError(code, f"the folder of the event log: {error.strerror}") from error


def frame_of(request: StageRequest, limits: RowLimits) -> Steps[bytes]:
    """The rows of a request as they are staged. Raises ApiError that names row and field."""
    if len(request.rows) > ROWS_MAX:
        raise invalid_argument(f"rows has {len(request.rows)} entries, may have at most {ROWS_MAX}")
    rows: list[bytes] = []
    for index, row in enumerate(request.rows):
        pairs = [(pair.key, pair.value) for pair in row.properties]
        try:
            rows.append(encode_row(request.query, row.topic, row.payload, row.qos, row.retain, pairs, limits))
        except RowFault as fault:
            place = f"row {request.position + index} of partition {request.partition}"
            raise invalid_argument(f"{place}: {fault}") from None
        yield
    return encode_frame(rows)


def checked_query(query: str) -> str:
    if not QUERY.fullmatch(query):
        raise invalid_argument(f"query is {query[:150]!r}; it is {QUERY_FORM}")
    return query


def checked_partitions(request: CommitRequest) -> list[Partition]:
    if len(request.partitions) > STAGED_FILES_MAX:
        raise invalid_argument(f"partitions has {len(request.partitions)} entries, may have at most {STAGED_FILES_MAX}")
    partitions = [Partition(one.partition, one.attempt, one.rows) for one in request.partitions]
    numbers: set[int] = set()
    for one in partitions:
        if one.partition in numbers:
            raise invalid_argument(f"partitions names partition {one.partition} twice; one attempt of it counts")
        numbers.add(one.partition)
    return partitions
