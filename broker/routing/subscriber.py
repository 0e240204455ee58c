"""Who gets messages, as the routes see it. `Session` is the only subclass."""

from __future__ import annotations

from broker.codec.runs import Run
from broker.message import Message
from broker.publisher import Publisher
from broker.timers import Timed


class Subscriber(Timed):
    """client_id  of the client, for No Local
    ended      the session is over, and gets no messages any more
    """

    def __init__(self, client_id: str) -> None:
        super().__init__()
        self.client_id = client_id
        self.ended = False

    def is_available(self) -> bool:
        """Whether a message of a shared group could leave for it now."""
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
        """Send one message now, or queue it. The publisher is held when the queue is past its half."""
        raise AssertionError("a subscriber without a session")

    def deliver_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """As `deliver`, for each message of a run and a subscription without identifier."""
        raise AssertionError("a subscriber without a session")
