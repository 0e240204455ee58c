"""Exchanges over streams: one message each way, then close (section 4). The shell opens and reads, these say what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from federation.gossip import counters as reasons
from federation.gossip.addresses import Address
from federation.gossip.errors import WireError
from federation.gossip.messages import encode_error
from federation.gossip.streams import StreamDecoder, StreamEncrypted, StreamLabelled

if TYPE_CHECKING:
    from federation.gossip.gossip import Gossip

STREAMS_MAX: Final = 128
"""Streams open at a time, counted apart for those we opened and those that others opened."""
INCOMING_BYTES_MAX: Final = 64 << 20
"""Bytes held for unfinished incoming streams together; the stream that passes it is closed and counted."""

# Why we opened a stream.
PURPOSE_PUSH_PULL: Final = 0
PURPOSE_JOIN: Final = 1
PURPOSE_PROBE: Final = 2
PURPOSE_NAME: Final = 3


class StreamRequest:
    """For the shell: connect to `address`, write `data`, pass what comes back on; give up after `timeout` seconds."""

    __slots__ = ("address", "data", "request_id", "timeout")

    def __init__(self, request_id: int, address: Address, data: bytes, timeout: float) -> None:
        self.request_id = request_id
        self.address = address
        self.data = data
        self.timeout = timeout


class Exchange:
    """What we wait for on a stream that we opened. `number` is a probe's sequence or a join's id."""

    __slots__ = ("address", "decoder", "index", "number", "purpose")

    def __init__(self, purpose: int, address: Address, number: int, index: int) -> None:
        self.purpose = purpose
        self.address = address
        self.number = number
        self.index = index
        self.decoder = StreamDecoder()


class IncomingStream:
    """A stream that another node opened: `receive_data` gives what to write; write it and close when `closed`.

    The shell also closes after GossipConfig.tcp_timeout. However the connection ends, it then calls `abandon`.
    """

    __slots__ = ("_decoder", "_gone", "_gossip", "_held", "closed")

    def __init__(self, gossip: Gossip) -> None:
        self._gossip = gossip
        self._decoder = StreamDecoder()
        self._held = 0
        self._gone = False
        self.closed = False

    def receive_data(self, data: bytes, now: float) -> bytes:
        if self.closed:
            return b""
        gossip = self._gossip
        gossip.incoming_bytes += len(data)
        self._held += len(data)
        if gossip.incoming_bytes > INCOMING_BYTES_MAX:
            gossip.counters.drop(reasons.STREAM_BYTES_FULL)
            self._end()
            return b""
        try:
            self._decoder.receive_data(data)
            if not self._decoder.complete:
                return b""
            self._end()
            return gossip.receive_stream(self._decoder, now)
        except WireError as error:
            gossip.counters.drop(stream_fault(error))
            text = str(error)
        self._end()
        return encode_error(text)

    def _end(self) -> None:
        """Nothing more is read: forget what was collected. The stream counts until its answer was taken."""
        if not self.closed:
            self.closed = True
            self._gossip.incoming_bytes -= self._held

    def abandon(self) -> None:
        """The connection is gone. To be called for every stream."""
        self._end()
        if not self._gone:
            self._gone = True
            self._gossip.incoming_streams -= 1


def stream_fault(error: WireError) -> str:
    """The reason under which a stream's fault is counted."""
    if isinstance(error, StreamEncrypted):
        return reasons.ENCRYPTED
    if isinstance(error, StreamLabelled):
        return reasons.LABELLED
    return reasons.MALFORMED_STREAM
