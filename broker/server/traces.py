"""Traces: the packets of a client, a topic filter or an address, for a bounded time; and `log.dump_packet`.

Connections that no trace asks for have no tap. While a trace by topic filter runs, the packets of all clients are decoded a
second time.
"""

# not compiled: of traced connections only
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from broker.codec import packets
from broker.codec.packets import Connect, Packet, Publish
from broker.codec.properties import AUTHENTICATION_DATA, property_name, publish_properties_to_dict
from broker.codec.reader import PacketReader
from broker.config.addresses import host_of
from broker.errors import MqttError
from broker.routing.names import filter_matches
from broker.server.logging import get_logger, short_text
from broker.session.connection import Connection
from broker.token_bucket import TokenBucket

TRACES_MAX: Final = 16  # that run at once
SECONDS_DEFAULT: Final = 60
SECONDS_MAX: Final = 3600
LINES_PER_SECOND_MAX: Final = 200  # of one trace; further packets are counted and left out
LINES_MAX: Final = 2000  # kept of one trace; older ones are dropped
CHARACTERS_MAX: Final = 1_000_000  # of the values of all kept lines of one trace
PAGE_LINES_MAX: Final = 500
KEPT_SECONDS: Final = 60.0  # after its end a trace can still be read
WAITING_MAX: Final = 32  # readers of all traces that wait for lines; others are answered at once
ABSENT: Final[dict[str, object]] = {"packet_id": 0, "message_expiry_interval": -1, "topic_alias": 0, "is_bridge": False}
HIDDEN: Final = "***"
PART: Final = "trace"  # of the log; its lines have payloads
RECEIVED: Final = "received"
SENT: Final = "sent"
FAULT: Final = "FAULT"  # in place of a packet's type


class TooManyTraces(Exception):
    """TRACES_MAX run already."""


class TraceLine(NamedTuple):
    """`number` counts the packets of the trace from 1, `time` is in Unix seconds."""

    number: int
    time: float
    direction: str
    packet: str
    client_id: str
    remote_addr: str
    fields: list[tuple[str, str]]

    def size(self) -> int:
        return sum(len(value) for _, value in self.fields)


class Selection(NamedTuple):
    """The packets that a trace asks for: one of the three is set. `remote_addr` is an IP address or HOST:PORT."""

    client_id: str = ""
    topic_filter: bytes = b""
    remote_addr: str = ""

    def may_ask_for(self, client_id: str, remote_addr: str) -> bool:
        """Return whether packets of the client can be asked for. `client_id` is "" while it is not known."""
        if self.client_id:
            return client_id in ("", self.client_id)
        return bool(self.topic_filter) or is_at(remote_addr, self.remote_addr)

    def asks_for(self, client_id: str, remote_addr: str, topic: bytes) -> bool:
        """Return whether a packet is asked for. `topic` is b"" for all but PUBLISH."""
        if self.client_id:
            return client_id == self.client_id
        if self.topic_filter:
            return bool(topic) and filter_matches(self.topic_filter, topic)
        return is_at(remote_addr, self.remote_addr)


def is_at(remote_addr: str, wanted: str) -> bool:
    return wanted in (remote_addr, host_of(remote_addr))


class Trace:
    """One trace. `packets` are asked for by it, `left_out` of them have no line. `ends_at` is monotonic."""

    def __init__(self, trace_id: str, selection: Selection, logs: bool, ends_at: float, now: float) -> None:
        self.id = trace_id
        self.selection = selection
        self.logs = logs
        self.ends_at = ends_at
        self.ended = False
        self.packets = 0
        self.left_out = 0
        self.lines: deque[TraceLine] = deque()
        self.changed = asyncio.Event()  # there is a line, or the trace has ended
        self.timer: asyncio.TimerHandle | None = None
        self._characters = 0
        self._rate = TokenBucket(LINES_PER_SECOND_MAX, now)

    def takes_one(self, now: float) -> bool:
        """Count a packet. False: it is left out."""
        self.packets += 1
        if self._rate.try_take(now):
            return True
        self.left_out += 1
        return False

    def add(self, line: TraceLine) -> None:
        self.lines.append(line)
        self._characters += line.size()
        while len(self.lines) > LINES_MAX or self._characters > CHARACTERS_MAX:
            self._characters -= self.lines.popleft().size()
        self.changed.set()

    def page(self, after: int) -> tuple[list[TraceLine], bool]:
        """The first lines with a number above `after`, and whether no more will come."""
        found = [line for line in self.lines if line.number > after]
        return found[:PAGE_LINES_MAX], self.ended and len(found) <= PAGE_LINES_MAX


class Traces:
    """All traces of the node, by id. Those that have ended are kept for KEPT_SECONDS. Made and used inside a running loop.

    now, wall_time  as those of Host
    is_dumped       `log.dump_packet`: packets of connections that begin from now on are lines of the log, at level debug
    """

    def __init__(self, now: Callable[[], float], wall_time: Callable[[float], float], max_packet_size: int) -> None:
        self.is_dumped = False
        self.by_id: dict[str, Trace] = {}
        self._running: list[Trace] = []
        self._now = now
        self._wall_time = wall_time
        self._max_packet_size = max_packet_size
        self._loop = asyncio.get_running_loop()
        self._last_id = 0
        self._waiting = 0
        self._log = get_logger(PART)
        self._dump = get_logger("packet")

    # --- begin and end ---

    def start(self, selection: Selection, seconds: int, logs: bool) -> Trace:
        """Begin a trace of new connections; `follow` is called for each that is open. Raises TooManyTraces."""
        if len(self._running) >= TRACES_MAX:
            raise TooManyTraces
        for ended in [trace for trace in self.by_id.values() if trace.ended]:
            if len(self.by_id) >= TRACES_MAX:
                self.delete(ended)
        now = self._now()
        self._last_id += 1
        trace = Trace(str(self._last_id), selection, logs, now + seconds, now)
        self.by_id[trace.id] = trace
        self._running.append(trace)
        trace.timer = self._loop.call_later(seconds, self.end, trace)
        self._log.warning("a trace begins", trace=trace.id, seconds=seconds, **self._selected(trace))
        return trace

    def follow(self, shell: TappedShell) -> None:
        """Show the packets of a connection to the traces, as long as one asks for them."""
        connection = shell.connection
        if shell.tap is not None or connection is None or connection.closed:
            return
        if self.may_ask_for(connection.client_id, connection):
            tap = PacketTap(self, shell, connection, self._max_packet_size)
            shell.tap = tap
            waiting = connection.waiting_input()
            if waiting:
                tap.received(waiting, connection)

    def end(self, trace: Trace) -> None:
        """A tap that no trace needs any more removes itself with the next packet."""
        self._stop(trace)
        trace.timer = self._loop.call_later(KEPT_SECONDS, self.delete, trace)

    def delete(self, trace: Trace) -> None:
        self._stop(trace)
        self.by_id.pop(trace.id, None)

    def _stop(self, trace: Trace) -> None:
        if trace.timer is not None:
            trace.timer.cancel()
        if trace.ended:
            return
        trace.ended = True
        self._running.remove(trace)
        trace.changed.set()
        self._log.warning("a trace has ended", trace=trace.id, packets=trace.packets, left_out=trace.left_out)

    def _selected(self, trace: Trace) -> dict[str, Any]:
        return {name: value for name, value in trace.selection._asdict().items() if value}

    # --- packets ---

    def may_ask_for(self, client_id: str, connection: Connection) -> bool:
        """Return whether packets of the client are asked for. `client_id` is "" while it is not known."""
        return self.is_dumped or any(
            trace.selection.may_ask_for(client_id, connection.remote_addr) for trace in self._running
        )

    def show(
        self, direction: str, packet: Packet | MqttError, topic: bytes, client_id: str, connection: Connection
    ) -> None:
        """Write a packet, or that bytes are none, into the log, and into the traces that ask for it."""
        address = connection.remote_addr
        now = self._now()
        if self.is_dumped:
            name, values = _named(packet)
            self._dump.debug(direction, **{"packet": name, **values, "client_id": client_id})
        for trace in self._running:
            if not trace.selection.asks_for(client_id, address, topic) or not trace.takes_one(now):
                continue
            name, values = _named(packet)
            fields = [(key, short_text(value)) for key, value in values.items()]
            time = self._wall_time(now)
            self._add(trace, TraceLine(trace.packets, time, direction, name, client_id, address, fields))

    def _add(self, trace: Trace, line: TraceLine) -> None:
        trace.add(line)
        if trace.logs:
            shown = {"packet": line.packet, "client_id": line.client_id, "remote_addr": line.remote_addr}
            self._log.info(line.direction, trace=trace.id, **shown | dict(line.fields))

    def take_over(self, trace: Trace, line: TraceLine, left_out: int) -> None:
        """Add a packet of another worker of this node, which gets a number here. Before it `left_out` packets have no line."""
        trace.packets += left_out
        trace.left_out += left_out
        if trace.takes_one(self._now()):
            self._add(trace, line._replace(number=trace.packets))

    # --- readers ---

    async def read(self, trace: Trace, after: int, wait_seconds: float) -> tuple[list[TraceLine], bool]:
        """`Trace.page`, which waits for a line so long at most."""
        if wait_seconds and self._waiting < WAITING_MAX:
            self._waiting += 1
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        while not trace.ended and not trace.page(after)[0]:
                            trace.changed.clear()
                            await trace.changed.wait()
            finally:
                self._waiting -= 1
        return trace.page(after)


def _named(packet: Packet | MqttError) -> tuple[str, dict[str, Any]]:
    """The name of a packet's type and its fields; FAULT where bytes are no packet."""
    if isinstance(packet, MqttError):
        return FAULT, {"error": packet.text}
    return type(packet).__name__.upper(), packet_fields(packet)


def packet_fields(packet: Packet) -> dict[str, Any]:
    """The fields of a packet by the specification's names, without absent ones and without secrets."""
    found: dict[str, Any] = {}
    for name in packet.__dataclass_fields__:
        value = getattr(packet, name)
        if value is None or value in (b"", "", (), [], {}) or value == ABSENT.get(name, ABSENT):
            continue
        if name == "password":
            found[name] = HIDDEN
        elif name == "properties":
            assert isinstance(value, bytes | dict)
            found[name] = _property_fields(publish_properties_to_dict(value) if isinstance(value, bytes) else value)
        elif isinstance(value, Packet):
            found[name] = packet_fields(value)
        elif isinstance(value, list) and isinstance(value[0], Packet):
            found[name] = [packet_fields(item) for item in value]
        else:
            found[name] = value
    return found


def _property_fields(properties: packets.Properties) -> dict[str, Any]:
    """Properties by name; a user property as NAME=VALUE."""
    found: dict[str, Any] = {}
    for number, value in properties.items():
        shown: Any = value
        if number == AUTHENTICATION_DATA:
            shown = HIDDEN
        elif isinstance(value, list):
            shown = [f"{name}={text}" for name, text in value]
        found[property_name(number)] = shown
    return found


class TappedShell(Protocol):
    """The shell of one client's connection, as a tap uses it."""

    connection: Connection | None
    tap: PacketTap | None


class PacketTap:
    """Begins between two packets of each direction, at any time. It removes itself when no trace asks for its client."""

    __slots__ = ("_client_id", "_faulty", "_received", "_received_topics", "_sent", "_sent_topics", "_shell", "_traces")

    def __init__(self, traces: Traces, shell: TappedShell, connection: Connection, max_packet_size: int) -> None:
        self._traces = traces
        self._shell = shell
        self._client_id = ""  # of a CONNECT that the connection has not handled yet
        self._faulty: set[str] = set()  # directions whose bytes are no packets any more
        self._received = PacketReader(connection.version, max_packet_size)
        self._sent = PacketReader(connection.version, max_packet_size)
        self._received_topics: dict[int, bytes] = dict(connection.topic_aliases or {})  # by alias
        sent_aliases = connection.aliases
        self._sent_topics = {} if sent_aliases is None else dict(enumerate(sent_aliases.topics(), 1))

    def received(self, data: bytes, connection: Connection) -> None:
        self._show(RECEIVED, self._received, self._received_topics, data, connection)

    def sent(self, data: bytes, connection: Connection) -> None:
        self._show(SENT, self._sent, self._sent_topics, data, connection)

    def _show(
        self, direction: str, reader: PacketReader, topics: dict[int, bytes], data: bytes, connection: Connection
    ) -> None:
        """Raises nothing: a fault here must not end the client's connection."""
        client_id = connection.client_id or self._client_id
        if not self._traces.may_ask_for(client_id, connection):
            self._shell.tap = None
            return
        if direction in self._faulty:
            return
        if connection.version:
            reader.version = connection.version
        try:
            while packets := reader.receive_data(data):
                data = b""  # the next call tells a fault behind these packets
                for packet in packets:
                    if isinstance(packet, Connect):
                        client_id = self._client_id = packet.client_id
                    self._traces.show(direction, packet, resolved_topic(packet, topics), client_id, connection)
        except MqttError as error:
            self._traces.show(direction, error, b"", client_id, connection)
            self._faulty.add(direction)
        except Exception as fault:
            get_logger(PART).error("fault in a trace", client_id=client_id, exc_info=fault)
            self._shell.tap = None


def resolved_topic(packet: Packet, topics: dict[int, bytes]) -> bytes:
    """The topic name of a PUBLISH, also written into a packet that has an alias only; b"" for other packets."""
    if not isinstance(packet, Publish):
        return b""
    if packet.topic_alias:
        if packet.topic:
            topics[packet.topic_alias] = packet.topic
        else:
            packet.topic = topics.get(packet.topic_alias, b"")
    return packet.topic
