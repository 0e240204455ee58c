"""One client of the RPC: its handshake, its requests, and what is written to it (wire-gossip 11)."""

from __future__ import annotations

import hmac
from collections import deque
from typing import Final

from federation.gossip.errors import WireError
from federation.gossip.message_fields import MessageMap
from federation.rpc.event_filter import EventFilter
from federation.rpc.requests import COMMANDS, Auth, Command, Handshake, RequestHeader, decode_body
from federation.rpc.wire import FEED_BYTES, ObjectReader, encode
from federation.serf.events import QueryReceived

VERSION: Final = 1
RECORD_BYTES_MAX: Final = 1 << 20
"""Bytes of records that wait for a client that does not read; further records are dropped and counted."""
UNREAD_BYTES_MAX: Final = 2 << 20
"""Bytes of all output that waits for a client; its requests are not read meanwhile. One response may exceed it."""
CALLS_MAX: Final = 16
"""Joins, leaves and the like of one client under way; a further one is refused."""
STREAMS_MAX: Final = 64
"""Streams of one client; a further one is refused."""
QUERIES_MAX: Final = 64
"""Queries that one client has asked and that are under way; a further one is refused."""
OPEN_QUERIES_MAX: Final = 256
"""Queries of the cluster that a client may answer; the oldest is forgotten for a further one."""
FAULTS_MAX: Final = 2
"""Requests without authentication, or with a wrong key, of one client; a further one ends the connection."""
REQUESTS_OF_TURN: Final = 50
"""Requests of one client that are done in one go; the others wait until `work` is called again."""


class RequestHandler:
    """The server, as a client calls it.

    refused          connections that were refused, wrong keys, and requests of clients that did not authenticate
    malformed        requests that are no msgpack, or have fields of another type
    records_dropped  records that a client did not read in time
    """

    def __init__(self) -> None:
        self.refused = 0
        self.malformed = 0
        self.records_dropped = 0

    def is_key(self, key: str) -> bool:
        """Return whether this is the key of the node."""
        raise AssertionError("a subclass implements this")

    def request(
        self, client: RpcClient, header: RequestHeader, command: Command, body: MessageMap | None, now: float
    ) -> None:
        """Do a request of a client that has authenticated."""
        raise AssertionError("a subclass implements this")


class RpcClient:
    """Doors: `receive_data` and `work`, `take_output`; `closed`: close the connection when the output is written. The server
    writes records and the responses of calls that take longer.

    streams      filters of event streams, by the number of their request
    monitor      (number of the request, rank of the level), None without one
    queries      numbers of queries that this client asked, with the number of the request
    """

    def __init__(self, server: RequestHandler, must_authenticate: bool) -> None:
        self._server = server
        self._must_authenticate = must_authenticate
        self._reader = ObjectReader()
        self._input = bytearray()
        self._header: RequestHeader | None = None
        self._has_greeted = False
        self._faults = 0
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._last_query_id = 0
        self.calls = 0
        self.closed = False
        self.streams: dict[int, EventFilter] = {}
        self.monitor: tuple[int, int] | None = None
        self.queries: dict[int, int] = {}
        self.open_queries: dict[int, QueryReceived] = {}

    @property
    def is_ready(self) -> bool:
        """Return whether the handshake is done, and the authentication where there is one."""
        return self._has_greeted and not self._must_authenticate

    # --- input

    def receive_data(self, data: bytes, now: float) -> bool:
        """Handle requests in these bytes, as `work`."""
        self._input += data
        return self.work(now)

    def work(self, now: float) -> bool:
        """Handle requests that came in. True: more are there, call it again later."""
        for _ in range(REQUESTS_OF_TURN):
            try:
                while True:
                    if not self.takes_requests:
                        return False  # after `take_output`
                    is_whole, value = self._reader.next()
                    if is_whole:
                        break
                    if not self._input:
                        return False
                    self._reader.feed(bytes(self._input[:FEED_BYTES]))
                    del self._input[:FEED_BYTES]
                self._receive_object(value, now)
            except WireError:
                self._server.malformed += 1
                self.closed = True
                return False
        return True

    def _receive_object(self, value: object, now: float) -> None:
        header = self._header
        if header is None:
            if not isinstance(value, dict):
                raise WireError("the header of a request is no map")
            header = RequestHeader.from_fields(value)
            command = COMMANDS.get(header.command)
            if command is None:
                self._refuse(header, "Unsupported command")
            elif command.body is not None:
                self._header = header
            else:
                self._request(header, command, None, now)
            return
        self._header = None
        command = COMMANDS[header.command]
        self._request(header, command, value, now)

    def _request(self, header: RequestHeader, command: Command, value: object, now: float) -> None:
        if header.command == "handshake":
            self._greet(header, decode_body(command, value))
        elif not self._has_greeted:
            self._refuse(header, "Handshake required")
        elif header.command == "auth":
            self._authenticate(header, decode_body(command, value))
        elif self._must_authenticate:
            # The connection stays open until its deadline: the program `serf` tells a close that follows at once instead.
            self._refuse(header, "Authentication required", self._faults >= FAULTS_MAX)
        else:
            try:
                body = None if command.body is None else decode_body(command, value)
            except WireError as error:
                self._server.malformed += 1
                self.respond(header.sequence, f"{header.command}: {error}", command.empty)
                return
            self._server.request(self, header, command, body, now)

    def _greet(self, header: RequestHeader, body: MessageMap) -> None:
        assert isinstance(body, Handshake)
        if self._has_greeted:
            self.respond(header.sequence, "Handshake already performed", None)
        elif body.version != VERSION:
            self._refuse(header, "Unsupported IPC version")
        else:
            self._has_greeted = True
            self.respond(header.sequence, "", None)

    def _authenticate(self, header: RequestHeader, body: MessageMap) -> None:
        assert isinstance(body, Auth)
        if self._server.is_key(body.key):
            self._must_authenticate = False
            self.respond(header.sequence, "", None)
        else:
            self._refuse(header, "Invalid authentication token", self._faults >= FAULTS_MAX)

    def _refuse(self, header: RequestHeader, error: str, closes: bool = True) -> None:
        """Answer a client that does not know the protocol, or the key."""
        self._faults += 1
        self._server.refused += 1
        self.respond(header.sequence, error, None)
        self.closed = closes

    # --- output

    def respond(self, sequence: int, error: str, body: object) -> None:
        """Write a response. `body` None: responses of this command have none."""
        self._write(sequence, error, body)

    def write_record(self, sequence: int, body: object) -> None:
        """Write a record of a stream; drop and count it while the client does not read."""
        if self._output_bytes >= RECORD_BYTES_MAX:
            self._server.records_dropped += 1
        else:
            self._write(sequence, "", body)

    def _write(self, sequence: int, error: str, body: object) -> None:
        data = encode({"Error": error, "Seq": sequence})
        if body is not None:
            data += encode(body)
        self._output.append(data)
        self._output_bytes += len(data)

    def take_output(self) -> bytes:
        """Return output that can be written now. Call it while the connection takes more."""
        data = b"".join(self._output)
        self._output.clear()
        self._output_bytes = 0
        return data

    @property
    def takes_requests(self) -> bool:
        """Return whether more should be read from the connection."""
        return not self.closed and self._output_bytes < UNREAD_BYTES_MAX

    # --- queries of the cluster that this client may answer

    def open_query(self, received: QueryReceived, now: float) -> int:
        """Remember a query until its deadline. Gives its number for this client."""
        for query_id in [number for number, query in self.open_queries.items() if query.deadline < now]:
            del self.open_queries[query_id]
        if len(self.open_queries) >= OPEN_QUERIES_MAX:
            del self.open_queries[next(iter(self.open_queries))]
        self._last_query_id += 1
        self.open_queries[self._last_query_id] = received
        return self._last_query_id


def is_same_key(one: str, other: str) -> bool:
    """Compare without telling by the time how far they agree."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
