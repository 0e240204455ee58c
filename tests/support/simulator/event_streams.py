"""The event streams of a simulated node: a shell around the same cores as the one of asyncio."""

from __future__ import annotations

from typing import Final

from broker.message import NEVER
from broker.publisher import Publisher
from federation.node import Node
from federation.replication.wire import PREFACE as KEEPER_PREFACE
from federation.stream.direct_client import DirectClient, DirectProbe
from federation.stream.direct_server import DirectServer
from federation.stream.direct_wire import PREFACE
from federation.stream.sender import PeerSender
from federation.stream.state import State
from federation.stream.stream_choice import StreamKind
from simulator.keeper_streams import KeeperStreams, ServedEnd
from simulator.network import Stream
from simulator.simulated_grpc import GRPC_PREFACE, GoClientEnd, GoServerEnd
from simulator.stream_end import StreamEnd
from simulator.world import Host

FEDERATION_PORT: Final = 8901
UNIX: Final = "unix://"  # before the IP address of another worker of the node
BATCH_BYTES_MAX: Final = 1 << 20
HTTP2_BYTES: Final = bytes(9)  # what a server that speaks only HTTP/2 answers: a SETTINGS frame


class DirectEnd(StreamEnd):
    core: DirectClient | DirectServer

    def received(self, data: bytes, now: float) -> None:
        self.core.receive_data(data, now)

    def flush(self, now: float) -> bool:
        data = self.core.data_to_send(now)
        self.stream.write(data)
        return bool(data)


class DirectClientEnd(DirectEnd):
    core: DirectClient

    def __init__(self, node_name: str, sender: PeerSender, stream: Stream, now: float) -> None:
        super().__init__(DirectClient(node_name, sender, now), stream)
        self.core.connected(now)

    def closed(self, reason: str, now: float) -> None:
        self.core.connection_lost(reason, now)


class DirectServerEnd(DirectEnd):
    core: DirectServer

    def __init__(self, node: Node, stream: Stream, now: float) -> None:
        super().__init__(DirectServer(node.receivers, BATCH_BYTES_MAX, now), stream)
        self._unread: list[bytes] = []  # while receivers are full nothing is read

    def received(self, data: bytes, now: float) -> None:
        if self.core.wants_reading():
            self.core.receive_data(data, now)
        else:
            self._unread.append(data)

    def reading_changed(self, now: float) -> None:
        self.core.reading_changed(now)
        if self._unread and self.core.wants_reading():
            unread = b"".join(self._unread)
            self._unread.clear()
            self.core.receive_data(unread, now)

    def closed(self, reason: str, now: float) -> None:
        self.core.close()


class ProbeEnd(StreamEnd):
    core: DirectProbe

    def __init__(self, sender: PeerSender, stream: Stream, now: float) -> None:
        super().__init__(DirectProbe(sender, now), stream)
        stream.write(self.core.data_to_send())

    def received(self, data: bytes, now: float) -> None:
        self.core.receive_data(data, now)

    def closed(self, reason: str, now: float) -> None:
        self.core.is_over = True


class EventStreams:
    """Of one node, in both directions."""

    def __init__(self, node: Node, host: Host) -> None:
        self._node = node
        self._host = host
        self._ends: dict[Stream, StreamEnd] = {}
        self._beginnings: dict[Stream, bytes] = {}  # of accepted streams that are not told apart yet
        self._links: dict[str, tuple[PeerSender, int, StreamEnd]] = {}  # by node: the attempt's end
        self._keepers = KeeperStreams(node, host)
        self._probes: dict[str, tuple[PeerSender, int]] = {}

    def knows(self, stream: Stream) -> bool:
        return stream in self._ends or stream in self._beginnings

    def accepted(self, stream: Stream) -> None:
        self._beginnings[stream] = b""

    def received(self, stream: Stream, data: bytes, now: float) -> None:
        if stream in self._beginnings:
            data = self._beginnings[stream] + data
            self._beginnings[stream] = data
            if data.startswith(GRPC_PREFACE):
                del self._beginnings[stream]
                self._ends[stream] = GoServerEnd(self._node.receivers, stream, now)
                data = data[len(GRPC_PREFACE) :]
            elif data.startswith(KEEPER_PREFACE) and self._node.copies is not None:
                del self._beginnings[stream]
                self._ends[stream] = ServedEnd(self._node, stream, now)
            elif data.startswith(PREFACE):
                if self._is_blocked(stream):
                    return
                del self._beginnings[stream]
                self._ends[stream] = DirectServerEnd(self._node, stream, now)
            else:
                return
        self._ends[stream].received(data, now)

    def _is_blocked(self, stream: Stream) -> bool:
        """Something between that lets only gRPC through."""
        block = self._host.world.direct_block
        if block == "closed":
            del self._beginnings[stream]
            stream.close()
        elif block == "http2":
            stream.write(HTTP2_BYTES)
        return bool(block)

    def closed(self, stream: Stream, error: str, now: float) -> None:
        self._beginnings.pop(stream, None)
        end = self._ends.pop(stream, None)
        if end is not None:
            end.closed(error, now)

    def set_reading(self, publisher: Publisher, now: float) -> None:
        """Receivers here have room again, or are full."""
        for end in list(self._ends.values()):
            if isinstance(end, (DirectServerEnd, GoServerEnd)):
                receiver = end.core.receiver
                if receiver is not None and receiver.publisher is publisher and receiver.stream is end.core:
                    end.reading_changed(now)

    def drive(self, now: float) -> bool:
        """Connect as the senders want, write what the cores want written; whether there was anything."""
        self._follow(now)
        busy = False
        for sender in self._node.outlets.take_ready():
            busy = True
            link = self._links.get(sender.name)
            if link is not None and link[0] is sender:
                link[2].flush(now)
        for stream, end in list(self._ends.items()):
            if not isinstance(end, GoClientEnd):  # its events are in the links above
                busy = end.flush(now) or busy
            if end.is_over:
                self._ends.pop(stream, None)
                stream.close()
        return busy

    def _follow(self, now: float) -> None:
        for new_end in self._keepers.follow(now):
            self._ends[new_end.stream] = new_end
        senders = self._node.senders
        for name, (sender, attempt, end) in list(self._links.items()):
            if (
                senders.get(name) is not sender
                or sender.attempt != attempt
                or sender.state in (State.STOPPED, State.BACKOFF)
            ):
                del self._links[name]
                self._ends.pop(end.stream, None)
                end.stream.close()
        for name, sender in senders.items():
            if sender.state is State.HELLO and name not in self._links:
                stream = self._open(sender)
                new: StreamEnd
                if sender.choice.kind is StreamKind.DIRECT:
                    new = DirectClientEnd(self._node.name, sender, stream, now)
                else:
                    new = GoClientEnd(self._node.name, sender, stream, now)
                self._ends[stream] = new
                self._links[name] = (sender, sender.attempt, new)
            probe = (sender, sender.choice.probe)
            if sender.choice.probe and self._probes.get(name) != probe:
                self._probes[name] = probe
                stream = self._open(sender)
                self._ends[stream] = ProbeEnd(sender, stream, now)

    def _open(self, sender: PeerSender) -> Stream:
        if sender.addr.startswith(UNIX):
            return self._host.open_stream((sender.addr.removeprefix(UNIX), FEDERATION_PORT))
        ip, _, port = sender.addr.rpartition(":")
        return self._host.open_stream((ip, int(port)))

    # --- time

    def next_timeout(self) -> float:
        at = NEVER
        for end in self._ends.values():
            at = min(at, end.next_timeout())
        return at

    def handle_timeout(self, now: float) -> None:
        for end in list(self._ends.values()):
            end.handle_timeout(now)
