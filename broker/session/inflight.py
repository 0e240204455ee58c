"""QoS 1 and QoS 2 towards a client: what was sent and is not acknowledged [MQTT5 4.3, 4.4]."""

from __future__ import annotations

from collections import deque
from typing import Final

from broker.session.outgoing import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC, Outgoing

PACKET_ID_MAX: Final = 65535


class Inflight:
    """Messages by packet identifier, in the order in which they were sent first.

    `window` in its calls is how many may be unacknowledged: the smaller of the client's Receive Maximum and `max_inflight`.
    next_packet_id  where the search for a free identifier begins
    """

    __slots__ = ("_by_id", "_resend", "next_packet_id")

    def __init__(self) -> None:
        self._by_id: dict[int, Outgoing] = {}
        self._resend: deque[Outgoing] | None = None
        self.next_packet_id = 1

    def __len__(self) -> int:
        return len(self._by_id)

    def messages(self) -> list[Outgoing]:
        return list(self._by_id.values())

    def is_resending(self) -> bool:
        """What the client had before its reconnect has not all been sent again. New messages wait behind it."""
        return bool(self._resend)

    def has_room(self, window: int) -> bool:
        """Whether a new message may be sent."""
        return len(self._by_id) < window and not self._resend

    def free_packet_id(self) -> int:
        """An identifier that is not in use. The caller has seen that there is room."""
        packet_id = self.next_packet_id
        while packet_id in self._by_id:
            packet_id = packet_id + 1 if packet_id < PACKET_ID_MAX else 1
        return packet_id

    def add(self, outgoing: Outgoing, packet_id: int) -> None:
        """The message was sent with a free packet identifier."""
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
        """The message cannot be sent again: it is larger than what the client takes now."""
        self._by_id.pop(packet_id, None)

    # --- acknowledgements: False for a packet identifier that waits for no such packet ---

    def acknowledge(self, packet_id: int) -> bool:
        """PUBACK [MQTT5 4.3.2]."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None or outgoing.state != AWAIT_PUBACK:
            return False
        del self._by_id[packet_id]
        return True

    def received(self, packet_id: int, failed: bool) -> bool:
        """PUBREC [MQTT5 4.3.3]; with an error code it ends the exchange."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None or outgoing.state not in (AWAIT_PUBREC, AWAIT_PUBCOMP):
            return False
        if failed:
            del self._by_id[packet_id]
        else:
            outgoing.state = AWAIT_PUBCOMP
            outgoing.message = None
        return True

    def completed(self, packet_id: int) -> bool:
        """PUBCOMP [MQTT5 4.3.3]."""
        outgoing = self._by_id.get(packet_id)
        if outgoing is None or outgoing.state != AWAIT_PUBCOMP:
            return False
        del self._by_id[packet_id]
        return True

    # --- after a reconnect ---

    def begin_resend(self) -> None:
        """A client that comes back gets everything again, in order [MQTT-4.4.0-1]."""
        self._resend = deque(self._by_id.values()) if self._by_id else None

    def end_resend(self) -> None:
        """The connection is gone."""
        self._resend = None

    def next_resend(self, window: int) -> Outgoing | None:
        """The next message to send again; None when there is none, or no room in the client's window."""
        resend = self._resend
        while resend:
            if len(self._by_id) - len(resend) >= window:
                return None
            outgoing = resend.popleft()
            if self._by_id.get(outgoing.packet_id) is outgoing:  # the client may have acknowledged it meanwhile
                return outgoing
        return None
