"""TraceService: traces of packets. They show payloads, so the role is admin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.fields import timestamp, topic_field
from broker.api.long_calls import LongCalls, Steps
from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import TraceServiceServicer
from broker.api.relays import TraceRelay
from broker.api.siblings import Siblings
from broker.api.tokens import Role
from broker.config.addresses import is_ip
from broker.routing.names import SHARE_PREFIX, check_topic_filter
from broker.server.logging import get_logger
from broker.server.traces import SECONDS_DEFAULT, SECONDS_MAX, TRACES_MAX, Selection, TooManyTraces, Trace, Traces

if TYPE_CHECKING:
    from broker.server.host import Host
    from broker.server.traces import TappedShell

WAIT_SECONDS_MAX: Final = 10  # for a line, in one call


class TraceService(TraceServiceServicer):
    roles: Final = {"Start": Role.ADMIN, "List": Role.ADMIN, "Lines": Role.ADMIN, "Delete": Role.ADMIN}

    def __init__(self, server: Host, long_calls: LongCalls, siblings: Siblings | None = None) -> None:
        self._server = server
        self._long_calls = long_calls
        self._relay: TraceRelay | None = None
        if siblings is not None:
            self._relay = TraceRelay(siblings, server.made_traces, server.now, get_logger("api"))

    def stop(self) -> None:
        if self._relay is not None:
            self._relay.stop()

    async def Start(self, request: pb.StartTraceRequest, context: object) -> pb.Trace:
        selection = selection_of(request)
        if request.seconds > SECONDS_MAX:
            raise invalid_argument(f"seconds is {request.seconds}, at most {SECONDS_MAX} is possible")
        logs = request.log or not request.HasField("log")
        traces = self._server.made_traces()
        try:
            trace = traces.start(selection, request.seconds or SECONDS_DEFAULT, logs)
        except TooManyTraces:
            text = f"{TRACES_MAX} traces run already; end one with DELETE /v1/traces/ID"
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, text) from None
        if self._relay is not None:
            await self._relay.begin(trace)
        await self._long_calls.run(self._follow_all(traces))
        return self._shown(trace)

    def _follow_all(self, traces: Traces) -> Steps[None]:
        """The connections that are open already, in steps."""
        for shell in list(self._server.protocols):
            traces.follow(cast("TappedShell", shell))
            yield

    async def List(self, request: Empty, context: object) -> pb.ListTracesResponse:
        return pb.ListTracesResponse(traces=[self._shown(trace) for trace in self._server.made_traces().by_id.values()])

    async def Lines(self, request: pb.TraceLinesRequest, context: object) -> pb.TraceLinesResponse:
        if request.wait_seconds > WAIT_SECONDS_MAX:
            raise invalid_argument(f"wait_seconds is {request.wait_seconds}, at most {WAIT_SECONDS_MAX} is possible")
        trace = self._trace(request.id)
        lines, ended = await self._server.made_traces().read(trace, request.after, request.wait_seconds)
        response = pb.TraceLinesResponse(ended=ended, packets=trace.packets)
        for line in lines:
            response.lines.append(
                pb.TraceLine(
                    number=line.number,
                    time=timestamp(line.time),
                    direction=line.direction,
                    packet=line.packet,
                    client_id=line.client_id,
                    remote_addr=line.remote_addr,
                    fields=[pb.TraceField(name=name, value=value) for name, value in line.fields],
                )
            )
        return response

    async def Delete(self, request: pb.DeleteTraceRequest, context: object) -> Empty:
        self._server.made_traces().delete(self._trace(request.id))
        if self._relay is not None:
            await self._relay.end(request.id)
        return Empty()

    def _trace(self, trace_id: str) -> Trace:
        trace = self._server.made_traces().by_id.get(trace_id)
        if trace is None:
            raise not_found(f'there is no trace "{trace_id[:20]}"; it was deleted, or it ended more than a minute ago')
        return trace

    def _shown(self, trace: Trace) -> pb.Trace:
        selection = trace.selection
        return pb.Trace(
            id=trace.id,
            client_id=selection.client_id,
            topic_filter=selection.topic_filter.decode(),
            remote_addr=selection.remote_addr,
            log=trace.logs,
            ends_at=timestamp(self._server.wall_time(trace.ends_at)),
            ended=trace.ended,
            packets=trace.packets,
            left_out=trace.left_out,
        )


def selection_of(request: pb.StartTraceRequest) -> Selection:
    """Raises ApiError unless one thing is asked for, in a form that can occur."""
    if [bool(request.client_id), bool(request.topic_filter), bool(request.remote_addr)].count(True) != 1:
        raise invalid_argument("one of client_id, topic_filter and remote_addr is needed")
    topic_filter = b""
    if request.topic_filter:
        topic_filter = topic_field(request.topic_filter, check_topic_filter, "topic_filter")
        if topic_filter.startswith(SHARE_PREFIX):
            raise invalid_argument("topic_filter begins with $share/: packets have topics, name the filter behind it")
    if request.remote_addr and not is_address(request.remote_addr):
        raise invalid_argument(f'remote_addr "{request.remote_addr[:100]}" is no IP address and no IP:PORT')
    return Selection(request.client_id, topic_filter, request.remote_addr)


def is_address(text: str) -> bool:
    """Return whether this is 10.0.0.1, 10.0.0.1:40000, ::1 or [::1]:40000."""
    host, _, port = text.rpartition(":")
    return is_ip(text) or (port.isdecimal() and is_ip(host.strip("[]")))
