"""The simulated network: datagrams that get lost, doubled and late; streams in order; partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from federation.gossip.addresses import Address

if TYPE_CHECKING:
    from federation.simulator.world import Host


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities from 0 to 1, delays in seconds. Streams know delay, and `pieces`: how often what was written at once
    comes in two parts. Their losses are late data."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_min: float = 0.0002
    delay_max: float = 0.002
    pieces: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.loss <= 1 and 0 <= self.duplication <= 1 and 0 <= self.pieces <= 1):
            raise ValueError("loss, duplication and pieces are probabilities from 0 to 1")
        if not 0 <= self.delay_min <= self.delay_max:
            raise ValueError("0 <= delay_min <= delay_max must hold")


class Stream:
    """One end of a connection; `peer` is the other end. `token` belongs to the process.

    A host that cannot be reached any more is not noticed: data waits for ever, as with a pulled cable; what follows it on
    that stream waits behind it. A crashed host resets the streams that it had.
    """

    __slots__ = ("arrives_at", "closed", "cut", "host", "host_life", "peer", "port", "remote", "token")

    def __init__(self, host: Host, port: int, remote: Address) -> None:
        self.host = host
        self.host_life = host.life
        self.port = port
        """The port that the accepting side listens on."""
        self.remote = remote
        self.peer: Stream | None = None
        self.closed = False
        self.cut = False
        """Something sent from this end waits for ever."""
        self.token = 0
        self.arrives_at = 0.0
        """When the last thing sent from this end arrives: nothing later may overtake it."""

    def write(self, data: bytes) -> None:
        self.host.world.stream_write(self, data)

    def close(self) -> None:
        self.host.world.stream_close(self)
