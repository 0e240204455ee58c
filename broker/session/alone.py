"""A client's message that comes alone: read and written at once, written down afterwards (broker/flow.py says what for)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from broker.session.connection import Connection


@mypyc_attr(allow_interpreted_subclasses=True)
class DirectOutput:
    """The shell's way to a socket, past what gathers for the end of the turn."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """In order with all that was written before."""
        raise AssertionError("a direct output that writes nothing")


def receive_alone(connection: Connection, data: bytes) -> bool:
    """Handle a chunk that is one more message of the connection's flow, where that can leave at once; then call note_alone.
    False, and nothing done, for any other, which is for Connection.receive_data."""
    flow = connection.flow
    broker = connection.broker
    return (
        flow is not None
        and connection.pending is None
        and len(data) <= broker.max_packet_size
        and flow.fits(data, 0, broker.router.generation)
        and flow.leave(data)
    )


def note_alone(connection: Connection, data: bytes, now: float) -> bool:
    """What receive_alone left to be done. True when there is nothing to flush."""
    flow = connection.flow
    broker = connection.broker
    connection.last_received_at = now
    broker.now = now
    connection.received_bytes += len(data)
    connection.packets_received += 1
    return flow is None or flow.note(data, broker.counters, now)
