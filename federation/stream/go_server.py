"""The server's end of the Go broker's stream: events that come one by one, and one acknowledgement for all so far."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.context import STOOD_STILL
from broker.message import NEVER
from federation.stream.go_events import receive_event
from federation.stream.held_batches import StreamError
from federation.stream.receivers import Receivers
from federation.stream.served_stream import ServedStream

STORE_SECONDS: Final = 0.02  # between two looks whether the store has the events


class GoServer(ServedStream):
    """Doors: begin, receive_event, reading_changed, end, close; take_ack; next_timeout, handle_timeout."""

    def __init__(self, receivers: Receivers) -> None:
        super().__init__()
        self._receivers = receivers
        self._ack = -1
        self._told = -1  # the last acknowledgement while the store had not all events
        self._now = 0.0
        self._store_at = NEVER  # when to look again whether the store has the events

    def receive_event(self, data: bytes, now: float) -> None:
        """One event. After it, take_ack."""
        self._now = now
        receiver = self.receiver
        if self.is_over or receiver is None:
            return
        if now > self._receivers.still_at:
            self.end(STOOD_STILL)
            return
        try:
            self._ack = receive_event(receiver, self, data, now)
            receiver.note_done()
        except StreamError as error:
            self.end(error.text, error.malformed)

    def acknowledge(self, event_id: int, now: float) -> None:
        self._ack = event_id

    def say_alive(self, now: float) -> None:
        receiver = self.receiver
        if receiver is not None and receiver.extended and receiver.next_event_id > 0:  # a Go broker waits for ever
            receiver.note_done()
            self._ack = receiver.next_event_id - 1

    def take_ack(self) -> int:
        """The event id to acknowledge, -1 for none. It stands for all before it."""
        ack = self._ack
        if ack >= 0 and self.receiver is not None:
            stored = self.receiver.stored.newest()
            if stored < ack:
                self._store_at = self._now + STORE_SECONDS
                if stored == self._told:
                    return -1
                self._told = stored
                return stored
        self._store_at = NEVER
        self._ack = -1
        return ack

    def next_timeout(self) -> float:
        """Return when to call handle_timeout, ask again after every other call; NEVER for not at all."""
        return min(self._held_at, self._store_at)

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, take_ack."""
        self._now = now
        self.handle_held(now)
