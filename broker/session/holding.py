"""The messages that a session holds for its client: those that wait, and those in flight."""

# compiled with mypyc
from __future__ import annotations

from broker.session.incoming import ReceivingSession
from broker.session.inflight import Inflight
from broker.session.outgoing import Outgoing
from broker.session.queue import MessageQueue


class HoldingSession(ReceivingSession):
    """queue     None until a message has to wait: an idle client takes less memory so
    inflight  None until a message with QoS 1 or 2 is sent
    """

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.queue: MessageQueue | None = None
        self.inflight: Inflight | None = None

    def queue_length(self) -> int:
        return self.queue.count if self.queue is not None else 0

    def queued(self) -> list[Outgoing]:
        """The messages of the queue, oldest first."""
        return self.queue.messages() if self.queue is not None else []

    def inflight_length(self) -> int:
        return len(self.inflight) if self.inflight is not None else 0

    def is_in_flight(self, packet_id: int) -> bool:
        """Return whether a message that was sent has the packet identifier."""
        return self.inflight is not None and self.inflight.find(packet_id) is not None

    def _is_queued(self) -> bool:
        return self.queue is not None and self.queue.count > 0

    def _is_resending(self) -> bool:
        return self.inflight is not None and self.inflight.is_resending()

    def _made_queue(self) -> MessageQueue:
        queue = self.queue
        if queue is None:
            queue = self.queue = MessageQueue(self.records)
        return queue

    def _made_inflight(self) -> Inflight:
        inflight = self.inflight
        if inflight is None:
            inflight = self.inflight = Inflight(self.records)
        return inflight

    def begin_packet_ids(self, first: int) -> None:
        """The next message of QoS 1 or 2 gets this packet identifier, if it is free."""
        self._made_inflight().next_packet_id = first

    def end_copies(self) -> None:
        """The messages end with the session."""
        for outgoing in self.queued():
            outgoing.end_copy()
        if self.inflight is not None:
            for outgoing in self.inflight.messages():
                outgoing.end_copy()
