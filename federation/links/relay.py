"""A link between its two connections: the client's end of the one at the upstream, the server's end of the one at this broker.

The local connection has no socket. The broker sees an MQTT client: its access, quotas, taps, retained messages, QoS, commits
and holds are those of any other client. Packets of messages pass from one connection to the other as they came, so a link
acknowledges to one side what the other side has acknowledged. While the broker holds the local connection, the upstream is not
read.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import MEMORY_IS_FULL, NO_REASON, Broker
from broker.codec.packets import (
    Connect,
    Packet,
    Subscribe,
    SubscribeFilter,
    Unsubscribe,
)
from broker.codec.writer import PINGREQ, encode_packet
from broker.hooks import Peer
from broker.listener_facts import ListenerFacts
from broker.message import NEVER
from broker.publisher import Publisher
from broker.session.connection import Connection
from broker.session.refused import STORE_IS_FULL
from federation.links.bridging.ends import LinkEnd
from federation.links.client import Client
from federation.links.packets import Passage, packet_end

NO_ROOM: Final = "the upstream has no room for a message (quota exceeded); it is sent again"
NOT_NOW: Final = (
    NO_ROOM,
    STORE_IS_FULL,
    MEMORY_IS_FULL,
)  # why a local connection ends whose messages may come again soon
HELD_MESSAGES_MAX: Final = 65_535  # there are no more packet identifiers, whatever Receive Maximum the upstream keeps


class Confirmation:
    """Acknowledgements to the upstream that wait until the other nodes of the cluster have the messages (ack-mode on-confirm).

    A message is acknowledged by this node when it is stored here. Other nodes with interest get it as events. When each of them
    that lives has acknowledged its events, the node of the link may die for good.

    Of one connection. `begin` and `end` stand around each call that hands messages to the broker. In the other modes nothing
    waits.

    waiting   number of held pieces
    messages  number of messages whose acknowledgement is held
    """

    def __init__(self, broker: Broker, is_on: bool, is_resumed: bool) -> None:
        """`is_on`: the mode is on-confirm. `is_resumed`: the upstream may send messages again that are on their way to the
        other nodes since the connection before. They are dropped as duplicates here, and acknowledged when every node has what
        waits for it now."""
        self.waiting = 0
        self.messages = 0
        self._broker = broker
        self._is_on = is_on
        self._positions: list[tuple[Peer, int]] = []
        # Nodes that got messages whose acknowledgement has not come.
        self._touched: dict[Peer, None] = dict.fromkeys(broker.forwarder.peers() if is_on and is_resumed else ())
        self._held: deque[tuple[list[tuple[Peer, int]], bytes, int, float]] = deque()

    def begin(self) -> None:
        """Messages are handed to the broker."""
        if self._is_on:
            self._positions = [(peer, peer.position()) for peer in self._broker.forwarder.peers()]

    def end(self) -> None:
        """The broker has routed them: the nodes whose queues have grown got some of them."""
        for peer, position in self._positions:
            if peer.position() != position:
                self._touched[peer] = None

    def pass_on(self, acks: bytes, count: int) -> bytes:
        """The broker acknowledges so many messages. Returns what may go to the upstream at once; the rest is held."""
        marks = [(peer, peer.mark()) for peer in self._touched]
        self._touched.clear()
        if not self._held and all(peer.is_done(mark) for peer, mark in marks):
            return acks
        self._held.append((marks, acks, count, self._broker.now))
        self.messages += count
        self.waiting += 1
        self._broker.acks_awaited += 1
        return b""

    def release(self) -> bytes:
        """Return what may go to the upstream by now, in order."""
        parts: list[bytes] = []
        held = self._held
        while held and all(peer.is_done(mark) for peer, mark in held[0][0]):
            _, acks, count, _ = held.popleft()
            parts.append(acks)
            self.messages -= count
        self._forget(len(parts))
        return b"".join(parts)

    def is_overfull(self) -> bool:
        """Return whether more is held than an upstream can have in flight: it breaks the protocol."""
        return self.messages > HELD_MESSAGES_MAX

    def oldest_at(self) -> float:
        """Since when the oldest acknowledgement is held; NEVER for none."""
        return self._held[0][3] if self._held else NEVER

    def close(self) -> None:
        """The connection is over: the upstream sends again what it has no acknowledgement of."""
        self._held.clear()
        self.messages = 0
        self._forget(self.waiting)

    def _forget(self, count: int) -> None:
        self.waiting -= count
        self._broker.acks_awaited -= count


class Effects:
    """Of one link. `due`: the links of the node with something to do, by id; True for one that has another state or deadline.

    local_end  why the broker has ended the local connection; "" before
    """

    def __init__(self, link_id: str, due: dict[str, bool]) -> None:
        self.local_end = ""
        self._link_id = link_id
        self._due = due

    def note(self) -> None:
        """There is output for the upstream, or it is read again or no more."""
        self._due.setdefault(self._link_id, False)

    def move(self) -> None:
        self._due[self._link_id] = True

    def end_local(self, reason: str) -> None:
        self.local_end = reason
        self.note()


LISTENER_NAME: Final = "link"
RETAINED_WHERE_NEW: Final = 1  # Retain Handling [MQTT5 3.8.3.1]
RETAINED_NEVER: Final = 2
OVERFULL: Final = "the upstream has sent more messages without an acknowledgement than there are packet identifiers"


class Relay:
    """connection  the local one
    incoming    messages and acknowledgements of the upstream; outgoing: those for it
    """

    def __init__(
        self,
        broker: Broker,
        client: Client,
        effects: Effects,
        connect: Connect,
        remote: str,
        passage: Passage,
        is_out: bool,
        end: LinkEnd,
        confirmation: Confirmation,
        now: float,
    ) -> None:
        """`connect` is the local CONNECT, of the client's protocol version; `remote` is what the broker shows as the address
        of the other end. Messages take the `passage`. `is_out`: the link pushes. `end` is the upstream's.
        `confirmation` holds acknowledgements to the upstream."""
        self.incoming = Passage() if is_out else passage
        self.outgoing = passage if is_out else Passage()
        client.incoming = self.incoming
        self._broker = broker
        self._client = client
        self._effects = effects
        self._confirmation = confirmation
        self._is_closed = False
        self._is_out = is_out
        self.connection = Connection(broker, self, remote, LISTENER_NAME, now)
        self.connection.listener = ListenerFacts(LISTENER_NAME, LISTENER_NAME, is_own=True)
        self.connection.bridge_end = end
        self.connection.receive_data(encode_packet(connect, connect.protocol_version), now)

    def subscribe(self, filters: list[bytes], qos: int, retain: bool, now: float) -> None:
        """Take the messages of these filters from the broker, and of no others that its session may have from before.
        `retain`: the other side takes retained messages."""
        session = self._broker.sessions.get(self.connection.client_id)
        known = [] if session is None else list(session.subscriptions)
        packets: list[Packet] = []
        if stale := [topic_filter for topic_filter in known if topic_filter not in filters]:
            packets.append(Unsubscribe(1, stale))
        packets.append(
            Subscribe(
                2,
                [
                    SubscribeFilter(topic_filter, qos, False, retain, RETAINED_WHERE_NEW if retain else RETAINED_NEVER)
                    for topic_filter in filters
                ],
            )
        )
        for packet in packets:
            self.connection.receive_data(encode_packet(packet, self._client.version), now)

    def pass_in(self, now: float) -> None:
        """Give what came from the upstream to the broker."""
        data = self.incoming.take()
        acks = self.incoming.take_acks()
        if acks:
            self._client.write_flow(acks)
            self._effects.note()
        if data:
            self._confirmation.begin()
            self.connection.receive_data(data, now)
            self._confirmation.end()
        if not self.incoming.has_room:
            self._broker.close_connection(self.connection, NO_REASON, NO_ROOM, now)

    def set_writable(self, is_writable: bool, now: float) -> None:
        """The upstream takes more, or does not. Then messages for it wait in their queue, and it is not read when it is given
        too many acknowledgements."""
        if is_writable:
            self._broker.connection_writable(self.connection, now)
        else:
            self.connection.writable = False

    def release(self) -> None:
        """Other nodes may have acknowledged events by now."""
        if self._confirmation.waiting and (acks := self._confirmation.release()):
            self._client.write_flow(acks)
            self._effects.note()

    def ping(self, now: float) -> None:
        """Keep the local connection alive, where the broker asks for that."""
        self.connection.receive_data(PINGREQ, now)

    def surplus(self) -> int:
        """Number of messages that the rule did not let cross."""
        return self.incoming.dropped + self.outgoing.dropped

    def is_held(self) -> bool:
        """Return whether the broker takes nothing more from the upstream now."""
        return not self._is_closed and not self.connection.closed and self.connection.held > 0

    def is_drained(self) -> bool:
        """Return whether everything is acknowledged that came from the upstream, and that waits for it."""
        if self._is_out:
            session = self.connection.session
            return session is None or (not session.is_waiting() and session.inflight_length() == 0)
        return self.in_flight() == 0 and not self.connection.held

    def in_flight(self) -> int:
        """Number of messages of the upstream that are not acknowledged to it."""
        return self.connection.acks_waiting + self._confirmation.messages

    def oldest_at(self) -> float:
        """Since when the oldest message waits for other nodes; NEVER for none."""
        return self._confirmation.oldest_at()

    def messages_received(self) -> int:
        """Number of messages that came from the upstream."""
        return 0 if self._is_out else self.connection.messages_received + self.surplus()

    def messages_sent(self) -> int:
        """Number of messages that the broker gave to the link."""
        return self.outgoing.published

    def close(self, reason: str, now: float) -> None:
        """End the local connection; a session that lasts keeps what was not acknowledged."""
        self._confirmation.close()
        if not self._is_closed:
            self._is_closed = True
            self._broker.close_connection(self.connection, NO_REASON, reason, now)

    # --- the shell of the local connection, for the end of a turn (broker/server/turns.py) ---

    def carry_out(self, connection: Connection) -> None:
        """Pass what the broker has written."""
        data = connection.take_output()
        if self._is_closed:
            return
        if data:
            self._pass_out(data)
        if connection.closed:
            self._is_closed = True
            self._effects.end_local(connection.close_text)

    def _pass_out(self, data: bytes) -> None:
        outgoing = self.outgoing
        found = outgoing.packets
        size = len(data)
        pos = 0
        while pos < size:
            stop = outgoing.walk(data, pos, size)
            # Other packets answer those of the link itself. That the broker closes the connection is seen by its phase.
            pos = stop if stop > pos else packet_end(data, pos, size)
        flow = outgoing.take()
        acks = outgoing.take_acks()
        if acks:
            self.connection.receive_data(acks, self._broker.now)
        if flow:
            flow = self._confirmation.pass_on(flow, outgoing.packets - found)
            if self._confirmation.is_overfull():
                self._broker.close_connection(self.connection, NO_REASON, OVERFULL, self._broker.now)
        self._client.write_flow(flow)
        self._effects.note()

    def set_reading(self, publisher: Publisher) -> None:
        """The broker holds or releases the local connection."""
        if self._is_closed or self.connection.closed:
            return
        self._effects.note()
        if not self.is_held():
            self._confirmation.begin()
            self.connection.resume_receiving(self._broker.now)
            self._confirmation.end()

    def abort(self) -> None:
        """The broker failed to close the connection."""
        if not self._is_closed:
            self._is_closed = True
            self._effects.end_local("internal error")
