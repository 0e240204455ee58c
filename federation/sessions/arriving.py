"""A session that comes from the node that was its home.

Each node says once, in both of its event streams, from where on its messages are for the new home (SWITCH). Until then the
former home takes them, and hands them over with all that it has. What the other nodes send here directly waits until the former
home has handed over everything, so that the messages of a publisher stay in order; a former home that hands over nothing for
HANDING_SECONDS_MAX is not waited for; one that lives, not for LIVING_SECONDS_MAX.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.counters import DROP_SESSION_ENDED
from broker.message import NEVER, Message
from broker.publisher import Publisher, source_of
from broker.routing.sources import Sources
from broker.session.outgoing import Outgoing, expiry_in_queue
from broker.session.queue import MessageQueue
from broker.session.session import Session
from broker.store.journal import checked
from broker.store.shapes import count_of

Epoch = tuple[int, str]
"""(counter, store id) of a claim (federation/sessions/home.py)."""

NO_HOME: Final[Epoch] = (0, "")
HANDING_SECONDS_MAX: Final = 2.0
LIVING_SECONDS_MAX: Final = (
    15.0  # for a node that others do not take for failed: it has much to do, or waits for others
)


class Arriving(Sources):
    """epoch    of the first claim of this node since it is the home
    handing  nodes that hand over what they have: the former home, and after a partition others that were it, too; with the
             counters of their claims, 0 where it is not known
    homes    those that did, too, and those from which they had it
    waiting  nodes that have not said that their messages are for this one
    move_number  of the last MOVE: all nodes are to hear of all former homes; 0 for none
    lost     ids of the lost stores from whose copies it comes, by the names of these homes
    relayed  by lost home and node: for which home the messages of the node are that it has for the lost one, by its epoch
    relaying  nodes that have not relayed all that they had for a lost home, with the id of its store: the session is not whole
             before; in memory
    expected  homes that will hand over, as others say, and of which nothing has come: their counters by store id
    elsewhere  home with a greater epoch than this one that nodes have said to send to, NO_HOME for none; in memory
    until    when `handing` and `expected` are not waited for any more
    quiet_since  nothing was handed over
    """

    def __init__(self, session: Session, epoch: Epoch, own_name: str, waiting: dict[str, None]) -> None:
        self.session = session
        self.epoch = epoch
        self.handing: dict[str, int] = {}
        self.homes: dict[str, None] = {}
        self.waiting = waiting
        self.lost: dict[str, str] = {}
        self.relayed: dict[tuple[str, str], Epoch] = {}
        self.relaying: dict[str, str] = {}
        self.expected: dict[str, int] = {}
        self.elsewhere = NO_HOME
        self.move_number = 0
        self.until = NEVER
        self.quiet_since = 0.0
        self._own_name = own_name
        self._later = MessageQueue(session.records)

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """Part of a record: (counter, store id, False, nodes that hand over, former homes, nodes whose messages still go
        there). An earlier build has True for a session that takes the messages of all nodes."""
        counter, store_id = self.epoch
        return counter, store_id, False, tuple(self.handing), tuple(self.homes), tuple(self.waiting)

    def lineage(self) -> tuple[object, ...]:
        """Another part: `lost` and `relayed`."""
        relayed = [(lost, name, *epoch) for (lost, name), epoch in self.relayed.items()]
        return tuple(self.lost.items()), tuple(relayed)

    def take_lineage(self, values: object) -> None:
        """Take what `lineage` gave. Raises ValueError and TypeError for what no node has written."""
        stores, relayed = checked(tuple, values)
        for home, store_id in checked(tuple, stores):
            self.lost[checked(str, home)] = checked(str, store_id)
        for lost, name, counter, store_id in checked(tuple, relayed):
            epoch = count_of(counter), checked(str, store_id)
            self.relayed_switch(checked(str, lost), checked(str, name), epoch)

    def restore(self, handing: tuple[str, ...], homes: tuple[str, ...], now: float) -> None:
        self.handing = dict.fromkeys(handing, 0)
        self.homes = dict.fromkeys(homes)
        self.goes_on(now)

    def begin(self, homes: list[str], now: float, since: int = 0) -> None:
        """The first of these nodes hands over what it has, since the claim with this counter; the others handed it over to that
        one."""
        self.handing[homes[0]] = max(since, self.handing.get(homes[0], 0))
        for home in homes:
            self.homes[home] = None
        self.goes_on(now)

    def expect(self, epoch: Epoch, now: float) -> None:
        """There is a home with this epoch, too, which hands over what it has when it hears of the claim here."""
        self.expected[epoch[1]] = max(epoch[0], self.expected.get(epoch[1], 0))
        self.goes_on(now)

    def includes(self, stores: dict[str, int], now: float) -> None:
        """What these homes had, they hand over by now, or others for them (Home.includes)."""
        for store_id, counter in list(self.expected.items()):
            if stores.get(store_id, -1) >= counter:
                del self.expected[store_id]
                if not self.waits_for_older():
                    self._deliver_later(now)

    def does_not_come(self, store_id: str, now: float) -> None:
        """The home with this store hands over what it has to the next home of the session, and not here."""
        if self.expected.pop(store_id, None) is not None and not self.waits_for_older():
            self._deliver_later(now)

    def waits_for_older(self) -> bool:
        """Return whether what comes directly is newer than what is still handed over."""
        return bool(self.handing) or bool(self.expected)

    def is_whole(self) -> bool:
        """Return whether nothing of before is to come."""
        return not (self.waiting or self.relaying or self.waits_for_older())

    def takes(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        publisher: Publisher | None,
        now: float,
    ) -> bool:
        if not self.takes_from(source_of(publisher, self._own_name)):
            return False
        if not self.waits_for_older():
            return True
        session = self.session
        outgoing = Outgoing(message, qos, retain, identifiers, expiry_in_queue(message, session.queue_seconds_max, now))
        dropped = self._later.put(outgoing, session.queue_max, session.queue_bytes_max, now)
        if dropped is not None:
            for reason, dropped_qos in dropped:
                session.drop(reason, dropped_qos)
        return False

    def takes_from(self, node: str) -> bool:
        """Return whether messages of the node are for the session here."""
        return node not in self.waiting

    def waiting_messages(self) -> list[object]:
        return list(self._later.messages())

    def goes_on(self, now: float) -> None:
        """Something was handed over."""
        if self.waits_for_older():
            self.quiet_since = now
            self.until = now + HANDING_SECONDS_MAX

    def handed(self, home: str, now: float, since: int = 0) -> None:
        """A node has handed over everything that it had since the claim with this counter. Where it was home again, more comes;
        0 for all that it had."""
        if home in self.handing and (not since or since >= self.handing[home]):
            del self.handing[home]
            if not self.waits_for_older():
                self._deliver_later(now)

    def moves_messages(self) -> bool:
        """Return whether nodes are to send their messages here. For a session without subscriptions none has any: the client
        has begun anew, and may have another session elsewhere, which goes on taking them until its subscriptions are here."""
        return bool(self.session.subscriptions) or bool(self.waiting)

    def switched(self, name: str, epoch: Epoch, newest: Epoch) -> None:
        """Messages of the node that follow are for the home with this epoch. newest: of the last claim of this node."""
        if epoch >= newest or (epoch >= self.epoch and epoch[1] == newest[1]):
            self.waiting.pop(name, None)

    def store_replaced(self, name: str) -> None:
        """The node has another store, which knows no home of before. Of lost ones none takes its messages."""
        self.relaying.pop(name, None)
        for home in self.homes:
            if home not in self.lost and home != self._own_name:
                return
        self.waiting.pop(name, None)

    def peer_removed(self, name: str, now: float) -> None:
        """The node is no member any more."""
        self.waiting.pop(name, None)
        self.relaying.pop(name, None)
        self.handed(name, now)

    def relayed_all(self, name: str, store_id: str, now: float) -> None:
        """The node has relayed all that it had for the lost home with this store."""
        if self.relaying.get(name) == store_id:
            del self.relaying[name]
        self.handed(name, now)

    def relayed_switch(self, lost: str, name: str, epoch: Epoch) -> None:
        """The rest of what the node had for the lost home is for the home with this epoch, unless it said a later one."""
        self.relayed[(lost, name)] = max(epoch, self.relayed.get((lost, name), epoch))

    def takes_relayed(self, lost: str, name: str) -> bool:
        """Return whether what the node had for the lost home is for this session."""
        epoch = self.relayed.get((lost, name))
        return epoch is not None and epoch[1] == self.lost.get(lost)

    def takes_passed(self, lost: str, before: str, store_id: str, name: str) -> bool:
        """Return whether what the node had for the home `before`, whose sessions the lost home had adopted, is for this
        session: it comes from there. Where the node has not said that it switched, the lost home may have got nothing of it."""
        epoch = self.relayed.get((before, name))
        return lost in self.lost and before in self.homes and (epoch is None or epoch[1] == store_id)

    def wait_no_more(self, now: float) -> None:
        """Messages that came directly wait for the former home no more."""
        if self.waits_for_older():
            self.handing.clear()
            self.expected.clear()
            self._deliver_later(now)

    def _deliver_later(self, now: float) -> None:
        self.until = NEVER
        session = self.session
        for outgoing in self._later.messages():
            if session.records is not None:
                session.records.remove(outgoing)
            if outgoing.message is not None:
                session.deliver(outgoing.message, outgoing.qos, outgoing.retain, outgoing.identifiers, None, now)
        self._later.clear()

    def drop_later(self) -> None:
        """The session ends."""
        session = self.session
        for outgoing in self._later.messages():
            if session.records is not None:
                session.records.remove(outgoing)
            session.drop(DROP_SESSION_ENDED, outgoing.qos)
        self._later.clear()
