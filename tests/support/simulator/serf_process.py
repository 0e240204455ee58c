"""A bare Serf node as a simulated process: what the asyncio shell does, on virtual time."""

from __future__ import annotations

from typing import Final

from federation.gossip.addresses import Address
from federation.gossip.exchange import IncomingStream
from federation.serf.config import SerfConfig
from federation.serf.events import Event, JoinResult, MemberEvent, NameConflict
from federation.serf.serf import Serf
from simulator.network import Stream
from simulator.process import Machine, Process
from simulator.world import Host

GOSSIP_PORT: Final = 8902


class SerfProcess(Process):
    """`seeds` are joined at the start. `events` keeps everything that came out."""

    def __init__(self, host: Host, config: SerfConfig, seeds: list[Address]) -> None:
        now = host.world.now
        self.serf = Serf(config, host.rng, now, host.world.facts_pool)
        self.events: list[Event] = []
        self._incoming: dict[Stream, IncomingStream] = {}
        self._opened: dict[int, tuple[Stream, float]] = {}  # request id -> stream, give up at
        self._incoming_until: dict[Stream, float] = {}
        if seeds:
            self.serf.join(seeds, now)

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        self.serf.receive_packet(data, source, now)

    def stream_accepted(self, stream: Stream, now: float) -> None:
        incoming = self.serf.open_incoming_stream()
        if incoming is None:
            stream.close()
        else:
            self._incoming[stream] = incoming
            self._incoming_until[stream] = now + self.serf.config.profile.tcp_timeout

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        incoming = self._incoming.get(stream)
        if incoming is not None:
            stream.write(incoming.receive_data(data, now))
            while incoming.is_behind:
                stream.write(incoming.receive_data(b"", now))
            if incoming.closed:
                self._drop_incoming(stream)
        elif stream.token in self._opened:
            is_over = self.serf.receive_stream_reply(stream.token, data, "", now)
            while not is_over and self.serf.stream_is_behind(stream.token):
                is_over = self.serf.receive_stream_reply(stream.token, b"", "", now)
            if is_over:
                self._drop_opened(stream.token)

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        if stream in self._incoming:
            self._drop_incoming(stream)
        elif stream.token in self._opened:
            self._drop_opened(stream.token)
            self.serf.receive_stream_reply(stream.token, None, error or "closed without an answer", now)

    def next_timeout(self) -> float | None:
        first = self.serf.next_timeout()
        for _, until in self._opened.values():
            first = min(first, until)
        for until in self._incoming_until.values():
            first = min(first, until)
        return first

    def handle_timeout(self, now: float) -> None:
        for request_id, (_, until) in list(self._opened.items()):
            if until <= now:
                self._drop_opened(request_id)
                self.serf.receive_stream_reply(request_id, None, "no answer in time", now)
        for stream, until in list(self._incoming_until.items()):
            if until <= now:
                self._drop_incoming(stream)
        self.serf.handle_timeout(now)

    def flush(self, host: Machine, now: float) -> None:
        events = self.serf.take_events()
        while events:
            for event in events:
                host.log(_line(event))
            self.events += events
            self.handle_events(events, now)
            events = self.serf.take_events()
        self._send(host, now)

    def handle_events(self, events: list[Event], now: float) -> None:
        """For a process that builds on this one."""

    def _send(self, host: Machine, now: float) -> None:
        for data, address in self.serf.packets_to_send():
            host.send_packet(data, self.serf.config.advertise_port, address)
        for request in self.serf.take_stream_requests():
            stream = host.open_stream(request.address)
            stream.token = request.request_id
            self._opened[request.request_id] = (stream, now + request.timeout)
            stream.write(request.data)

    def _drop_incoming(self, stream: Stream) -> None:
        incoming = self._incoming.pop(stream)
        del self._incoming_until[stream]
        incoming.abandon()
        stream.close()

    def _drop_opened(self, request_id: int) -> None:
        stream, _ = self._opened.pop(request_id)
        stream.close()


def _line(event: Event) -> str:
    if isinstance(event, MemberEvent):
        return f"{type(event).__name__} {event.member.name} {event.member.ip}:{event.member.port}"
    if isinstance(event, JoinResult):
        return f"JoinResult {event.joined} {event.errors}"
    if isinstance(event, NameConflict):
        return f"NameConflict {event.name} {event.ip}:{event.port} ours={event.ours} lost={event.lost}"
    return type(event).__name__
