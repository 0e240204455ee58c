"""Exchanges over streams: pings, push-pulls and joins over TCP, in both directions (wire-gossip 4).

A stream carries one message each way. The shell opens, reads and closes streams; the rules are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from federation.gossip.addresses import Address
from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters, DropReason
from federation.gossip.delegate import GossipDelegate
from federation.gossip.errors import WireError
from federation.gossip.membership import Membership
from federation.gossip.merging import Merges
from federation.gossip.messages import (
    ACK,
    ERROR,
    PING,
    PUSH_PULL,
    USER,
    Ack,
    Ping,
    decode_error,
    encode_error,
    encode_push_pull,
)
from federation.gossip.probe import Probe
from federation.gossip.push_pull import find_namesake
from federation.gossip.sealing import Sealing, StreamRefused
from federation.gossip.streams import StreamDecoder
from federation.gossip.wire import compressed

STREAMS_MAX: Final = 128
"""Open streams, counted separately for those that this node opened and those that others opened."""
INCOMING_BYTES_MAX: Final = 64 << 20
"""Bytes held for all unfinished incoming streams together. At the bound the stream that holds most is closed and counted, so
that a few large ones, which need no key until they are whole, keep out none of the small ones that members send."""

# Why this node opened a stream.
PURPOSE_PUSH_PULL: Final = 0
PURPOSE_JOIN: Final = 1
PURPOSE_PROBE: Final = 2
PURPOSE_NAME: Final = 3
"""A ping that asks whether another node answers to this node's name."""


@dataclass(slots=True)
class StreamRequest:
    """For the shell: connect to `address`, write `data`, pass on the answer, give up after `timeout` seconds."""

    request_id: int
    address: Address
    data: bytes
    timeout: float


class Exchange:
    """A stream that this node opened. `probe` belongs to PURPOSE_PROBE, `join_id` and `index` to PURPOSE_JOIN."""

    def __init__(
        self, purpose: int, address: Address, probe: Probe | None = None, join_id: int = 0, index: int = 0
    ) -> None:
        self.purpose = purpose
        self.address = address
        self.probe = probe
        self.join_id = join_id
        self.index = index
        self.decoder: StreamDecoder
        self.is_merging = False


class Exchanges:
    """All streams of one node.

    incoming_streams, incoming_bytes  what other nodes hold open, and what of theirs is not merged yet
    merges                            of what push-pulls brought
    """

    def __init__(
        self,
        config: GossipConfig,
        membership: Membership,
        counters: Counters,
        delegate: GossipDelegate,
        sealing: Sealing,
    ) -> None:
        self._config = config
        self._sealing = sealing
        self._membership = membership
        self._counters = counters
        self._delegate = delegate
        self.merges = Merges(membership, counters, delegate)
        self.incoming_bytes = 0
        self._incoming: dict[IncomingStream, None] = {}
        self._last_request_id = 0
        self._exchanges: dict[int, Exchange] = {}
        self._requests: list[StreamRequest] = []

    # --- streams that other nodes open

    def admits(self, ip: str) -> bool:
        """Return whether streams from this address are taken; count it when they are not."""
        if self._config.networks.allow(ip):
            return True
        self._counters.drop(DropReason.ADDRESS_NOT_ALLOWED)
        return False

    def open_incoming(self) -> IncomingStream | None:
        """For a stream that was accepted; None when STREAMS_MAX are open: close it."""
        if len(self._incoming) >= STREAMS_MAX:
            self._counters.drop(DropReason.STREAMS_FULL)
            return None
        stream = IncomingStream(self)
        self._incoming[stream] = None
        return stream

    @property
    def incoming_streams(self) -> int:
        return len(self._incoming)

    def forget_incoming(self, stream: IncomingStream) -> None:
        self._incoming.pop(stream, None)

    def hold_bytes(self, count: int) -> None:
        """`count` more bytes of a stream are held. Ends streams when INCOMING_BYTES_MAX is exceeded."""
        self.incoming_bytes += count
        while self.incoming_bytes > INCOMING_BYTES_MAX:
            unfinished = [stream for stream in self._incoming if not stream.closed]
            if not unfinished:
                return  # what is held is being merged
            self._counters.drop(DropReason.STREAM_BYTES_FULL)
            max(unfinished, key=lambda stream: stream.held).give_way()

    def count_fault(self, error: WireError) -> None:
        self._counters.drop(error.reason if isinstance(error, StreamRefused) else DropReason.MALFORMED_STREAM)

    def new_decoder(self, is_answer: bool) -> StreamDecoder:
        return StreamDecoder(self._sealing, is_answer)

    def seal_answer(self, data: bytes) -> bytes:
        """The bytes to write for an answer."""
        return self._sealing.seal_answer(self._compressed(data))

    def _compressed(self, data: bytes) -> bytes:
        return compressed(data) if self._config.compression else data

    def answer(self, stream: IncomingStream, decoder: StreamDecoder, now: float) -> bytes:
        """The answer to a complete message; b"" for none. While the stream `is_merging` its bytes are still held."""
        kind = decoder.message_type
        self._counters.drop(DropReason.MALFORMED_MESSAGE, decoder.nodes_refused)
        if kind == PING:
            ping = Ping.from_fields(decoder.fields)
            if ping.node and ping.node != self._membership.name:
                self._counters.drop(DropReason.PING_FOR_OTHER)
                return b""
            return Ack(ping.sequence, None).encode()
        if kind == PUSH_PULL:
            remote = decoder.push_pull
            assert remote is not None
            if remote.join and self._membership.leaving:
                # The joiner would count this join as done and would not try again after this node's return.
                self._counters.drop(DropReason.STREAM_REFUSED)
                return encode_error(f"node {self._membership.name!r} has left")
            # Encode before the merge: the answer to a join does not contain the joiner (wire-gossip 4.1).
            reply = self._encode_state(remote.join)
            stream.is_merging = True
            self.merges.begin(remote, stream.merged, now)
            return reply
        if kind == USER:
            self._delegate.user_message(decoder.user_message, now)
            return b""
        self._counters.drop(DropReason.STREAM_REFUSED)
        return b""

    # --- push-pull

    def _encode_state(self, join: bool) -> bytes:
        return encode_push_pull(join, self._membership.encode_nodes(), self._delegate.local_state())

    # --- streams that this node opens

    def join(self, address: Address, join_id: int, index: int, now: float) -> None:
        """Push-pull with one address of a join; the delegate gets the result in `join_finished`."""
        exchange = Exchange(PURPOSE_JOIN, address, join_id=join_id, index=index)
        self._open(exchange, self._encode_state(True), self._config.tcp_timeout, now)

    def push_pull(self, address: Address, now: float) -> None:
        """Push-pull with one address, without a result."""
        self._open(Exchange(PURPOSE_PUSH_PULL, address), self._encode_state(False), self._config.tcp_timeout, now)

    def ping(self, probe: Probe, ping: bytes, timeout: float, now: float) -> None:
        """Ping the member of a probe over a stream; an ack sets `probe.stream_acked`."""
        self._open(Exchange(PURPOSE_PROBE, probe.facts.address(), probe), ping, timeout, now)

    def take_requests(self) -> list[StreamRequest]:
        requests = self._requests
        if requests:
            self._requests = []
        return requests

    def receive_reply(self, request_id: int, data: bytes | None, error: str, now: float) -> bool:
        """Bytes from a stream that this node opened, or None and the error that ended it. True: close the stream."""
        exchange = self._exchanges.get(request_id)
        if exchange is None or exchange.is_merging:
            return True
        if data is None:
            self._finish(request_id, exchange, error or "closed without an answer", now)
            return True
        try:
            exchange.decoder.receive_data(data)
            if not exchange.decoder.complete:
                return False
            failure = self._receive_complete_reply(exchange, now)
        except WireError as wire_error:
            self.count_fault(wire_error)
            failure = f"does not speak this gossip: {wire_error}"
        remote = exchange.decoder.push_pull
        if failure or remote is None:
            self._finish(request_id, exchange, failure, now)
        else:
            exchange.is_merging = True
            self.merges.begin(remote, partial(self._finish, request_id, exchange), now)
        return True

    def is_behind(self, request_id: int) -> bool:
        """Return whether a part of the answer waits: call `receive_reply` without bytes, in another turn of the loop."""
        exchange = self._exchanges.get(request_id)
        return exchange is not None and exchange.decoder.is_behind

    def _open(self, exchange: Exchange, data: bytes, timeout: float, now: float) -> None:
        if len(self._exchanges) >= STREAMS_MAX:
            self._counters.drop(DropReason.STREAMS_FULL)
            self._report(exchange, "too many streams are open", now)
            return
        self._last_request_id += 1
        exchange.decoder = self.new_decoder(is_answer=True)
        self._exchanges[self._last_request_id] = exchange
        sealed = self._sealing.seal_request(self._compressed(data))
        self._requests.append(StreamRequest(self._last_request_id, exchange.address, sealed, timeout))

    def _receive_complete_reply(self, exchange: Exchange, now: float) -> str:
        """Gives "", or what is wrong with the reply. A push-pull is not merged yet."""
        decoder = exchange.decoder
        self._counters.drop(DropReason.MALFORMED_MESSAGE, decoder.nodes_refused)
        if decoder.message_type == ERROR:
            return f"refused: {decode_error(decoder.fields)}"
        if exchange.purpose in (PURPOSE_PROBE, PURPOSE_NAME):
            if decoder.message_type != ACK:
                return "answered a ping with something else"
            probe = exchange.probe
            if probe is None:
                self._delegate.name_taken(exchange.address[0], exchange.address[1], now)
            elif probe.sequence == Ack.from_fields(decoder.fields).sequence:
                probe.stream_acked = True
            return ""
        remote = decoder.push_pull
        if remote is None:
            return "answered a push-pull with something else"
        if exchange.purpose == PURPOSE_JOIN:
            taken_by = find_namesake(remote, self._membership.own.facts)
            if taken_by is not None:
                return self._refuse_namesake(taken_by, now)
        return ""

    def _refuse_namesake(self, address: Address, now: float) -> str:
        """The name may belong to this node's former process or to another living node. A ping tells them apart."""
        name = self._membership.name
        for exchange in self._exchanges.values():
            if exchange.purpose == PURPOSE_NAME and exchange.address == address:
                break
        else:
            ping = self._membership.encode_ping(0, name)
            self._open(Exchange(PURPOSE_NAME, address), ping, self._config.tcp_timeout, now)
        return f"the node name {name!r} is taken by {address[0]}:{address[1]}; give each node its own name"

    def _finish(self, request_id: int, exchange: Exchange, failure: str, now: float) -> None:
        del self._exchanges[request_id]
        self._report(exchange, failure, now)

    def _report(self, exchange: Exchange, failure: str, now: float) -> None:
        if exchange.purpose == PURPOSE_JOIN:
            self._delegate.join_finished(exchange.join_id, exchange.index, failure, now)


class IncomingStream:
    """A stream that another node opened. `receive_data` gives what to write; write it, then close when `closed`.

    While `is_behind`, a part of what came waits: call `receive_data` without bytes, in another turn of the loop.
    The shell also closes after GossipConfig.tcp_timeout. It calls `abandon` however the connection ends.
    """

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges
        self._decoder = exchanges.new_decoder(is_answer=False)
        self.held = 0  # bytes of it that count
        self._is_abandoned = False
        self.is_merging = False
        self.closed = False

    @property
    def is_behind(self) -> bool:
        return not self.closed and self._decoder.is_behind

    def receive_data(self, data: bytes, now: float) -> bytes:
        if self.closed:
            return b""
        try:
            self._decoder.receive_data(data)
            if not self._decoder.complete:
                grown = self._decoder.held_bytes - self.held
                self.held += grown
                self._exchanges.hold_bytes(grown)
                return b""
            answer = self._exchanges.answer(self, self._decoder, now)
            self._end()
        except WireError as error:
            self._exchanges.count_fault(error)
            self._end()
            if isinstance(error, StreamRefused) and error.reason == DropReason.WRONG_LABEL:
                return b""  # as in memberlist: a node of another cluster, which could not read it
            answer = encode_error(str(error))
        return self._exchanges.seal_answer(answer)

    def merged(self, _failure: str, _now: float) -> None:
        """The merge of what came has ended."""
        self.is_merging = False
        self._release()

    def abandon(self) -> None:
        """The connection has ended. What came whole is still merged, and counts until then."""
        self._is_abandoned = True
        self._end()

    def give_way(self) -> None:
        """Drop what came. The shell closes the connection when more comes, or at the timeout."""
        self._decoder = self._exchanges.new_decoder(is_answer=False)
        self._end()

    def _end(self) -> None:
        self.closed = True
        self._release()

    def _release(self) -> None:
        """Release the bytes held when the message is over. The stream counts as open until `abandon`."""
        if self.closed and not self.is_merging:
            self._exchanges.incoming_bytes -= self.held
            self.held = 0
            if self._is_abandoned:
                self._exchanges.forget_incoming(self)
