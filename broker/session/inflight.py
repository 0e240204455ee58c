"""QoS 1 and QoS 2 messages that were sent to a client and are not acknowledged [MQTT5 4.3, 4.4]."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.errors import ProtocolViolation
from broker.session.outgoing import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC, Outgoing

PACKET_ID_MAX: Final = 65535


class Inflight:
    """Messages by packet identifier, in the order in which they were sent first.

    window          argument of calls: how many messages may be unacknowledged, the smaller of the client's Receive Maximum
                    and `max_inflight`
    next_packet_id  where the search for a free packet identifier begins
    """

    __slots__ = ("_by_id", "_quota_used", "_resend", "next_packet_id")

    def __init__(self) -> None:
        self._by_id: dict[int, Outgoing] = {}
        self._resend: deque[Outgoing] | None = None  # messages that are still to be sent again
        self._quota_used = 0  # while there are such messages: of the send quota [MQTT5 4.9]
        self.next_packet_id = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def messages(self) -> list[Outgoing]:
        """All messages, in the order in which they were sent first."""
        return list(self._by_id.values())

    def is_resending(self) -> bool:
        """Whether messages are still to be sent again after a reconnect. New messages wait behind them."""
        return bool(self._resend)

    def has_room(self, window: int) -> bool:
        """Whether a new message may be sent."""
        return len(self._by_id) < window and not self._resend

    def free_packet_id(self) -> int:
        """A packet identifier that is not in use [MQTT-2.2.1-4]. The caller has seen that there is room."""
        packet_id = self.next_packet_id
        while packet_id in self._by_id:
            packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        return packet_id

    def add(self, outgoing: Outgoing, packet_id: int) -> None:
        """Note that the message was sent with a free packet identifier."""
        self.next_packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        outgoing.packet_id = packet_id
        outgoing.state = AWAIT_PUBACK if outgoing.qos == 1 else AWAIT_PUBREC
        self._by_id[packet_id] = outgoing

    def restore(self, messages: list[Outgoing], next_packet_id: int) -> None:
        """Add messages of an earlier process, in the order in which they were sent, with their packet identifiers and
        states."""
        for outgoing in messages:
            assert outgoing.packet_id not in self._by_id
            self._by_id[outgoing.packet_id] = outgoing
        self.next_packet_id = next_packet_id

    def discard(self, packet_id: int) -> None:
        """Remove a message that is larger than the client's new Maximum Packet Size."""
        self._remove(packet_id)

    # --- acknowledgements: False when no message has the packet identifier ---

    def acknowledge(self, packet_id: int) -> bool:
        """Handle PUBACK [MQTT5 4.3.2]. Raises ProtocolViolation for a QoS 2 message."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return False
        if outgoing.state != AWAIT_PUBACK:
            raise _wrong_kind("PUBACK", outgoing)
        self._remove(packet_id)
        return True

    def received(self, packet_id: int, failed: bool) -> bool:
        """Handle PUBREC [MQTT5 4.3.3]. failed: its reason code is 0x80 or more, which ends the exchange. Raises
        ProtocolViolation for a QoS 1 message."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return False
        if outgoing.state == AWAIT_PUBACK:
            raise _wrong_kind("PUBREC", outgoing)
        if failed:
            self._remove(packet_id)
        else:
            outgoing.state = AWAIT_PUBCOMP
            outgoing.message = None
        return True

    def completed(self, packet_id: int) -> bool:
        """Handle PUBCOMP [MQTT5 4.3.3]. Raises ProtocolViolation for a QoS 1 message, and before PUBREC."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None:
            return False
        if outgoing.state != AWAIT_PUBCOMP:
            raise _wrong_kind("PUBCOMP", outgoing)
        self._remove(packet_id)
        return True

    def _remove(self, packet_id: int) -> None:
        del self._by_id[packet_id]
        if self._quota_used:
            self._quota_used -= 1  # whether or not the message was sent again

    # --- after a reconnect ---

    def begin_resend(self) -> None:
        """The client is connected again: all messages are to be sent again, in order [MQTT-4.4.0-1]."""
        self._resend = deque(self._by_id.values()) if self._by_id else None
        self._quota_used = 0

    def end_resend(self) -> None:
        """The connection has ended."""
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
