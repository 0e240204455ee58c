"""The server's end of an event stream, as far as both kinds are alike: it stops reading while receivers here are full, tells
the other node meanwhile that this one lives, and ends with a reason.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER
from federation.stream.held_batches import StreamError
from federation.stream.receiver import OpenStream, PeerReceiver

# Between two signs of life while no batch can be taken, or none is whole yet: the newest acknowledgement again. It must be
# below SILENCE_SECONDS_MAX of a direct client, and below the sender's ACK_SECONDS_MAX.
HELD_SECONDS: Final = 5.0


class ServedStream(OpenStream):
    """receiver   None before the Hello
    is_over       nothing more is read or acknowledged; the shell writes what is left and closes
    end_text      why
    end_malformed the same would happen another time
    """

    def __init__(self) -> None:
        self.receiver: PeerReceiver | None = None
        self.is_over = False
        self.end_text = ""
        self.end_malformed = False
        self._held_at = NEVER  # when the next sign of life is due

    def begin(self, receiver: PeerReceiver, now: float) -> None:
        """Hello was answered: from here on this is the node's stream."""
        receiver.open_stream(self, now)
        self.receiver = receiver
        if receiver.publisher.held:  # since the stream that this one replaces
            self._held_at = now + HELD_SECONDS

    def wants_reading(self) -> bool:
        """False while receivers here are full."""
        receiver = self.receiver
        return receiver is None or receiver.publisher.held == 0

    def reading_changed(self, now: float) -> None:
        """Receivers here are full, or have room again: then go on with what waits."""
        receiver = self.receiver
        if receiver is None or self.is_over:
            return
        if receiver.publisher.held:
            if self._held_at == NEVER:
                self._held_at = now + HELD_SECONDS
            return
        self._held_at = NEVER
        try:
            ack = receiver.resume(now)
        except StreamError as error:
            self.end(error.text, error.malformed)
            return
        if ack >= 0:
            self.acknowledge(ack, now)
        if not self.wants_reading():
            self._held_at = now + HELD_SECONDS

    def acknowledge(self, event_id: int, now: float) -> None:
        """At once: events up to event_id are done."""
        raise AssertionError("a stream without acknowledgements")

    def say_alive(self, now: float) -> None:
        """Repeat the newest acknowledgement."""
        raise AssertionError("a stream without acknowledgements")

    def handle_held(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self._held_at and not self.is_over:
            self._held_at = now + HELD_SECONDS
            self.say_alive(now)

    def end(self, text: str, malformed: bool = False) -> None:
        if not self.is_over:
            self.is_over = True
            self.end_text = text
            self.end_malformed = malformed
            self.close()

    def close(self) -> None:
        """The connection is gone, or the stream has ended."""
        self.is_over = True
        self._held_at = NEVER
        if self.receiver is not None:
            self.receiver.close_stream(self)
