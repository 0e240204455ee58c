"""Acknowledgements to the upstream that wait until the other nodes of the cluster have the messages (ack-mode on-confirm).

A message is acknowledged by this node when it is stored here. Other nodes with interest get it as events. When each of them
that lives has acknowledged its events, the node of the link may die for good.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
from broker.hooks import Peer
from broker.message import NEVER

HELD_MESSAGES_MAX: Final = 65_535  # there are no more packet identifiers, whatever Receive Maximum the upstream keeps


class Confirmation:
    """Of one connection. `begin` and `end` stand around each call that hands messages to the broker.

    waiting   number of held pieces
    messages  number of messages whose acknowledgement is held
    """

    def __init__(self, broker: Broker, is_resumed: bool) -> None:
        """`is_resumed`: the upstream may send messages again that are on their way to the other nodes since the connection
        before. They are dropped as duplicates here, and acknowledged when every node has what waits for it now."""
        self.waiting = 0
        self.messages = 0
        self._broker = broker
        self._positions: list[tuple[Peer, int]] = []
        # Nodes that got messages whose acknowledgement has not come.
        self._touched: dict[Peer, None] = dict.fromkeys(broker.forwarder.peers() if is_resumed else ())
        self._held: deque[tuple[list[tuple[Peer, int]], bytes, int, float]] = deque()

    def begin(self) -> None:
        """Messages are handed to the broker."""
        self._positions = [(peer, peer.position()) for peer in self._broker.forwarder.peers()]

    def end(self) -> None:
        """They were handed over: the nodes whose queues have grown got some of them."""
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
        """What may go to the upstream by now, in order."""
        parts: list[bytes] = []
        held = self._held
        while held and all(peer.is_done(mark) for peer, mark in held[0][0]):
            _, acks, count, _ = held.popleft()
            parts.append(acks)
            self.messages -= count
        self._forget(len(parts))
        return b"".join(parts)

    def is_overfull(self) -> bool:
        """Whether more is held than an upstream can have in flight: it breaks the protocol."""
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
