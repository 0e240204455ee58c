"""The client's end of the Go broker's stream: one attempt of a sender over gRPC."""

# compiled with mypyc
from __future__ import annotations

from federation.stream.go_events import GoConverter, encode_events
from federation.stream.sender import PeerSender
from federation.stream.state import State


class GoClient:
    """Doors: hello_reply, receive_ack, connection_lost, take_events. The sender watches over all times; gRPC asks whether the
    connection lives.

    is_over   the shell ends the call
    """

    def __init__(self, sender: PeerSender) -> None:
        self.is_over = False
        self._sender = sender
        self._attempt = sender.attempt
        self._converter = None if sender.extended else GoConverter(sender.counters)

    def hello_reply(self, clean_start: bool, next_event_id: int, now: float) -> bool:
        """True when the stream begins; after it, take_events."""
        self.is_over = not self._sender.hello_reply(self._attempt, clean_start, next_event_id, now)
        return not self.is_over

    def receive_ack(self, event_id: int, now: float) -> None:
        """After it, take_events."""
        sender = self._sender
        sender.ack(self._attempt, event_id, now)
        if sender.attempt != self._attempt or sender.state is not State.STREAMING:
            self.is_over = True

    def connection_lost(self, reason: str, malformed: bool, now: float) -> None:
        """The call ended. `malformed`: it would end so again."""
        self.is_over = True
        if malformed:
            self._sender.refused(self._attempt, reason, now)
        else:
            self._sender.connection_lost(self._attempt, reason, now)

    def take_events(self, now: float) -> list[bytes]:
        """Events that must be written now, in order."""
        sender = self._sender
        events: list[bytes] = []
        if self.is_over or sender.attempt != self._attempt:
            return events
        for block in sender.take_blocks(now, self._converter):
            encoded = encode_events(block, sender.resume_id, now)
            events += encoded
            for data in encoded:
                sender.counters.bytes_sent += len(data)
        return events
