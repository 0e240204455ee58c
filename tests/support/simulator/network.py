"""The simulated network: datagrams that get lost, doubled and late; streams in order; partitions."""

from __future__ import annotations

from dataclasses import dataclass

from federation.gossip.addresses import Address


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
    """One end of a connection, as a process sees it. `port` is the one that the accepting side listens on; `token` belongs to
    the process."""

    def __init__(self, port: int, remote: Address) -> None:
        self.port = port
        self.remote = remote
        self.token = 0

    def write(self, data: bytes) -> None:
        raise AssertionError("a stream without a network")

    def close(self) -> None:
        raise AssertionError("a stream without a network")
