"""QoS 1 and QoS 2 messages that were sent to a client and are not acknowledged [MQTT5 4.3, 4.4]."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from broker.errors import ProtocolViolation
from broker.session.outgoing import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC, Outgoing
from broker.session.session_records import SessionRecords

PACKET_ID_MAX: Final = 65535
OLD_LOOK_MAX: Final = 16  # oldest messages of which one that is too old is given up


class Inflight:
    """Messages by packet identifier, in the order in which they were sent first.

    window          argument of calls: how many messages may be unacknowledged, the smaller of the client's Receive Maximum
                    and `max_inflight`
    next_packet_id  where the search for a free packet identifier begins
    records         of a durable session, None for none
    """

    __slots__ = ("_by_id", "_given_up", "_quota_used", "_resend", "next_packet_id", "records")

    def __init__(self, records: SessionRecords | None = None) -> None:
        self.records = records
        self._by_id: dict[int, Outgoing] = {}
        self._resend: deque[Outgoing] | None = None  # messages that are still to be sent again
        self._given_up: dict[int, None] | None = None  # packet identifiers that the client still uses
        self._quota_used = 0  # while there are such messages: of the send quota [MQTT5 4.9]
        self.next_packet_id = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def messages(self) -> list[Outgoing]:
        """All messages, in the order in which they were sent first."""
        return list(self._by_id.values())

    def first(self) -> Outgoing | None:
        """The message that was sent first, None for none."""
        return next(iter(self._by_id.values()), None)

    def find(self, packet_id: int) -> Outgoing | None:
        """The message with the packet identifier, None for none."""
        return self._by_id.get(packet_id)

    def is_resending(self) -> bool:
        """Return whether messages are still to be sent again after a reconnect. New messages wait behind them."""
        return bool(self._resend)

    def has_room(self, window: int) -> bool:
        """Return whether a new message may be sent."""
        count = len(self._by_id)
        if self._given_up is not None:
            count += len(self._given_up)
        return count < window and not self._resend

    def free_packet_id(self) -> int:
        """A packet identifier that is not in use [MQTT-2.2.1-4]. The caller has seen that there is room."""
        packet_id = self.next_packet_id
        while packet_id in self._by_id or (self._given_up is not None and packet_id in self._given_up):
            packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        return packet_id

    def add(self, outgoing: Outgoing, packet_id: int, now: float) -> None:
        """Note that the message was sent with a free packet identifier."""
        self.next_packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        outgoing.packet_id = packet_id
        outgoing.sent_at = now
        outgoing.state = AWAIT_PUBACK if outgoing.qos == 1 else AWAIT_PUBREC
        self._by_id[packet_id] = outgoing
        if self.records is not None:
            self.records.sent(outgoing)

    def restore(self, outgoing: Outgoing) -> None:
        """Add the next message of an earlier process, with its packet identifier and state. The order is that in which they
        were sent."""
        packet_id = outgoing.packet_id
        self._by_id[packet_id] = outgoing
        self.next_packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1

    def go_on(self, outgoing: Outgoing, is_connected: bool, window: int) -> bool:
        """Add a message that another session of the client has sent to it, as it is there. False when its packet identifier is
        that of another message here, and when it would have to be sent again and there is no room for it."""
        packet_id = outgoing.packet_id
        if packet_id in self._by_id or (self._given_up is not None and packet_id in self._given_up):
            return False
        if is_connected:
            count = len(self._by_id) + (0 if self._given_up is None else len(self._given_up))
            if outgoing.state != AWAIT_PUBCOMP and count >= window:
                return False
            if self._resend is None:
                self._resend = deque()
            self._resend.append(outgoing)
        self._by_id[packet_id] = outgoing
        return True

    def discard(self, packet_id: int) -> None:
        """Remove a message that the client does not get: it is larger than its new Maximum Packet Size, or handed over."""
        self._remove(packet_id)

    def give_up_one(self, sent_before: float) -> Outgoing | None:
        """Drop one of the oldest messages if it was sent before that time. None when there is none; so it is after PUBREC,
        and while messages are still to be sent again.

        Its packet identifier and its place in the window stay in use until the client acknowledges it or disconnects
        [MQTT-2.2.1-4] [MQTT-3.3.4-9]."""
        if self._resend:
            return None
        for packet_id, outgoing in islice(self._by_id.items(), OLD_LOOK_MAX):
            if outgoing.message is not None and outgoing.sent_at < sent_before:
                if self.records is not None:
                    self.records.remove(outgoing)
                outgoing.end_copy()
                del self._by_id[packet_id]
                if self._given_up is None:
                    self._given_up = {}
                self._given_up[packet_id] = None
                return outgoing
        return None

    # --- acknowledgements: False when no message has the packet identifier ---

    def acknowledge(self, packet_id: int) -> bool:
        """Handle PUBACK [MQTT5 4.3.2]. Raises ProtocolViolation for a QoS 2 message."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return self._end_given_up(packet_id)
        if outgoing.state != AWAIT_PUBACK:
            raise _wrong_kind("PUBACK", outgoing)
        self._remove(packet_id)
        return True

    def received(self, packet_id: int, failed: bool) -> bool:
        """Handle PUBREC [MQTT5 4.3.3]. failed: its reason code is 0x80 or more, which ends the exchange. Raises
        ProtocolViolation for a QoS 1 message."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return failed and self._end_given_up(packet_id)
        if outgoing.state == AWAIT_PUBACK:
            raise _wrong_kind("PUBREC", outgoing)
        if failed:
            self._remove(packet_id)
        elif outgoing.state != AWAIT_PUBCOMP:
            outgoing.state = AWAIT_PUBCOMP
            if self.records is not None:
                self.records.received(outgoing)
            outgoing.message = None
        return True

    def completed(self, packet_id: int) -> bool:
        """Handle PUBCOMP [MQTT5 4.3.3]. Raises ProtocolViolation for a QoS 1 message, and before PUBREC."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return self._end_given_up(packet_id)
        if outgoing.state != AWAIT_PUBCOMP:
            raise _wrong_kind("PUBCOMP", outgoing)
        self._remove(packet_id)
        return True

    def _end_given_up(self, packet_id: int) -> bool:
        """The exchange of a message that was given up is over. PUBREC goes on with PUBREL and PUBCOMP."""
        if self._given_up is not None:
            self._given_up.pop(packet_id, None)
        return False

    def _remove(self, packet_id: int) -> None:
        outgoing = self._by_id[packet_id]
        if self.records is not None:
            self.records.remove(outgoing)
        if outgoing.copy is not None:
            outgoing.end_copy()
        del self._by_id[packet_id]
        if self._quota_used:
            self._quota_used -= 1  # whether or not the message was sent again

    # --- after a reconnect ---

    def begin_resend(self) -> None:
        """The client is connected again: all messages are to be sent again, in order [MQTT-4.4.0-1]."""
        self._resend = deque(self._by_id.values()) if self._by_id else None
        self._given_up = None
        self._quota_used = 0

    def end_resend(self) -> None:
        """Nothing is left to be sent again, or the connection has ended."""
        self._resend = None
        self._quota_used = 0

    def next_resend(self, window: int) -> Outgoing | None:
        """The next message to send again; None when none is left, or the client's window has no room."""
        resend = self._resend
        while resend:
            if self._quota_used >= window:
                return None
            outgoing = resend.popleft()
            if self._by_id.get(outgoing.packet_id) is outgoing:  # else the client has acknowledged it in the meantime
                self._quota_used += 1
                return outgoing
        self.end_resend()
        return None


def _wrong_kind(name: str, outgoing: Outgoing) -> ProtocolViolation:
    expected = ("no packet", "PUBACK", "PUBREC", "PUBCOMP")[outgoing.state]
    return ProtocolViolation(
        f"{name} for packet identifier {outgoing.packet_id}, a QoS {outgoing.qos} message that awaits {expected} "
        "[MQTT5 4.3.2, 4.3.3]"
    )
