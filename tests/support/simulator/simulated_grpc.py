"""The Go broker's stream between simulated nodes: its protobuf messages, with a few bytes in the place of gRPC.

    client:  "PRI " | message...            message: kind u8 | length u32 | body
    server:  message...

HELLO  node name, 0x00, ClientHello: the client's metadata and what it says
REPLY  ServerHello
EVENT  Event
ACK    Ack
END    malformed u8 | text: the status with which a call ends
PING, PONG  of gRPC itself, which asks whether a connection lives
"""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.message import NEVER
from federation.pb import federation_pb2 as pb
from federation.shell.grpc_options import KEEPALIVE_SECONDS, SERVER_ANSWER_SECONDS
from federation.stream.direct_client import PingTimer
from federation.stream.go_client import GoClient
from federation.stream.go_server import GoServer
from federation.stream.held_batches import StreamError
from federation.stream.receivers import NotAMember, Receivers
from federation.stream.sender import PeerSender
from simulator.network import Stream
from simulator.stream_end import StreamEnd

GRPC_PREFACE: Final = b"PRI "
HELLO: Final = 0
REPLY: Final = 1
EVENT: Final = 2
ACK: Final = 3
END: Final = 4
PING: Final = 5
PONG: Final = 6
HEADER_SIZE: Final = 5


def encode(kind: int, body: bytes = b"") -> bytes:
    return bytes((kind,)) + len(body).to_bytes(4, "big") + body


class Messages:
    """Bytes in any pieces, to messages."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> list[tuple[int, bytes]]:
        data = self._data + data
        found: list[tuple[int, bytes]] = []
        pos = 0
        while len(data) - pos >= HEADER_SIZE:
            end = pos + HEADER_SIZE + int.from_bytes(data[pos + 1 : pos + HEADER_SIZE], "big")
            if end > len(data):
                break
            found.append((data[pos], data[pos + HEADER_SIZE : end]))
            pos = end
        self._data = data[pos:]
        return found


class GoClientEnd(StreamEnd):
    """One attempt of a sender over gRPC."""

    core: GoClient

    def __init__(self, node_name: str, sender: PeerSender, stream: Stream, now: float) -> None:
        super().__init__(GoClient(sender), stream)
        self._messages = Messages()
        self._pings = PingTimer(now)
        hello = pb.ClientHello(session_id=sender.hello_id(sender.session_id))
        if sender.extended:
            hello.store_id = sender.store_id
        stream.write(GRPC_PREFACE + encode(HELLO, node_name.encode() + b"\0" + hello.SerializeToString()))

    def received(self, data: bytes, now: float) -> None:
        self._pings.received(now)
        for kind, body in self._messages.receive(data):
            if self.core.is_over:
                return
            if kind == REPLY:
                reply = pb.ServerHello.FromString(body)
                self.core.hello_reply(reply.clean_start, reply.next_event_id, now)
            elif kind == ACK:
                self.core.receive_ack(pb.Ack.FromString(body).event_id, now)
            elif kind == END:
                self.core.connection_lost(body[1:].decode(), body[0] == 1, now)

    def closed(self, reason: str, now: float) -> None:
        if not self.core.is_over:
            self.core.connection_lost(reason or "the call ended", False, now)

    def flush(self, now: float) -> bool:
        events = self.core.take_events(now)
        for event in events:
            self.stream.write(encode(EVENT, event))
        return bool(events)

    def next_timeout(self) -> float:
        return NEVER if self.core.is_over else self._pings.next_timeout()

    def handle_timeout(self, now: float) -> None:
        if self.core.is_over:
            return
        if self._pings.is_silent(now):
            self.core.connection_lost("keepalive watchdog timeout", False, now)
        elif self._pings.take_ping(now):
            self.stream.write(encode(PING))


class GoServerEnd(StreamEnd):
    """What another node opened over gRPC: Hello, then the call."""

    core: GoServer

    def __init__(self, receivers: Receivers, stream: Stream, now: float) -> None:
        super().__init__(GoServer(receivers), stream)
        self._receivers = receivers
        self._messages = Messages()
        self._to_read: deque[bytes] = deque()  # events while receivers are full
        self._is_end_told = False
        self._received_at = now

    def received(self, data: bytes, now: float) -> None:
        self._received_at = now
        for kind, body in self._messages.receive(data):
            if kind == HELLO:
                self._hello(body, now)
            elif kind == EVENT:
                self._to_read.append(body)
            elif kind == PING:
                self.stream.write(encode(PONG))  # gRPC answers, whether or not the call is read
        self._read(now)

    def _hello(self, body: bytes, now: float) -> None:
        name, _, data = body.partition(b"\0")
        hello = pb.ClientHello.FromString(data)
        try:
            clean_start, next_event_id = self._receivers.hello(name.decode(), hello.session_id, hello.store_id)
        except (NotAMember, StreamError) as error:
            self.core.end(str(error))
            return
        reply = pb.ServerHello(clean_start=clean_start, next_event_id=next_event_id)
        self.stream.write(encode(REPLY, reply.SerializeToString()))
        self.core.begin(self._receivers.get(name.decode()), now)

    def _read(self, now: float) -> None:
        while self._to_read and self.core.wants_reading() and not self.core.is_over:
            self.core.receive_event(self._to_read.popleft(), now)

    def reading_changed(self, now: float) -> None:
        self.core.reading_changed(now)
        self._read(now)

    def closed(self, reason: str, now: float) -> None:
        self.core.close()

    def _silent_at(self) -> float:
        """Return when gRPC ends the connection: the client, which pings, is not reached."""
        return NEVER if self.core.is_over else self._received_at + KEEPALIVE_SECONDS + SERVER_ANSWER_SECONDS

    def next_timeout(self) -> float:
        return min(super().next_timeout(), self._silent_at())

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        if now >= self._silent_at():
            self.core.close()

    def flush(self, now: float) -> bool:
        ack = self.core.take_ack()
        if ack >= 0:
            self.stream.write(encode(ACK, pb.Ack(event_id=ack).SerializeToString()))
        if self.core.end_text and not self._is_end_told:
            self._is_end_told = True
            self.stream.write(encode(END, bytes((self.core.end_malformed,)) + self.core.end_text.encode()))
        return ack >= 0
