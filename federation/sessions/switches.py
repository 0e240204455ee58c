"""The destination of this node's messages for a client: the home with the greatest epoch that it has heard of.

It says so in its streams to the new home and to the former ones (SWITCH), and never goes back: a node that was cut off may come
with an old copy of a session, and would get what another home gets.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.broker import Broker
from federation.sessions.arriving import Epoch
from federation.sessions.counters import SessionCounters
from federation.sessions.homes import Homes
from federation.sessions.wire import ADOPTED_SESSIONS, RELAY, SWITCH, encode_session_frame
from federation.stream.sender import PeerSender

# Clients whose last home is remembered, and pairs of a client and a store that was one. Policy: the oldest is forgotten; the
# node believes each home that it hears of then.
CLIENTS_MAX: Final = 65_536
NODES_MAX: Final = 4_096  # then a former home that is not known does not hear of switches, which are counted
NO_EPOCH: Final[Epoch] = (0, "")


class Nodes:
    """The other nodes behind the senders."""

    def added(self, name: str, now: float) -> PeerSender:
        """The sender to a node that other ones know, and this one does not yet."""
        raise AssertionError("a subclass implements this")


class Switches:
    """name  of this node"""

    def __init__(self, name: str, broker: Broker, homes: Homes, counters: SessionCounters, nodes: Nodes) -> None:
        self.name = name
        self._broker = broker
        self._homes = homes
        self._senders = homes.senders
        self._counters = counters
        self._nodes = nodes
        self._sent_to: OrderedDict[str, Epoch] = OrderedDict()  # by client id
        # By store id and client id: the mark of the outbox to its node behind which nothing is for the session there.
        self._left: OrderedDict[tuple[str, str], int] = OrderedDict()

    def sent_to(self, client_id: str, names: list[str]) -> Epoch:
        """Return the epoch of the home that messages of this node are for; NO_EPOCH when it is not known. names: of the homes
        of a session that arrives elsewhere. That is older than one here if it is from a copy of this store. One of another
        home, or of a store that this node had before, may have subscriptions that the one here does not have yet: the client
        has begun anew."""
        home = self._homes.by_client.get(client_id)
        session = self._broker.sessions.get(client_id)
        if home is not None and session is not None and session.subscriptions and names[:1] == [self.name]:
            return self._homes.epoch_of(home)
        return self._sent_to.get(client_id, NO_EPOCH)

    def note(self, client_id: str, epoch: Epoch) -> None:
        """They are for the home with this epoch."""
        sent_to = self._sent_to
        sent_to[client_id] = max(epoch, sent_to.get(client_id, epoch))
        sent_to.move_to_end(client_id)
        if len(sent_to) > CLIENTS_MAX:
            sent_to.popitem(last=False)

    def meet(self, names: tuple[str, ...], now: float) -> None:
        """A former home waits for these: one that this node does not know is away, and sends there until it hears of the
        move."""
        for name in names:
            if name != self.name and name not in self._senders and len(self._senders) < NODES_MAX:
                self._nodes.added(name, now)

    def switch(self, client_id: str, epoch: Epoch, names: list[str], now: float) -> Epoch:
        """They are for the home with this epoch from now on, unless they are for a later one: these nodes hear of it, and the
        one that they were for, or may have been. Return the epoch of which home they are."""
        former = self._sent_to.get(client_id)
        self.note(client_id, epoch)
        epoch = self._sent_to[client_id]
        if former is None:
            names = [*names, *self._forgotten()]
        else:
            sender = self._homes.sender_of(former[1])
            names = names if sender is None else [*names, sender.name]
        self.say(client_id, epoch, names, now)
        return epoch

    def _forgotten(self) -> list[str]:
        """Return the nodes that do not hear of a move now, and may have a session to which the process before this one sent."""
        if self._broker.identity.starts <= 1:
            return []
        return [name for name, sender in self._senders.items() if sender.moves_sessions and not sender.reachable]

    def say(self, client_id: str, epoch: Epoch, names: list[str], now: float) -> None:
        """Publishes of this node from now on are for the home with this epoch, and no more for former ones: all of them hear
        of it, or none does if the process ends first."""
        frame = encode_session_frame(SWITCH, client_id, epoch, ())
        for name in dict.fromkeys(names):
            if name == self.name:
                continue
            sender = self._senders.get(name)
            if sender is None and len(self._senders) < NODES_MAX:
                sender = self._nodes.added(name, now)
            if sender is None:
                self._counters.switches_dropped += 1
            elif sender.moves_sessions:
                sender.append_session(frame, 0, True, now)
                self._note_left(sender, client_id, epoch)

    def _note_left(self, sender: PeerSender, client_id: str, epoch: Epoch) -> None:
        key = sender.peer_store_id, client_id
        if sender.peer_store_id == epoch[1]:
            self._left.pop(key, None)
        elif key not in self._left:
            self._left[key] = sender.mark()
            if len(self._left) > CLIENTS_MAX:
                self._left.popitem(last=False)

    def has_left(self, sender: PeerSender, client_id: str) -> bool:
        """Return whether nothing of what waits for the node is for the session of the client that its store had: the node has
        acknowledged the switch. Its copies may be older."""
        mark = self._left.get((sender.peer_store_id, client_id))
        return mark is not None and sender.outbox.is_done(mark)

    def say_left(self, client_id: str, epoch: Epoch, home: str, names: list[str], now: float) -> None:
        """The node `home` may have adopted the session from copies of these: it is told before what waits for them."""
        adopter = self._senders.get(home)
        if adopter is None or not adopter.knows_adoptions:
            return
        for name in dict.fromkeys(names):
            lost = self._senders.get(name)
            if lost is not None and not lost.reachable and self.has_left(lost, client_id):
                switch = encode_session_frame(SWITCH, client_id, epoch, ())
                more = name, ADOPTED_SESSIONS, switch, 0
                frame = encode_session_frame(RELAY, "", (0, self._broker.identity.store_id), more)
                adopter.append_session(frame, 0, True, now)
