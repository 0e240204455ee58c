"""The records of one durable session: the session, its messages, and the packet identifiers of QoS 2 messages to it."""

# compiled with mypyc
from __future__ import annotations

from broker.session.outgoing import Outgoing
from broker.store.journal import Journal


class SessionRecords:
    """The queue and the in-flight messages of a session report their changes here. QoS 0 messages have no record.

    number  of the session's own record
    """

    __slots__ = ("journal", "number")

    def __init__(self, journal: Journal, number: int) -> None:
        self.journal = journal
        self.number = number

    def add(self, outgoing: Outgoing) -> None:
        """A QoS 1 or 2 message was queued, or sent without having been queued."""
        message = outgoing.message
        assert message is not None
        self.journal.add_reference(message)
        outgoing.session_record = self.number
        outgoing.record = self.journal.add(outgoing)

    def sent(self, outgoing: Outgoing) -> None:
        """The message has a packet identifier now."""
        if outgoing.record:
            self.journal.change(outgoing.record, outgoing)
        else:
            self.add(outgoing)

    def restored(self, outgoing: Outgoing) -> None:
        """The message comes from another node, with its packet identifier."""
        if outgoing.message is not None:
            self.add(outgoing)
        else:
            outgoing.session_record = self.number
            outgoing.record = self.journal.add(outgoing)

    def received(self, outgoing: Outgoing) -> None:
        """PUBREC came for the message, which is still there; what remains is PUBREL and PUBCOMP."""
        if outgoing.record:
            self.journal.change(outgoing.record, outgoing)
            if outgoing.message is not None:
                self.journal.remove_reference(outgoing.message)

    def remove(self, outgoing: Outgoing) -> None:
        """The message was acknowledged or dropped."""
        if not outgoing.record:
            return
        if outgoing.message is not None:
            self.journal.remove_reference(outgoing.message)
        self.journal.remove(outgoing.record)
        outgoing.record = 0

    def add_received(self, packet_id: int) -> int:
        """A QoS 2 message of the client was routed. Returns the number of the record that keeps its packet identifier."""
        return self.journal.add((self.number, packet_id))

    def remove_received(self, record: int) -> None:
        """PUBREL came. PUBCOMP waits until the record is gone."""
        if record > 0:
            self.journal.remove(record)
        self.journal.is_touched = True
