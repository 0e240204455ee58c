"""A node with an event log, in this process: the services of proto/event_log.proto over blocks in memory.

A test decides what the node does: it is away or back, loses its log, forgets records, has members without a log.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from itertools import pairwise
from threading import Event
from typing import Any

import grpc

from broker.event_log.block import BlockBuilder, read_header
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.pb.event_log_pb2_grpc import (
    EventLogServicer,
    EventLogSinkServicer,
    add_EventLogServicer_to_server,
    add_EventLogSinkServicer_to_server,
)
from broker.event_log.records import Record, records
from broker.routing.trie import Trie

TIME = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
Row = tuple[str, bytes]


class EventLogNode(EventLogServicer, EventLogSinkServicer):
    """held   (group, query) -> offset
    reads  requests of Read, in order; `second_read` is set by the second one
    fail   status codes that the next calls fail with; fail_holds, fail_commits: those of Hold and Commit
    published  (query, batch) -> rows
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.log_id = str(uuid.uuid4())
        self.parents: list[pb.ParentLog] = []
        self.members: list[pb.LogMember] = []
        self.held: dict[tuple[str, str], int] = {}
        self.records_lost = 0
        self.reads: list[pb.ReadLogRequest] = []
        self.second_read = Event()
        self.metadata: list[dict[str, str]] = []
        self.fail: list[grpc.StatusCode] = []
        self.fail_holds: list[grpc.StatusCode] = []
        self.fail_commits: list[grpc.StatusCode] = []
        self.staged: dict[tuple[str, int], dict[tuple[int, int], bytes]] = {}
        self.published: dict[tuple[str, int], list[tuple[str, bytes, int, bool, list[tuple[str, str]]]]] = {}
        self._blocks: list[bytes] = []
        self._first = 0
        self._next = 0
        self._server: grpc.Server | None = None
        self.port = 0
        self.start()

    # --- what a test does ---

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def next_offset(self) -> int:
        return self._next

    @property
    def log_bytes(self) -> int:
        return sum(map(len, self._blocks))

    def start(self) -> None:
        server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        add_EventLogServicer_to_server(self, server)
        add_EventLogSinkServicer_to_server(self, server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def append(self, *messages: Row, time_ns: int = TIME, extra: bytes = b"", client_id: str = "c") -> None:
        """One block of these messages."""
        builder = BlockBuilder()
        for topic, payload in messages:
            builder.add(topic.encode(), payload, 1, (client_id, "", ""), extra, time_ns)
        self._blocks.append(builder.take(self._next))
        self._next += len(messages)

    def append_records(self, records: Sequence[tuple[str, bytes, str, int]]) -> None:
        """One block of (topic, payload, client id, time in nanoseconds)."""
        builder = BlockBuilder()
        for topic, payload, client_id, time_ns in records:
            builder.add(topic.encode(), payload, 1, (client_id, "", ""), b"", time_ns)
        self._blocks.append(builder.take(self._next))
        self._next += len(records)

    def append_numbers(self, count: int, topic: str = "t", time_ns: int = TIME) -> None:
        """Records whose payload is their offset, in blocks of ten."""
        for at in range(0, count, 10):
            self.append(*((topic, str(self._next + n).encode()) for n in range(min(10, count - at))), time_ns=time_ns)

    def forget_before(self, offset: int) -> None:
        """As the retention does: the blocks before this one."""
        self._blocks = [block for block in self._blocks if _header(block).offset >= offset]
        self._first = offset

    def damage(self, offset: int) -> None:
        """Change the last byte of the block that begins with this record."""
        index = next(index for index, block in enumerate(self._blocks) if _header(block).offset == offset)
        self._blocks[index] = self._blocks[index][:-1] + bytes([self._blocks[index][-1] ^ 1])

    def lose_log(self) -> None:
        """As an emptied disk: another log id, no records."""
        self.log_id = str(uuid.uuid4())
        self._blocks.clear()
        self._first = self._next = 0
        self.parents = []

    def lose(self, first: int, end: int) -> None:
        """As a damaged segment: the blocks between these records."""
        self._blocks = [block for block in self._blocks if not first <= _header(block).offset < end]

    def lose_end(self, end: int) -> None:
        """As a machine that crashes: records from here on are gone, and others get their offsets under another log id."""
        self.parents = [
            pb.ParentLog(log_id=parent.log_id, end_offset=min(parent.end_offset, end)) for parent in self.parents
        ]
        self.parents.append(pb.ParentLog(log_id=self.log_id, end_offset=end))
        self.log_id = str(uuid.uuid4())
        self.lose(end, self._next)
        self._next = end

    # --- EventLog ---

    def _begin(self, context: grpc.ServicerContext, log_id: str | None = None, end: int = 2**63) -> None:
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        if self.fail:
            context.abort(self.fail.pop(0), "as the test wants it")
        shared_ends = {parent.log_id: parent.end_offset for parent in self.parents}
        if log_id is not None and log_id != self.log_id and shared_ends.get(log_id, -1) < end:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"log_id is {log_id}, this log is {self.log_id}")

    def Describe(self, request: pb.DescribeLogRequest, context: Any) -> pb.LogDescription:
        self._begin(context)
        headers = [_header(block) for block in self._blocks]
        return pb.LogDescription(
            node=self.node,
            log_id=self.log_id,
            first_offset=self._first,
            next_offset=self._next,
            first_time_ns=headers[0].time_ns if headers else 0,
            last_time_ns=headers[-1].last_time_ns if headers else 0,
            bytes=self.log_bytes,
            holds=[
                pb.LogHold(group=group, query=query, offset=offset, held_at_ns=TIME)
                for (group, query), offset in self.held.items()
            ],
            members=self.members,
            now_ns=TIME + 61 * SECOND,
            records_lost=self.records_lost,
            parents=self.parents,
            gaps=[
                pb.LogGap(first_offset=one.end_offset, end_offset=other.offset)
                for one, other in pairwise(headers)
                if one.end_offset < other.offset
            ],
        )

    def Read(self, request: pb.ReadLogRequest, context: Any) -> pb.ReadLogResponse:
        self._begin(context, request.log_id, request.end_offset)
        self.reads.append(request)
        if len(self.reads) == 2:
            self.second_read.set()
        if not self._first <= request.start_offset <= request.end_offset <= self._next:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"this log has {self._first} to {self._next}")
        filters = Trie()
        for each in request.topics:
            filters.set(each.encode(), True)
        found = b""
        blocks = [block for block in self._blocks if _header(block).end_offset > request.start_offset]
        first = following = max(request.start_offset, _header(blocks[0]).offset) if blocks else self._next
        for block in blocks:
            header = _header(block)
            is_full = found and len(found) + len(block) > request.max_bytes
            if header.offset > following or header.offset >= request.end_offset or is_full:
                break
            if not request.topics or any(filters.match(record.topic.encode()) for record in records(block)):
                found += block
            following = header.end_offset
        return pb.ReadLogResponse(blocks=found, next_offset=following, first_offset=first)

    def FindOffset(self, request: pb.FindOffsetRequest, context: Any) -> pb.FindOffsetResponse:
        self._begin(context, request.log_id)
        for block in self._blocks:
            for record in records(block):
                if record.time_ns >= request.time_ns:
                    return pb.FindOffsetResponse(offset=record.offset)
        return pb.FindOffsetResponse(offset=self._next)

    def ListRecords(self, request: pb.ListRecordsRequest, context: Any) -> pb.ListRecordsResponse:
        raise AssertionError("the pipeline reads blocks")

    def Hold(self, request: pb.HoldLogRequest, context: Any) -> pb.HoldLogResponse:
        self._begin(context, request.log_id, request.offset)
        if self.fail_holds:
            context.abort(self.fail_holds.pop(0), "as the test wants it")
        self.held[request.group, request.query] = request.offset
        return pb.HoldLogResponse()

    def Release(self, request: pb.ReleaseLogRequest, context: Any) -> pb.ReleaseLogResponse:
        self._begin(context)
        ended = [key for key in self.held if key[0] == request.group and request.query in ("", key[1])]
        for key in ended:
            del self.held[key]
        return pb.ReleaseLogResponse(released=len(ended))

    # --- EventLogSink ---

    def Stage(self, request: pb.StageRequest, context: Any) -> pb.StageResponse:
        self._begin(context)
        files = self.staged.setdefault((request.query, request.batch), {})
        key = (request.partition, request.attempt)
        have = files.get(key, b"")
        if request.position > len(have):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{len(have)} bytes are staged")
        files[key] = have[: request.position] + request.blocks
        return pb.StageResponse(bytes=len(files[key]))

    def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:
        self._begin(context)
        if self.fail_commits:
            context.abort(self.fail_commits.pop(0), "as the test wants it")
        key = (request.query, request.batch)
        if key in self.published:
            self.staged.pop(key, None)
            return pb.CommitResponse(rows=len(self.published[key]), was_committed=True)
        staged = self.staged.pop(key, {})
        rows: list[Record] = []
        for each in request.partitions:
            found = list(records(staged.get((each.partition, each.attempt), b"")))
            if len(found) != each.rows:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{len(found)} rows are staged, not {each.rows}")
            rows += found
        self.published[key] = [(row.topic, row.payload, row.qos, row.retain, row.user_properties) for row in rows]
        return pb.CommitResponse(rows=len(rows))

    def Abort(self, request: pb.AbortRequest, context: Any) -> pb.AbortResponse:
        self._begin(context)
        self.staged.pop((request.query, request.batch), None)
        return pb.AbortResponse()


def _header(block: bytes) -> Any:
    header = read_header(block)
    assert header is not None
    return header


def become_members(*nodes: EventLogNode) -> None:
    """Each node names the others as members that are alive."""
    for node in nodes:
        node.members = [
            pb.LogMember(node=other.node, status="ALIVE", api_addr=other.address)
            for other in nodes
            if other is not node
        ]


@contextmanager
def event_log_nodes(*names: str) -> Iterator[list[EventLogNode]]:
    nodes = [EventLogNode(name) for name in names]
    become_members(*nodes)
    try:
        yield nodes
    finally:
        for node in nodes:
            node.stop()
