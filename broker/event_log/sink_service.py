"""The service EventLogSink: checks rows and names, and calls the sink."""

# not a core: a service over gRPC
from __future__ import annotations

import errno
from collections.abc import Awaitable
from typing import Final, TypeVar

import grpc

from broker.api.errors import ApiError, invalid_argument
from broker.api.tokens import Role
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
from broker.event_log.records import BlockFault
from broker.event_log.sink import Sink
from broker.event_log.staged_files import STAGED_FILES_MAX, RefusedRow, StagingFault, StagingFull
from broker.event_log.staging import QUERY, QUERY_FORM, Partition

NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Result = TypeVar("Result")


class EventLogSinkService(EventLogSinkServicer):
    """`refused` counts calls that met a bound."""

    roles: Final = {"Stage": Role.WRITE, "Commit": Role.WRITE, "Abort": Role.WRITE}

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.refused = 0

    async def Stage(self, request: StageRequest, context: object) -> StageResponse:
        query = checked_query(request.query)
        staging = self._sink.stage(
            query, request.batch, request.partition, request.attempt, request.position, request.blocks
        )
        try:
            rows, size = await self._answer(staging)
        except RefusedRow as refused:
            raise invalid_argument(f"row {refused.row} of partition {request.partition}: {refused}") from None
        except BlockFault as fault:
            raise invalid_argument(f"blocks: {fault}") from None
        return StageResponse(rows=rows, bytes=size)

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
