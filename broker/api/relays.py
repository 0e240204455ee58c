"""News of the other workers of a node for worker 0, as long as somebody wants it: lines of the log, and of traces."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import grpc

from broker.api.errors import ApiError
from broker.api.pb import admin_pb2 as pb
from broker.api.siblings import CALL_SECONDS_MAX, Siblings
from broker.server.traces import Trace, TraceLine, Traces

if TYPE_CHECKING:
    from broker.api.recent_events import RecentEvents

EVENTS: Final = "/gmqtt.admin.api.NodeService/Events"
TRACES: Final = "/gmqtt.admin.api.TraceService/"
AGAIN_SECONDS: Final = 0.5  # before a worker that has not answered is asked again
WAIT_SECONDS: Final = int(CALL_SECONDS_MAX) // 2  # for a line of a trace, in one call
LINGER_SECONDS: Final = 60.0  # after the last watcher, which may come back


class _Following:
    """A task for each other worker. What is not answered is asked again."""

    def __init__(self, siblings: Siblings, follow: Callable[[int], Awaitable[None]], log: Any) -> None:
        self._follow = follow
        self._log = log
        self.tasks = [asyncio.ensure_future(self._run(index)) for index in siblings.indexes]

    async def _run(self, index: int) -> None:
        try:
            while True:
                with suppress(ApiError):
                    await self._follow(index)
                    return
                await asyncio.sleep(AGAIN_SECONDS)
        except Exception as error:
            self._log.error("fault in following another worker", worker=index, exc_info=error)

    @property
    def is_over(self) -> bool:
        return all(task.done() for task in self.tasks)

    def stop(self) -> None:
        for task in self.tasks:
            task.cancel()


class EventRelay:
    """Brings the lines of the other workers to the events of this one while somebody watches. What was written before the first
    watcher came is that of this worker alone."""

    def __init__(self, siblings: Siblings, events: RecentEvents, log: Any) -> None:
        self._siblings = siblings
        self._events = events
        self._log = log
        self._watchers = 0
        self._following: _Following | None = None
        self._ending: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        self._watchers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._following is None:
            self._following = _Following(self._siblings, self._follow, self._log)
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers and self._following is not None:
                self._ending = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.stop)

    async def _follow(self, index: int) -> None:
        """Raises ApiError when the worker ends, or does not answer."""
        async for data in self._siblings.stream(index, EVENTS, b""):
            event = pb.NodeEvent.FromString(data)
            self._events.add(event.time.ToNanoseconds() / 1e9, event.level, event.line)
        raise ApiError(grpc.StatusCode.UNAVAILABLE, f"worker {index} of this node has ended")

    def stop(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._following is not None:
            self._following.stop()
            self._following = None


class TraceRelay:
    """Has the other workers trace what this one traces, and takes over their lines."""

    def __init__(self, siblings: Siblings, traces: Callable[[], Traces], now: Callable[[], float], log: Any) -> None:
        self._siblings = siblings
        self._traces = traces
        self._now = now
        self._log = log
        self._followings: list[_Following] = []
        self._theirs: dict[str, dict[int, str]] = {}  # ids at other workers, by the id here

    async def begin(self, trace: Trace) -> None:
        """Return when the others trace, too, or do not answer: these are asked again."""
        self._followings = [one for one in self._followings if not one.is_over]
        begun = {index: asyncio.Event() for index in self._siblings.indexes}

        async def follow(index: int) -> None:
            await self._follow(trace, index, begun[index])

        self._followings.append(_Following(self._siblings, follow, self._log))
        for event in begun.values():
            await event.wait()

    async def _follow(self, trace: Trace, index: int, begun: asyncio.Event) -> None:
        """Raises ApiError when the worker ends, or does not answer."""
        try:
            trace_id = await self._start(trace, index)
        finally:
            begun.set()
        if trace_id:
            self._theirs.setdefault(trace.id, {})[index] = trace_id
            await self._take_lines(trace, index, trace_id)
            self._theirs.pop(trace.id, None)  # each has been told, or ends its trace by itself
            await self._delete(index, trace_id)

    async def end(self, trace_id: str) -> None:
        """Delete the trace at the others, as far as they answer."""
        for index, theirs in self._theirs.pop(trace_id, {}).items():
            with suppress(ApiError):
                await self._delete(index, theirs)

    def stop(self) -> None:
        """End all following. The others end their traces by themselves, after the seconds that they were told."""
        for following in self._followings:
            following.stop()
        self._followings = []

    async def _delete(self, index: int, trace_id: str) -> None:
        """Raises ApiError."""
        deleting = pb.DeleteTraceRequest(id=trace_id).SerializeToString()
        await self._siblings.call(index, f"{TRACES}Delete", deleting)

    async def _start(self, trace: Trace, index: int) -> str:
        """The id of the trace there, "" where it has ended here. Raises ApiError."""
        seconds = math.ceil(trace.ends_at - self._now())
        if trace.ended or seconds <= 0:
            return ""
        selection = trace.selection
        request = pb.StartTraceRequest(
            client_id=selection.client_id,
            topic_filter=selection.topic_filter.decode(),
            remote_addr=selection.remote_addr,
            seconds=seconds,
            log=False,  # this worker logs the lines, with its id of the trace
        )
        answer = await self._siblings.call(index, f"{TRACES}Start", request.SerializeToString())
        return str(pb.Trace.FromString(answer).id)

    async def _take_lines(self, trace: Trace, index: int, trace_id: str) -> None:
        after = 0
        ended = False
        while not ended and trace.id in self._traces().by_id:
            ended = trace.ended  # the lines until then are taken once more
            request = pb.TraceLinesRequest(id=trace_id, after=after, wait_seconds=0 if ended else WAIT_SECONDS)
            answer = await self._siblings.call(index, f"{TRACES}Lines", request.SerializeToString())
            for line in pb.TraceLinesResponse.FromString(answer).lines:
                fields = [(field.name, field.value) for field in line.fields]
                at = line.time.ToNanoseconds() / 1e9
                shown = TraceLine(0, at, line.direction, line.packet, line.client_id, line.remote_addr, fields)
                self._traces().take_over(trace, shown, line.number - after - 1)
                after = line.number
