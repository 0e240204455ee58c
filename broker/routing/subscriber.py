"""The base class of `Session`, as routes see it."""

from __future__ import annotations

from broker.codec.runs import Run
from broker.message import Message
from broker.publisher import Publisher
from broker.timers import Timed


class Subscriber(Timed):
    """client_id  of the client, for No Local
    ended      the session has ended and gets no more messages
    """

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.ended = False

    def is_available(self) -> bool:
        """Whether a message of a shared group can be sent now: connected, and the queue is less than half full."""
        raise AssertionError("a subscriber without a session")

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> None:
        """Send one message, or queue it. Hold the publisher when the queue is more than half full."""
        raise AssertionError("a subscriber without a session")

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """As `deliver`, for each message of a run, without subscription identifiers."""
        raise AssertionError("a subscriber without a session")

    def pump(self, now: float) -> None:
        """Send what waits, as far as the connection takes it."""
        raise AssertionError("a subscriber without a session")
