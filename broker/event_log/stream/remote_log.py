"""The log of another node, as streams here read it, and what this node answers to the others."""

# not a core: calls other nodes
from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError

from broker.errors import MemberFault, MemberLate
from broker.event_log.faults import LogFault
from broker.event_log.log import EventLog
from broker.event_log.pb import event_log_pb2 as pb
from broker.event_log.records import BlockFault
from broker.event_log.service import encode_read
from broker.event_log.stream.own_log import READ_BYTES, OwnLog
from broker.event_log.stream.parsed import Portion, parse_portion
from broker.event_log.stream.place import LogPlace
from broker.event_log.stream.stream_log import StreamLog
from broker.hooks import Members

LOCATE: Final = "event_log.Locate"
READ: Final = "event_log.Read"
FOLLOW: Final = "event_log.Follow"
CALL_SECONDS: Final = 10.0
READ_SECONDS_MAX: Final = 640.0
"""For the answer of a read, where less was not enough: a block has up to tens of MiB, and the way may be slow."""
LATE_MAX: Final = (
    100  # offsets from which a read was late; policy: the oldest one is forgotten, and has CALL_SECONDS again
)
FOLLOW_SECONDS: Final = 20.0  # a call waits so long for new records; then it is repeated
READS_AT_ONCE: Final = 2  # of all other nodes
RETRY_SECONDS: Final = 2.0

Request = TypeVar("Request", pb.LocateLogRequest, pb.ReadLogRequest, pb.FollowLogRequest)


class Late(LogFault):
    """The node has not answered in time."""


class RemoteLog(StreamLog):
    """As StreamLog."""

    def __init__(self, node: str, members: Members) -> None:
        super().__init__(node)
        self._members = members
        self._end = 0
        self._seconds: dict[int, float] = {}  # for a read from an offset, where CALL_SECONDS were not enough
        self._fault = ""  # since the last `locate`
        self._grown: asyncio.Future[None] | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def next_offset(self) -> int:
        return self._end

    async def locate(self, place: LogPlace | None, since_ns: int) -> LogPlace:
        request = pb.LocateLogRequest(since_ns=since_ns)
        if place is not None:
            request = pb.LocateLogRequest(
                has_place=True, log_id=place.log_id, offset=place.offset, barrier=place.barrier
            )
        answer = await self._call(LOCATE, request.SerializeToString(), CALL_SECONDS)
        try:
            found = pb.LocateLogResponse.FromString(answer)
        except DecodeError as error:
            raise LogFault(f"node {self.node} does not say where its log begins: {error}") from None
        self._end = found.next_offset
        self._fault = ""
        return LogPlace(found.log_id, found.offset, found.barrier)

    async def read(self, log_id: str, start: int, filters: Sequence[bytes]) -> Portion | None:
        if self._fault:
            raise LogFault(self._fault)
        if start >= self._end:
            return None
        request = pb.ReadLogRequest(
            log_id=log_id,
            start_offset=start,
            end_offset=self._end,
            topics=[topic_filter.decode() for topic_filter in filters],
        )
        seconds = self._seconds.pop(start, CALL_SECONDS)
        began_at = time.monotonic()
        try:
            answer = await self._call(READ, request.SerializeToString(), seconds)
        except Late:
            self._allow(start, 2 * seconds)
            raise
        took = time.monotonic() - began_at
        try:
            found = pb.ReadLogResponse.FromString(answer)
            parts = [memoryview(found.blocks)] if found.blocks else []
            portion = await asyncio.to_thread(parse_portion, parts, found.first_offset, found.next_offset)
        except (BlockFault, DecodeError) as error:
            raise LogFault(f"node {self.node} sent no blocks: {error}") from None
        if portion.next_offset <= start:
            raise LogFault(f"node {self.node} gave offset {portion.next_offset} as the next one of {start}")
        if 2 * took > CALL_SECONDS:  # the way is slow for the next block, too
            self._allow(portion.next_offset, 2 * took)
        return portion

    def _allow(self, start: int, seconds: float) -> None:
        """Give the next read from `start` so much time."""
        if len(self._seconds) >= LATE_MAX:
            del self._seconds[next(iter(self._seconds))]
        self._seconds[start] = min(seconds, READ_SECONDS_MAX)

    def when_grown(self, log_id: str) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._grown is None:
            self._grown = loop.create_future()
            self._following = loop.create_task(self._follow(log_id, self._grown))
        return self._grown

    async def _follow(self, log_id: str, grown: asyncio.Future[None]) -> None:
        """Wait until there is more, or the log cannot be followed."""
        start = end = self._end
        request = pb.FollowLogRequest(log_id=log_id, offset=start, wait_ms=int(FOLLOW_SECONDS * 1000))
        data = request.SerializeToString()
        try:
            while end <= start:
                answer = await self._call(FOLLOW, data, FOLLOW_SECONDS + CALL_SECONDS)
                end = pb.FollowLogResponse.FromString(answer).next_offset
            self._end = max(self._end, end)  # `locate` may have heard of more meanwhile
        except (LogFault, DecodeError) as fault:
            self._fault = str(fault)
        finally:
            self._grown = None
            if not grown.done():
                grown.set_result(None)

    async def _call(self, method: str, request: bytes, seconds: float) -> bytes:
        """Raises LogFault."""
        other = next((other for other in self._members.others() if other.name == self.node), None)
        if other is None or other.status != "ALIVE":
            raise LogFault(f"node {self.node} is {'no member' if other is None else other.status}")
        try:
            return await self._members.call(self.node, method, request, seconds)
        except MemberLate as late:
            raise Late(str(late)) from None
        except MemberFault as fault:
            raise LogFault(str(fault)) from None

    def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()


class LogForMembers:
    """followers  number of calls of other nodes that wait for records; `followed` is told when it changes"""

    def __init__(self, log: EventLog, own: OwnLog, members: Members, followed: Callable[[], None]) -> None:
        self.followers = 0
        self._log = log
        self._own = own
        self._followed = followed
        self._turns = asyncio.Semaphore(READS_AT_ONCE)
        members.served[LOCATE] = self._answering(pb.LocateLogRequest, self._locate)
        members.served[READ] = self._answering(pb.ReadLogRequest, self._read)
        members.served[FOLLOW] = self._answering(pb.FollowLogRequest, self._follow)

    def _answering(
        self, kind: type[Request], answer: Callable[[Request], Awaitable[bytes]]
    ) -> Callable[[bytes], Awaitable[bytes]]:
        async def serve(data: bytes) -> bytes:
            try:
                return await answer(kind.FromString(data))
            except (LogFault, DecodeError) as fault:
                raise MemberFault(str(fault)) from None

        return serve

    async def _locate(self, request: pb.LocateLogRequest) -> bytes:
        place = LogPlace(request.log_id, request.offset, request.barrier) if request.has_place else None
        found = await self._own.locate(place, request.since_ns)
        answer = pb.LocateLogResponse(
            log_id=found.log_id, offset=found.offset, barrier=found.barrier, next_offset=self._log.next_offset
        )
        return answer.SerializeToString()

    async def _read(self, request: pb.ReadLogRequest) -> bytes:
        log = self._log
        async with self._turns:
            start = max(request.start_offset, log.first_offset)
            end = max(start, min(request.end_offset, log.next_offset))
            filters = [text.encode() for text in request.topics]
            answer, _ = await log.readers.read_as(request.log_id, start, end, READ_BYTES, filters, encode_read)
        return answer

    async def _follow(self, request: pb.FollowLogRequest) -> bytes:
        log = self._log
        loop = asyncio.get_running_loop()
        until = loop.time() + min(request.wait_ms / 1000, FOLLOW_SECONDS)
        log.check_log_id(request.log_id)
        self.followers += 1
        self._followed()
        try:
            while log.next_offset <= request.offset and (left := until - loop.time()) > 0:
                await asyncio.wait([log.when_grown()], timeout=left)
        finally:
            self.followers -= 1
            self._followed()
        return pb.FollowLogResponse(next_offset=log.next_offset).SerializeToString()
