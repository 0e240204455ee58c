"""All clients of the RPC: what their requests do, and the events and log lines that they stream (wire-gossip 11).

Requests that a Serf node can do at once are done here. The others are `take_calls`: the shell does them and calls `finish`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from federation.rpc import requests
from federation.rpc.client import CALLS_MAX, QUERIES_MAX, STREAMS_MAX, RequestHandler, RpcClient, is_same_key
from federation.rpc.event_filter import EventFilter
from federation.rpc.records import (
    DONE_RECORD,
    coordinate_body,
    filtered_members,
    member_events_record,
    member_map,
    query_record,
    response_record,
    stats_body,
    user_event_record,
)
from federation.serf.asked_queries import NANOSECONDS, QueryParameters
from federation.serf.coalescing import MemberCoalescer, UserCoalescer
from federation.serf.events import (
    Event,
    MemberEvent,
    QueryEnded,
    QueryReceived,
    QueryResponded,
    UserEventReceived,
)
from federation.serf.query_handler import QUERY_INTERNAL_PREFIX, QUERY_PING
from federation.serf.serf import Serf

if TYPE_CHECKING:
    from federation.gossip.message_fields import MessageMap
    from federation.rpc.requests import Command, RequestHeader

CLIENTS_MAX: Final = 64
"""Clients; for a further one the oldest that has not authenticated goes, otherwise it is refused. Both are counted."""
LOG_LINES_MAX: Final = 512
"""Last lines of the log that a monitor begins with."""
LEVELS: Final = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3, "ERR": 4}
"""Levels of a monitor, with their ranks."""


@dataclass(slots=True, eq=False)
class Call:
    """A request that the shell does: `request` is one of Join, ForceLeave, SetTags, KeyRequest, or None. `finish` ends it."""

    client: RpcClient
    header: RequestHeader
    request: MessageMap | None


class RpcServer(RequestHandler):
    """`auth_key`: "" for no authentication. `runtime`: what `serf info` prints of the program.

    requests  that were done or handed to the shell
    """

    def __init__(self, serf: Serf, auth_key: str, runtime: dict[str, str]) -> None:
        super().__init__()
        self._serf = serf
        self._auth_key = auth_key
        self._runtime = runtime
        self._members = MemberCoalescer()
        self._user_events = UserCoalescer()
        self._calls: list[Call] = []
        self._log: deque[tuple[int, str]] = deque(maxlen=LOG_LINES_MAX)
        self.clients: dict[RpcClient, None] = {}
        self.requests = 0

    # --- clients

    def connect(self) -> RpcClient | None:
        """A client has connected; None: refuse it. `closed` of another one may be set now."""
        if len(self.clients) >= CLIENTS_MAX:
            self.refused += 1
            pending = [client for client in self.clients if not client.is_ready]
            if not pending:
                return None
            pending[0].closed = True
            self.disconnected(pending[0])
        client = RpcClient(self, bool(self._auth_key))
        self.clients[client] = None
        return client

    def disconnected(self, client: RpcClient) -> None:
        """End the queries that the client asked; nobody reads their responses."""
        if self.clients.pop(client, 0) is None:
            for number in client.queries:
                self._serf.asked_queries.end_number(number)

    def is_key(self, key: str) -> bool:
        """Without a key of the node every key is right, as with the agent."""
        return not self._auth_key or is_same_key(key, self._auth_key)

    # --- requests

    def take_calls(self) -> list[Call]:
        calls = self._calls
        if calls:
            self._calls = []
        return calls

    def finish(self, call: Call, error: str, body: object = None) -> None:
        """A call is over. `body` None: the empty one of its command."""
        call.client.calls -= 1
        command = requests.COMMANDS[call.header.command]
        call.client.respond(call.header.sequence, error, command.empty if body is None else body)

    def request(
        self, client: RpcClient, header: RequestHeader, command: Command, body: MessageMap | None, now: float
    ) -> None:
        """Do a request, and respond unless the shell has to do it."""
        self.requests += 1
        sequence = header.sequence
        answer: object = command.empty
        try:
            if header.command == "members":
                answer = {"Members": [member_map(member) for member in self._serf.members()]}
            elif isinstance(body, requests.MembersFiltered):
                answer = {"Members": [member_map(member) for member in filtered_members(self._serf.members(), body)]}
            elif isinstance(body, requests.SendEvent):
                self._serf.user_event(body.name, body.payload, body.coalesce)
            elif isinstance(body, requests.SendQuery):
                self._query(client, sequence, body, now)
                return
            elif isinstance(body, requests.Respond):
                self._respond(client, body, now)
            elif isinstance(body, requests.Stream):
                self._stream(client, sequence, body)
            elif isinstance(body, requests.Monitor):
                self._monitor(client, sequence, body)
                return
            elif isinstance(body, requests.Stop):
                client.streams.pop(body.sequence, None)
                if client.monitor is not None and client.monitor[0] == body.sequence:
                    client.monitor = None
            elif header.command == "stats":
                answer = stats_body(self._serf, self._runtime)
            elif isinstance(body, requests.GetCoordinate):
                answer = coordinate_body(self._serf, body.node)
            else:
                self._begin(Call(client, header, body))
                return
        except ValueError as error:
            client.respond(sequence, str(error), command.empty)
            return
        client.respond(sequence, "", answer)

    def _begin(self, call: Call) -> None:
        if call.client.calls >= CALLS_MAX:
            raise ValueError(f"{CALLS_MAX} calls of this connection are under way; wait until some end")
        call.client.calls += 1
        self._calls.append(call)

    def _query(self, client: RpcClient, sequence: int, body: requests.SendQuery, now: float) -> None:
        if body.name.startswith(QUERY_INTERNAL_PREFIX) and (body.name != QUERY_PING or body.payload):
            raise ValueError(f"Queries cannot contain the '{QUERY_INTERNAL_PREFIX}' prefix")
        if len(client.queries) >= QUERIES_MAX:
            raise ValueError(f"{QUERIES_MAX} queries of this connection are under way; wait until some end")
        parameters = QueryParameters(
            body.filter_nodes or (),
            dict(body.filter_tags),
            body.request_ack,
            body.relay_factor,
            body.timeout_ns / NANOSECONDS,
        )
        asked = self._serf.query(body.name, body.payload, now, parameters)
        client.queries[asked.number] = sequence
        client.respond(sequence, "", None)

    def _respond(self, client: RpcClient, body: requests.Respond, now: float) -> None:
        received = client.open_queries.get(body.query_id)  # stays: an answer that is refused may be repeated, shorter
        if received is None:
            raise ValueError("No pending queries matching ID")
        self._serf.answer(received, body.payload, now)

    def _stream(self, client: RpcClient, sequence: int, body: requests.Stream) -> None:
        if sequence in client.streams:
            raise ValueError("Stream with given sequence exists")
        if len(client.streams) >= STREAMS_MAX:
            raise ValueError(f"this connection has {STREAMS_MAX} streams; stop one first")
        client.streams[sequence] = EventFilter(body.filter)

    def _monitor(self, client: RpcClient, sequence: int, body: requests.Monitor) -> None:
        rank = LEVELS.get(body.level.upper())
        if rank is None:
            raise ValueError(f"Unknown log level: {body.level}")
        if client.monitor is not None:
            raise ValueError("Monitor already exists")
        client.respond(sequence, "", None)
        client.monitor = (sequence, rank)
        for line_rank, line in self._log:
            if line_rank >= rank:
                client.write_record(sequence, {"Log": line})

    def wants_debug(self) -> bool:
        """Return whether a monitor wants lines of the level debug."""
        return any(client.monitor is not None and client.monitor[1] <= LEVELS["DEBUG"] for client in self.clients)

    # --- what is streamed

    def receive_events(self, events: Iterable[Event], now: float) -> None:
        """Events of Serf: member events and some user events are coalesced first."""
        for event in events:
            if isinstance(event, MemberEvent):
                self._members.add(event, now)
            elif isinstance(event, UserEventReceived):
                if event.coalesce:
                    self._user_events.add(event, now)
                else:
                    self._tell(event, user_event_record(event))
            elif isinstance(event, QueryReceived):
                self._tell_query(event, now)
            elif isinstance(event, QueryResponded):
                body = response_record(event.origin, event.payload, event.is_ack)
                for client, sequence in self._asking(event.number):
                    client.write_record(sequence, body)
            elif isinstance(event, QueryEnded):
                for client, sequence in self._asking(event.number):
                    del client.queries[event.number]
                    client.respond(sequence, "", DONE_RECORD)
        self._tell_coalesced(now)

    def _asking(self, number: int) -> list[tuple[RpcClient, int]]:
        return [(client, client.queries[number]) for client in self.clients if number in client.queries]

    def _tell(self, event: Event | MemberEvent, record: object) -> None:
        for client in self.clients:
            for sequence, wanted in client.streams.items():
                if wanted.passes(event):
                    client.write_record(sequence, record)

    def _tell_query(self, received: QueryReceived, now: float) -> None:
        for client in self.clients:
            for sequence, wanted in client.streams.items():
                if wanted.passes(received):
                    client.write_record(sequence, query_record(received, client.open_query(received, now)))

    def _tell_coalesced(self, now: float) -> None:
        for events in self._members.take(now):
            self._tell(events[0], member_events_record(events))
        for event in self._user_events.take(now):
            self._tell(event, user_event_record(event))

    def log_line(self, level: str, line: str) -> None:
        """A line of the log. `level`: one of LEVELS."""
        rank = LEVELS[level]
        self._log.append((rank, line))
        for client in self.clients:
            if client.monitor is not None and rank >= client.monitor[1]:
                client.write_record(client.monitor[0], {"Log": line})

    # --- time

    def next_timeout(self) -> float | None:
        found = [at for at in (self._members.next_timeout(), self._user_events.next_timeout()) if at is not None]
        return min(found, default=None)

    def handle_timeout(self, now: float) -> None:
        self._tell_coalesced(now)
