"""QoS 2 messages that a client has sent, until it releases their packet identifiers [MQTT5 4.3.3]."""

# compiled with mypyc
from __future__ import annotations

from broker.routing.subscriber import Subscriber
from broker.session.session_records import SessionRecords


class ReceivingSession(Subscriber):
    """incoming  packet identifiers of QoS 2 messages that were received and not released yet, with the numbers of their
              records (0 for none); None for none
    earlier   those of them that came on another connection, and whether the client may have had another session since, which
              used them; None for none
    records   in the store, None for a session that is not durable
    """

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.incoming: dict[int, int] | None = None
        self.earlier: dict[int, bool] | None = None
        self.records: SessionRecords | None = None

    def is_unreleased(self, packet_id: int) -> bool:
        """Return whether a QoS 2 message with the packet identifier was received and not released yet."""
        return self.incoming is not None and packet_id in self.incoming

    def is_repeated(self, packet_id: int, is_resent: bool) -> bool:
        """Return whether a PUBLISH is one of those: until PUBREL any further one is [MQTT-4.3.3-10]. But where the client may
        have had another session on another node, it has reused the packet identifier of another connection when the PUBLISH
        has no DUP, which one that is sent again has [MQTT-3.3.1-1]."""
        if not self.is_unreleased(packet_id):
            return False
        if self.earlier is None or not self.earlier.pop(packet_id, False) or is_resent:
            return True
        self.release(packet_id)
        return False

    def note_earlier(self, packet_id: int) -> None:
        """The message with the packet identifier came on a connection to another node."""
        if self.earlier is None:
            self.earlier = {}
        self.earlier[packet_id] = True

    def note_attached(self, may_be_elsewhere: bool) -> None:
        """There is a new connection. may_be_elsewhere: other nodes may have had a session of the client since the last one."""
        self.earlier = dict.fromkeys(self.incoming, may_be_elsewhere) if self.incoming else None

    def unreleased_length(self) -> int:
        """Return how many of the present connection are not released: the Receive Maximum is not kept over connections
        [MQTT5 4.9]. One that is sent again counts."""
        if self.incoming is None:
            return 0
        return len(self.incoming) if self.earlier is None else len(self.incoming) - len(self.earlier)

    def note_received(self, packet_id: int) -> None:
        """A QoS 2 message was routed. It is not routed again until PUBREL releases its packet identifier."""
        if self.incoming is None:
            self.incoming = {}
        self.incoming[packet_id] = 0 if self.records is None else self.records.add_received(packet_id)

    def release(self, packet_id: int) -> bool:
        """PUBREL. False for an unknown packet identifier."""
        record = -1 if self.incoming is None else self.incoming.pop(packet_id, -1)
        if self.earlier is not None:
            self.earlier.pop(packet_id, None)
        if self.records is not None:
            self.records.remove_received(record)
        return record >= 0
