"""QoS 2 messages that a client has sent, until it releases their packet identifiers [MQTT5 4.3.3]."""

# compiled with mypyc
from __future__ import annotations

from broker.routing.subscriber import Subscriber
from broker.session.session_records import SessionRecords


class ReceivingSession(Subscriber):
    """incoming  packet identifiers of QoS 2 messages that were received and not released yet, with the numbers of their
              records (0 for none); None for none
    records   in the store, None for a session that is not durable
    """

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.incoming: dict[int, int] | None = None
        self.records: SessionRecords | None = None

    def is_unreleased(self, packet_id: int) -> bool:
        """Return whether a QoS 2 message with the packet identifier was received and not released yet."""
        return self.incoming is not None and packet_id in self.incoming

    def unreleased_length(self) -> int:
        return 0 if self.incoming is None else len(self.incoming)

    def note_received(self, packet_id: int) -> None:
        """A QoS 2 message was routed. It is not routed again until PUBREL releases its packet identifier."""
        if self.incoming is None:
            self.incoming = {}
        self.incoming[packet_id] = 0 if self.records is None else self.records.add_received(packet_id)

    def release(self, packet_id: int) -> bool:
        """PUBREL. False for an unknown packet identifier."""
        record = -1 if self.incoming is None else self.incoming.pop(packet_id, -1)
        if self.records is not None:
            self.records.remove_received(record)
        return record >= 0
