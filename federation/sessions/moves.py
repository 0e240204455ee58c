"""Sessions on their way from one node to another: those that leave, those that come, and those that go on.

A session leaves to the node that has claimed its client (departing), and is a whole one there when all nodes send their
messages there (arriving). Where the client moves faster than its session, what comes goes on after it (`passed_on`).
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import cast

from broker.broker import Broker
from broker.message import NEVER
from broker.session.session import Session
from broker.store.kinds import OUTGOING, RECEIVED, SESSION
from federation.sessions.arriving import Arriving, Epoch
from federation.sessions.asked_keepers import AskedKeepers
from federation.sessions.content import checked_hand, is_left_out, take_head, take_outgoing, take_received
from federation.sessions.counters import SessionCounters
from federation.sessions.departing import OLDER_SECONDS, Departing, Marks, forget
from federation.sessions.home import NOT_TAKEN, Head, Home
from federation.sessions.homes import Homes
from federation.sessions.passed_on import PassedOn
from federation.sessions.promised import Claims, Over, remember, take_claim
from federation.sessions.relayed import Came, Relayed
from federation.sessions.switches import Nodes, Switches
from federation.sessions.wire import (
    AWAITED,
    BEGUN,
    BLOCK_OF,
    COPIED,
    HAND,
    HANDED,
    HEAD_END,
    INCLUDES,
    Record,
    SessionFrame,
)
from federation.stream.sender import PeerSender


class Moves:
    """departing  by client id, in the order of their epochs
    passed_on  where what still comes of a session goes
    heads      by node and client id, until their end has come; by "" what came before its session
    due        those that leave and have something to do at the end of this turn
    over       sessions that have ended here
    relayed    messages of blocks for lost homes
    """

    def __init__(self, name: str, broker: Broker, homes: Homes, counters: SessionCounters, nodes: Nodes) -> None:
        self.departing = homes.departing
        self.passed_on = PassedOn(broker, homes, counters)
        self.heads: dict[tuple[str, str], Head] = {}
        self.due: dict[Departing, None] = {}
        self.over = Over(broker, counters)
        self.relayed = Relayed()
        self.asked_keepers = AskedKeepers(broker, self.departing, homes.senders, counters)
        self.counters = counters
        self.name = name
        self._broker = broker
        self.switches = Switches(name, broker, homes, counters, nodes)
        self._homes = homes
        self._senders = homes.senders
        # By client id: the node that a session has left to, the mark of what it has to get, and the claim here.
        self._left: OrderedDict[str, tuple[PeerSender, int, int]] = OrderedDict()

    def depart(
        self, session: Session, home: Home, sender: PeerSender, epoch: Epoch, marks: Marks, now: float
    ) -> Departing:
        waiting = {self.name: None, **self._homes.sharing()}
        is_starting = now < self._homes.starting_until  # it may not know all nodes yet
        older_until = now + OLDER_SECONDS if is_starting or len(waiting) <= len(self._senders) else now
        if not session.subscriptions:  # nobody sends here
            waiting.clear()
        departing = Departing(
            session, epoch, home.counter, sender.name, self.name, waiting, home.arriving, marks, older_until
        )
        departing.own_since = home.own_since
        departing.brought = home.brought
        if sender.knows_adoptions:
            departing.came(home.adopted, home.includes, home.unstored)
        self._homes.leaves(home, epoch, now)
        journal = self._homes.journal
        if journal is not None:
            if home.record:
                journal.drop(home.record)
            if session.records is not None:
                departing.record = journal.keep(departing)
        self.asked_keepers.passes(session.client_id, self._homes.epoch_of(home), home.adopted)
        self.counters.departed += 1
        self.begin_departure(departing)
        return departing

    def begin_departure(self, departing: Departing) -> None:
        session = departing.session
        departing.relayed = self.relayed
        if self._broker.sessions.get(session.client_id) is session:
            del self._broker.sessions[session.client_id]
        self._broker.timers.cancel(session)
        session.sources = departing
        if session.subscriptions:
            self.switches.note(session.client_id, (departing.since, self._broker.identity.store_id))
        departing.switched(self.name, self.switches.sent_to(session.client_id, []), self._broker.now)
        self.departing.setdefault(session.client_id, []).append(departing)
        departing.due = self.due
        self.due[departing] = None
        self.passed_on.note(session.client_id, departing.home, departing.epoch)

    def bring_back(self, departing: Departing, home: Home) -> None:
        """The client is back before anything of its session has left."""
        self._drop_departing(departing)
        session = departing.session
        self._broker.sessions[home.client_id] = session
        self._broker.timers.schedule(session)
        session.sources = departing.before
        home.adopted, home.includes, home.unstored = departing.adopted, departing.includes, departing.unstored
        home.own_since = departing.own_since
        home.brought = departing.brought
        if departing.before is not None:
            self._homes.arrives(home, departing.before)
        switched = departing.switched_nodes()
        if switched or departing.is_known_home():  # what nodes send to the other home comes from there
            arriving = home.arriving or self.arrives(home, session, {})
            arriving.waiting.update(dict.fromkeys(switched))
            arriving.homes[departing.home] = None
            if departing.home in self._senders:
                arriving.expect(departing.epoch, self._broker.now)
            if self.name in switched:
                epoch = self._homes.epoch_of(home)
                epoch = self.switches.switch(home.client_id, epoch, [departing.home], self._broker.now)
                self.switched(self.name, home.client_id, epoch)
        if home.arriving is not None and home.arriving.waits_for_older():
            self._homes.wait_for_hand_over(home, home.arriving.until)
        self._homes.tell_move(home)
        self._homes.keep(home)

    def _take_back(self, departing: Departing, now: float) -> None:
        """The node that has claimed the session is gone: it stays here, unless the client has another one by now."""
        session = departing.session
        client_id = session.client_id
        if departing.before is not None:
            departing.before.wait_no_more(now)
        if client_id in self._homes.by_client:
            session.sources = None
            self._drop_departing(departing)
            self._broker.end_session(session, now)
            return
        self.passed_on.newest.pop(client_id, None)
        counter = self._homes.counter_above(departing.epoch[0])
        home = self._homes.by_client[client_id] = self._homes.made(client_id, counter)
        departing.before = None
        self.bring_back(departing, home)
        self._homes.tell_claim(client_id)

    def _drop_departing(self, departing: Departing) -> None:
        client_id = departing.session.client_id
        departings = self.departing[client_id]
        departings.remove(departing)
        if not departings:
            del self.departing[client_id]
        self.due.pop(departing, None)
        if departing.record and self._homes.journal is not None:
            self._homes.journal.drop(departing.record)

    def switched(self, name: str, client_id: str, epoch: Epoch) -> None:
        """Messages of the node `name` that follow are for the home with this epoch."""
        home = self._homes.by_client.get(client_id)
        if home is not None and home.arriving is not None:
            home.arriving.switched(name, epoch, self._homes.epoch_of(home))
            self._homes.keep(home)
        for departing in self.departing.get(client_id, ()):
            departing.switched(name, epoch, self._broker.now)
            self._changed(departing)

    def move_heard(self, name: str, frame: SessionFrame, names: list[str], now: float) -> None:
        """The session arrives at the node `name`, and these were its homes before. What this node publishes goes there from now
        on, and says so to both."""
        client_id, epoch = frame.client_id, frame.epoch
        sent_to = self.switches.sent_to(client_id, names)
        if epoch < sent_to:
            self.switches.say(client_id, sent_to, [name], now)
            return
        passed = self.passed_on.newest.get(client_id)
        if client_id not in self._homes.by_client and (passed is None or passed[1] < epoch):
            self.passed_on.note(client_id, name, epoch)
        for departing in self.departing.get(client_id, ()):
            sender = self._senders.get(departing.home)
            if departing.home == name and departing.before is not None:
                self._homes.hand_over_there(departing.before, names, now)
                self.due[departing] = None
            if departing.marks is not None and departing.home in names and departing.epoch < epoch:
                if sender is not None and not sender.is_living:  # the other node has adopted what that home had
                    departing.home, departing.epoch = name, epoch
                    self._changed(departing)
        leaving = self._leaving(client_id)
        if leaving is not None and epoch < leaving.said:  # nothing comes there any more
            self.switches.say(client_id, leaving.said, [name, *names], now)
        elif self.name in names or leaving is None:
            self.switches.say_left(client_id, epoch, name, names, now)
            self.switches.switch(client_id, epoch, [name, *names], now)
            self.switched(self.name, client_id, epoch)
        else:  # it is for what leaves here, whose subscriptions are not there yet, and for no home before that
            leaving.said = epoch
            self._changed(leaving)
            self.switches.say(client_id, epoch, [home for home in names if home != name], now)

    def _leaving(self, client_id: str) -> Departing | None:
        """Return the session that leaves, and gets messages of this node: none without subscriptions does."""
        for departing in self.departing.get(client_id, ()):
            if self.name in departing.waiting and departing.session.subscriptions:
                return departing
        return None

    def on_way(self, client_id: str) -> Claims:
        """Return the claim of the newest session of the client that leaves here, or has left and has not come to its next home
        yet, and has not ended here since. Of one that another node has adopted nobody includes that claim: what is in it that
        node hands on, and promises."""
        for departing in reversed(self.departing.get(client_id, [])):
            if not (departing.is_adopted and departing.is_handed):
                return self.over.on_way(client_id, departing.since)
        left = self._left.get(client_id)
        if left is not None and client_id not in self.departing:
            sender, mark, since = left
            if self._senders.get(sender.name) is sender and not sender.outbox.is_done(mark):
                return self.over.on_way(client_id, since)
            del self._left[client_id]
        return {}

    def _changed(self, departing: Departing) -> None:
        if departing.record and self._homes.journal is not None:
            self._homes.journal.change(departing.record, departing)

    def take(self, frame: SessionFrame, now: float, is_copy: bool = False) -> Home | None:
        """Records of a session that another node has, or had, or its copy, come here. Return its home if it can be served."""
        homes, contents, since, adopted = checked_hand(frame.more)
        client_id = frame.client_id
        followed = None if is_copy else self.passed_on.home_of_head(client_id, homes[0], since, frame.epoch)
        if followed is not None:
            self.passed_on.send(frame, contents, followed, now)
            return None
        home = self._homes.by_client.get(client_id)
        if home is not None and 0 < frame.epoch[0] < home.first and self._goes_with(frame, homes[0], now):
            return None
        if home is None:
            passed = self.passed_on.newest.get(client_id)
            # Epochs rise on the way: nothing goes in a circle. A claim that is not known was forgotten with a process; if there
            # is another home, it refuses this one.
            if passed is None or frame.epoch > passed[1]:
                self.passed_on.newest.pop(client_id, None)
                home = self._homes.by_client[client_id] = self._homes.made(client_id, frame.epoch[0])
                self._homes.tell_claim(client_id)
            else:
                self._go_on(frame, homes[0], contents, passed, now)
                return None
        elif frame.epoch > self._homes.epoch_of(home):
            self._raise(home, frame.epoch)
        served: Home | None = None
        came = Came(self.relayed, self._broker.identity, adopted, self._senders.get(homes[0]))
        key = (homes[0], client_id)
        for record in contents:
            kind = record[0]
            head = self.heads.get(key)
            if kind == HEAD_END:
                if head is not None:
                    home.adopts_told(adopted)
                    self._head_came(home, head, homes, since, is_copy, now)
                    served = home
            elif kind == HANDED:
                if home.arriving is not None:
                    home.arriving.handed(homes[0], now, since)
                    if homes[0] in self._senders:
                        take_claim(home.handed, self._senders[homes[0]].peer_store_id, since)
                    self._homes.keep(home)
                elif client_id not in self._broker.sessions:
                    self._wait_for_session(client_id, homes, record, since)
            elif kind == SESSION:
                if head is not None:  # of an older hand-over
                    head.forget(self.heads, self._homes.journal)
                self.heads[key] = Head(homes[0], client_id, [record])
            elif kind in (COPIED, BLOCK_OF):
                mark = came.read(record, home.includes, home.unstored, home.own_since, home.brought)
                if head is not None:
                    head.records.append(mark)
            elif kind == OUTGOING and is_left_out(self._broker, client_id, record, came):
                pass
            elif came.is_block and kind == RECEIVED:  # of the own copy
                if not came.is_known and home.taken_at == NOT_TAKEN and client_id in self._broker.sessions:
                    take_received(self._broker.sessions[client_id], cast(int, record[2]))
            elif head is not None:
                head.records.append(record)
            elif kind == OUTGOING:
                session = self._broker.sessions.get(client_id)
                if session is None:
                    self._wait_for_session(client_id, homes, record, since)
                else:
                    take_outgoing(self._broker, session, record, False, came, now)
        if home.arriving is not None:
            home.arriving.goes_on(now)
        head = self.heads.get(key)
        if head is not None:
            head.keep(self._homes.journal)
        return served

    def _raise(self, home: Home, epoch: Epoch) -> None:
        """The session comes for a later claim of this node, which no client waited for until its end."""
        home.counter = epoch[0]
        home.number = self._homes.next_number()
        self._homes.keep(home)
        self._homes.tell_claim(home.client_id)
        self._homes.tell_move(home)

    def _go_on(self, frame: SessionFrame, home: str, records: list[Record], to: tuple[str, Epoch], now: float) -> None:
        """The session has gone on to another node, or has ended, while records of it come."""
        if self._goes_with(frame, home, now):
            return
        head = self.heads.get((home, frame.client_id))
        if head is not None:  # the first part of it came while this node was the home
            head.forget(self.heads, self._homes.journal)
            records = [*head.records, *records]
        self.passed_on.send(frame, records, to, now)

    def _goes_with(self, frame: SessionFrame, home: str, now: float) -> bool:
        """Return whether the records are the rest of what a former home hands over, and the session has not gone on yet."""
        _, records, since, adopted = checked_hand(frame.more)
        if (home, frame.client_id) in self.heads:  # what is behind the first part of a head goes with that
            return False
        for departing in self.departing.get(frame.client_id, ()):
            before = departing.before
            if before is None or home not in before.handing or frame.epoch[0] > departing.since:
                continue
            self.due[departing] = None
            if records and records[0][0] == SESSION:
                before.handed(home, now)  # it was home again, and hands over another one: each of these has its own
                continue
            came = Came(self.relayed, self._broker.identity, adopted, self._senders.get(home))
            for record in records:
                if record[0] == HANDED:
                    before.handed(home, now, since)
                elif record[0] in (COPIED, BLOCK_OF):
                    since_here = before.epoch[0]
                    came.read(record, departing.includes, departing.unstored, since_here, departing.brought)
                elif record[0] == OUTGOING and not came.is_known:
                    take_outgoing(self._broker, departing.session, record, False, came, now)
            return True
        return False

    def _wait_for_session(self, client_id: str, homes: list[str], record: Record, since: int) -> None:
        """A record came before the session, whose head has taken a longer way."""
        early = self.heads.setdefault(("", client_id), Head("", client_id, []))
        early.records.append((tuple(homes), record, since))
        early.keep(self._homes.journal)

    def take_early(self, client_id: str, now: float) -> None:
        """Take the records that came before the session: it is here, or has gone on."""
        early = self.heads.get(("", client_id))
        if early is not None:
            early.forget(self.heads, self._homes.journal)
            for homes, record, *since in early.records:  # a store of an earlier build does not have the claim
                self.take(SessionFrame(HAND, client_id, (0, ""), (homes, (record,), since[0] if since else 0)), now)

    def begin(self, now: float) -> None:
        """The senders are there. What came before sessions that were asked for goes on, since nobody waits for them now."""
        for name, client_id in list(self.heads):
            if not name:
                self.take_early(client_id, now)

    def _head_came(self, home: Home, head: Head, homes: list[str], since: int, is_copy: bool, now: float) -> None:
        head.forget(self.heads, self._homes.journal)
        former = self._senders.get(homes[0])
        behind_copy = not is_copy and former is not None and home.was_not_lost(former.peer_store_id, since)
        known = self._broker.sessions.get(home.client_id)
        others_send = known is not None and bool(known.subscriptions)
        # Else the client has begun anew here.
        has_newer = known is None if home.taken_at == NOT_TAKEN else home.taken_at < since
        has_exchanges = has_newer or behind_copy
        session, packet_ids = take_head(self._broker, home.client_id, head.records, has_exchanges, self.relayed, now)
        if behind_copy:
            home.packet_ids = [*(home.packet_ids or ()), *packet_ids] or None
        elif has_newer:  # else its client is told that the session here is new until it says something
            session.is_new = BEGUN in head.records
            home.goes_on_with(session, packet_ids, since)
        is_sent_to = bool(session.subscriptions)
        for record in head.records:
            if record[0] == AWAITED:
                # An earlier build waits for nodes without subscriptions, too.
                is_sent_to = is_sent_to or bool(record[1])
                self.switches.meet(cast(tuple[str, ...], record[1]), now)
            elif record[0] == INCLUDES:
                home.include(*record[1:3])
        self.counters.arrived += 1
        arriving = home.arriving or self.arrives(home, session, {})
        if is_sent_to and not others_send and not arriving.waiting:  # none of those that send elsewhere: these say so
            arriving.waiting.update(self._homes.sharing())
        arriving.begin(homes, now, since)
        if former is not None:
            home.hands_on_rest(former.peer_store_id, since)
            arriving.includes({former.peer_store_id: since}, now)
        arriving.includes(home.includes or {}, now)
        self._homes.wait_for_hand_over(home, arriving.until)
        self._homes.keep(home)
        self._homes.tell_move(home)
        if is_sent_to:
            epoch = self.switches.switch(home.client_id, self._homes.epoch_of(home), homes, now)
            self.switched(self.name, home.client_id, epoch)
        self.take_early(home.client_id, now)
        session.pump(now)

    def store_replaced(self, name: str) -> None:
        """The node has another store than before."""
        self._homes.store_replaced(name)
        for departings in self.departing.values():
            for departing in departings:
                if departing.before is not None:
                    departing.before.store_replaced(name)
                    self._changed(departing)
                    self.due[departing] = None

    def relayed_switch(self, client_id: str, lost: str, name: str, epoch: Epoch) -> None:
        """Messages of the node for the lost home behind its switch are for the home of the client with this epoch."""
        for arriving in self._homes.arriving_of(client_id):
            arriving.relayed_switch(lost, name, epoch)
        home = self._homes.by_client.get(client_id)
        if home is not None:
            self._homes.keep(home)

    def arrives(self, home: Home, session: Session, waiting: dict[str, None]) -> Arriving:
        arriving = Arriving(session, self._homes.first_of(home), self.name, waiting)
        self._homes.arrives(home, arriving)
        return arriving

    def turn_ended(self, now: float) -> bool:
        """Hand over what can leave now. True when there is more output."""
        return any([self._hand_on(departing, now) for departing in list(self.due)])  # noqa: C419 (each of them)

    def peer_removed(self, name: str, now: float) -> None:
        """The node is no member any more."""
        self._homes.peer_removed(name, now)
        for departings in list(self.departing.values()):
            for departing in list(departings):
                departing.waiting.pop(name, None)
                if departing.before is not None:
                    departing.before.peer_removed(name, now)
                self.due[departing] = None
                if departing.home == name:
                    self._take_back(departing, now)

    def nodes(self) -> dict[str, None]:
        """Return the nodes that sessions go to or come from; some may be away."""
        names = self._homes.nodes()
        for departings in self.departing.values():
            for departing in departings:
                names[departing.home] = None
                names.update(departing.waiting)
        names.pop(self.name, None)
        return names

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return min([NEVER, *[departing.next_timeout() for departing in self.due]])

    def _hand_on(self, departing: Departing, now: float) -> bool:
        sender = self._senders.get(departing.home)
        if sender is None:
            self._take_back(departing, now)
            return True
        if departing.before is not None:
            self._homes.outwait(departing.before, now)
        departing.outwait(now)
        offset = self._broker.wall_offset
        frames = departing.take_head(now, offset)
        is_more = bool(frames)
        if frames:
            self._changed(departing)
        for frame in frames:
            sender.append_session(frame, 0, True, now)
        if departing.marks is None and not departing.asked and sender.has_room():
            queued = departing.session.queue_length()
            for frame in departing.take_messages(offset):
                sender.append_session(frame, queued - departing.session.queue_length(), True, now)
                queued = departing.session.queue_length()
                is_more = True
        # One that lives and is not reached has what it had for the session here, and says where it sends when it is.
        living = [self.name, *[name for name, other in self._senders.items() if other.reachable or other.is_living]]
        for frame in departing.take_end(living):
            sender.append_session(frame, 0, True, now)
            is_more = True
        if departing.is_over(living, now):
            self._drop_departing(departing)
            if not departing.is_adopted:
                left = sender, sender.mark(), departing.since
                remember(self._left, departing.session.client_id, left, self.counters)
            forget(self._broker, departing.session, now)
        elif departing.is_quiet():
            del self.due[departing]
        return is_more
