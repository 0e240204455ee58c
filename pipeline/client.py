"""Synchronous gRPC client of one node's services EventLog and EventLogSink (proto/event_log.proto).

A request that finds no node is tried again until `patience` seconds have passed. All requests may be repeated: reads change
nothing, a hold moves forward only, staged rows have positions, and a commit happens once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import grpc

from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.pb.event_log_pb2_grpc import EventLogSinkStub, EventLogStub
from gmqttctl.channel import away_reason, open_channel
from gmqttctl.connection import Connection
from gmqttctl.errors import NodeError
from pipeline.errors import NodeAway, NoEventLog, OutOfRange, WrongLog

ANSWER_SECONDS: Final = 30.0  # of one request; a commit has longer
COMMIT_SECONDS: Final = 600.0
READ_BYTES: Final = 4 << 20  # of one answer; a node gives no more
STAGE_BYTES: Final = 2 << 20  # of one request of rows; a node takes requests of 4 MiB
RETRY_SECONDS: Final = 0.1  # before the first retry; doubled up to RETRY_SECONDS_MAX
RETRY_SECONDS_MAX: Final = 2.0
# CANCELLED: a node that stops cancels its calls.
_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_TRIED_AGAIN: Final = (*_AWAY, grpc.StatusCode.RESOURCE_EXHAUSTED)  # the last: too many answers are on their way
_REFUSED: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_ERRORS: Final[dict[grpc.StatusCode, type[NodeError]]] = {
    grpc.StatusCode.FAILED_PRECONDITION: WrongLog,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.UNIMPLEMENTED: NoEventLog,
}


def stage_requests(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks in portions of STAGE_BYTES at most: whole blocks, or parts of a large one."""
    portion: list[bytes] = []
    size = 0
    for block in blocks:
        if portion and size + len(block) > STAGE_BYTES:
            yield b"".join(portion)
            portion, size = [], 0
        if len(block) > STAGE_BYTES:
            for at in range(0, len(block), STAGE_BYTES):
                yield block[at : at + STAGE_BYTES]
        else:
            portion.append(block)
            size += len(block)
    if portion:
        yield b"".join(portion)


class NodeClient:
    """node      its name in errors; the address while that is not known
    patience  seconds to try again while the node does not answer
    """

    def __init__(self, address: str, connection: Connection, node: str = "", patience: float = 0.0) -> None:
        self.address = address
        self.node = node or address
        self._patience = patience
        self._channel = open_channel(address, connection)
        self._log = EventLogStub(self._channel)
        self._sink = EventLogSinkStub(self._channel)
        self._metadata = connection.metadata

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    # --- EventLog ---

    def describe(self, seconds: float = ANSWER_SECONDS) -> pb.LogDescription:
        """The node's log and the other members. Raises NodeError."""
        found: pb.LogDescription = self._call(self._log.Describe, pb.DescribeLogRequest(), seconds)
        return found

    def read(
        self,
        log_id: str,
        start: int,
        end: int,
        topics: Sequence[str] = (),
        max_bytes: int = READ_BYTES,
        lost: Callable[[int, int], None] = lambda first, end: None,
    ) -> Iterator[tuple[int, int, bytes]]:
        """(offset that was asked for, offset that comes next, blocks) until `end`. While one answer is used the next one
        is under way. `lost` is called with each range that the log has lost. Raises NodeError."""
        following, asked, blocks = start, start, b""
        while following < end:
            request = pb.ReadLogRequest(
                log_id=log_id, start_offset=following, end_offset=end, max_bytes=max_bytes, topics=topics
            )
            answer = self._begin(self._log.Read, request)
            if following > start:
                yield asked, following, blocks
            found = self._finish(self._log.Read, request, answer)
            asked, following, blocks = following, found.next_offset, found.blocks
            if asked < found.first_offset:
                lost(asked, min(found.first_offset, end))
            if following <= asked:
                raise NodeError(self.node, f"gave offset {following} as the next one of {asked}")
        if following > start:
            yield asked, following, blocks

    def find(self, log_id: str, time_ns: int) -> int:
        """The offset of the first record of this time or later. Raises NodeError."""
        found = self._call(self._log.FindOffset, pb.FindOffsetRequest(log_id=log_id, time_ns=time_ns))
        return int(found.offset)

    def hold(self, group: str, query: str, log_id: str, offset: int) -> None:
        """Keep the records from `offset` on. Raises NodeError."""
        self._call(self._log.Hold, pb.HoldLogRequest(group=group, query=query, log_id=log_id, offset=offset))

    def release(self, group: str, query: str = "") -> int:
        """End the holds of a query, or of a whole group; their number. Raises NodeError."""
        found = self._call(self._log.Release, pb.ReleaseLogRequest(group=group, query=query))
        return int(found.released)

    # --- EventLogSink ---

    def stage(self, query: str, batch: int, partition: int, attempt: int, blocks: Iterable[bytes]) -> None:
        """Keep blocks of rows on the node's disk. While one request is answered the next one is made. Raises NodeError."""
        position = 0
        request: pb.StageRequest | None = None
        answer: Any = None
        for data in stage_requests(blocks):
            if request is not None:
                self._staged(request, answer)
            request = pb.StageRequest(
                query=query, batch=batch, partition=partition, attempt=attempt, position=position, blocks=data
            )
            answer = self._begin(self._sink.Stage, request)
            position += len(data)
        if request is not None:
            self._staged(request, answer)

    def _staged(self, request: pb.StageRequest, answer: Any) -> None:
        with self._sink_errors():
            self._finish(self._sink.Stage, request, answer)

    def commit(self, request: pb.CommitRequest) -> pb.CommitResponse:
        """Publish what was staged, once. Raises NodeError."""
        with self._sink_errors():
            found: pb.CommitResponse = self._call(self._sink.Commit, request, COMMIT_SECONDS)
            return found

    def abort(self, query: str, batch: int) -> None:
        """Drop what was staged. Raises NodeError."""
        with self._sink_errors():
            self._call(self._sink.Abort, pb.AbortRequest(query=query, batch=batch))

    @contextmanager
    def _sink_errors(self) -> Iterator[None]:
        """The codes of a log that cannot be read have another meaning there."""
        try:
            yield
        except (WrongLog, OutOfRange) as error:
            raise NodeError(self.node, error.text) from error

    # --- requests ---

    def _begin(self, method: Any, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
        return method.future(request, timeout=seconds, metadata=self._metadata)

    def _call(self, method: Any, request: Any, seconds: float = ANSWER_SECONDS) -> Any:
        return self._finish(method, request, self._begin(method, request, seconds), seconds)

    def _finish(self, method: Any, request: Any, answer: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """The answer; asks again while the node does not answer and patience lasts."""
        until = time.monotonic() + self._patience
        pause = RETRY_SECONDS
        while True:
            try:
                return answer.result()
            except grpc.RpcError as error:
                code, text = error.code(), error.details() or ""
                if code not in _TRIED_AGAIN or time.monotonic() + pause > until:
                    raise self._fault(code, text) from error
            time.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
            answer = self._begin(method, request, seconds)

    def _fault(self, code: grpc.StatusCode, text: str) -> NodeError:
        if code in _AWAY:
            tried = f", asked again for {self._patience:g} s" if self._patience else ""
            return NodeAway(self.node, f"does not answer at {self.address}{tried}: {away_reason(text)}")
        if code is grpc.StatusCode.UNIMPLEMENTED:
            at = "" if self.address == self.node else f" at {self.address}"
            return NoEventLog(self.node, f"has no event log{at}; turn its plugin event_log on")
        if code in _REFUSED:
            text = f"refuses what option token gives: {text}"
        return _ERRORS.get(code, NodeError)(self.node, f"{text} ({code.name} at {self.address})")
