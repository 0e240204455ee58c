"""What runs on a simulated host: a program without I/O of its own. A whole node is one, a bare Serf is another."""

from __future__ import annotations

from federation.gossip.addresses import Address
from simulator.network import Stream


class Machine:
    """What a process may do on its host."""

    def send_packet(self, data: bytes, source_port: int, destination: Address) -> None:
        raise AssertionError("a machine without a network")

    def open_stream(self, destination: Address) -> Stream:
        """An end that may be written to at once."""
        raise AssertionError("a machine without a network")

    def log(self, line: str) -> None:
        raise AssertionError("a machine without a log")


class Process:
    """The world calls in; after every call it asks `flush` to hand over what must go out, then `next_timeout`."""

    def receive_packet(self, data: bytes, source: Address, now: float) -> None:
        """A datagram came in."""

    def stream_accepted(self, stream: Stream, now: float) -> None:
        """Another host opened a stream to us."""

    def stream_opened(self, stream: Stream, now: float) -> None:
        """A stream that we opened is connected."""

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        """Bytes came in on a stream, in order."""

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        """The other end closed the stream (error ""), or it broke, or could not be opened."""

    def next_timeout(self) -> float | None:
        """When to be woken."""
        return None

    def handle_timeout(self, now: float) -> None:
        """It is that late."""

    def flush(self, host: Machine, now: float) -> None:
        """Send packets and open streams through `host`; write what happened with `host.log`."""
