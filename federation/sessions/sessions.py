"""The clients whose home this node is, was, or becomes: claims, and what the other nodes say of theirs.

A node claims a client that connects with an epoch above each one that it has heard of, tells all others, and waits until
those that live have answered, or for `claim_wait`. A former home closes its client and hands the session over; the client is
let in when the session is there (moves). A node that is away hears of the claim when it is back. Just after the start of this
node nobody is known to live: the client waits for all that are known from the time before, and one with a session here longer
for the keepers of the copy, which may have adopted it.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from broker.broker import Broker
from broker.codec.reason_codes import SESSION_TAKEN_OVER
from broker.message import NEVER
from broker.ownership import Claimant, Ownership
from broker.routing.subscriber import Subscriber
from broker.session.inflight import PACKET_ID_MAX
from broker.session.session import Session
from broker.store.journal import checked
from broker.store.shapes import between
from federation.sessions.answers import HEAD_SECONDS_MAX, NOBODY, SIBLING_SECONDS, Answers, wait_seconds
from federation.sessions.arriving import Epoch
from federation.sessions.counters import SessionCounters
from federation.sessions.departing import ORDER_SECONDS_MAX, Marks
from federation.sessions.home import Home
from federation.sessions.homes import Homes, is_claimed
from federation.sessions.lost_homes import LostHomes
from federation.sessions.moves import Moves
from federation.sessions.other_homes import KNOWN_SECONDS_MAX, OtherHomes
from federation.sessions.promised import Promised, claims_of
from federation.sessions.stored import restore
from federation.sessions.switches import Nodes
from federation.sessions.wire import (
    ANSWER,
    BARRIER,
    CLAIM,
    HAND,
    HANDING,
    MOVE,
    NOTHING,
    OTHER_USER,
    REFUSED,
    SWITCH,
    SessionFrame,
    decode_session_frame,
)
from federation.stream.frames import FrameError
from federation.stream.sender import PeerSender

SPREAD: Final = 40_503  # claims within milliseconds give packet identifiers that are far from each other
TAKEN_OVER: Final = "taken over by a connection to another node"


class Sessions(Ownership):
    """claim_wait  seconds
    siblings   of the node: other workers, for which a client waits longer (answers.SIBLING_SECONDS)
    homes      the clients at home here
    moves      sessions on their way
    claiming   where clients wait for the answers of other nodes
    lost       copies of sessions whose homes are lost, None without copies
    silent     nodes that have not answered this claim (home, number) in time: they are waited for when they hear it, or it ends
    active     a turn may have something to do
    """

    def __init__(
        self, name: str, broker: Broker, senders: dict[str, PeerSender], claim_wait: float, nodes: Nodes
    ) -> None:
        self.claim_wait = claim_wait
        self.siblings: dict[str, str] = {}
        self.counters = SessionCounters()
        self.homes = Homes(broker, senders)
        self.moves = Moves(name, broker, self.homes, self.counters, nodes)
        self.lost: LostHomes | None = None
        self.silent: dict[str, tuple[Home, int]] = {}
        self.active = False
        self._name = name
        self._broker = broker
        self._senders = senders
        self.claiming: dict[Home, None] = {}
        self._let_in_next: dict[Home, Claimant] = {}  # sessions open in this turn, unless their connections end before
        self.answers = Answers(senders, self.homes.departing)
        self._others = OtherHomes(broker, self.homes, self.moves)

    def begin(self) -> None:
        """The store is open, or there is none: all sessions of the broker are at home here, or on their way. Raises ValueError
        and TypeError for a record that no node has written."""
        restore(self._broker, self.homes, self.moves)
        for client_id in self._broker.sessions:
            if client_id not in self.homes.by_client and is_claimed(client_id):
                self.homes.by_client[client_id] = self.homes.made(client_id, 0)
        self.active = True

    def claim(self, claimant: Claimant, client_id: str, username: str, clean_start: bool, now: float) -> bool:
        if self.lost is not None and client_id not in self.homes.by_client:
            self.lost.wanted(client_id, self._name, now)
        home = self.homes.by_client.get(client_id)
        if home is not None:
            home.is_deserted = False
            if home.claimant is not None:  # another connection of the client waits already
                home.claimant.outclaimed(TAKEN_OVER)
                home.claimant = claimant
                return False
            home.is_opening = True
            is_starting = self._is_starting(now)  # another node may have adopted the session meanwhile
            if is_starting or self.may_be_elsewhere():  # of two homes that of the newest connection stays
                self.homes.claim_anew(home, home.counter)
                home.is_clean = home.is_clean or clean_start
                if is_starting:
                    return not self._ask(home, claimant, now)
                self.homes.tell_claim(client_id)
            return True
        self.counters.claims += 1
        passed = self.moves.passed_on.newest.pop(client_id, None)
        ended = self.homes.ended.get(client_id)
        departings = self.moves.departing.get(client_id)
        is_known = passed is not None or ended is not None or departings or self.moves.heads
        is_alone = not self._senders and not self._is_starting(now)
        if is_alone and not is_known and (clean_start or client_id in self._broker.sessions):
            return True  # there is nobody to tell: its home is made when it is needed
        known = self.moves.over.counter_of(client_id)
        known = max(known, 0 if passed is None else passed[1][0], 0 if ended is None else ended.counter)
        if ended is not None:
            self.homes.forget_ended(ended)
        home = self.homes.by_client[client_id] = self.homes.made(client_id, self.homes.counter_above(known))
        home.is_clean = clean_start
        home.is_opening = True
        if departings and departings[-1].marks is not None:
            self.moves.bring_back(departings[-1], home)
        elif passed is not None and not clean_start:
            home.last_home = passed[0]
        return not self._ask(home, claimant, now)

    def _is_starting(self, now: float) -> bool:
        """Return whether it is just after a start, or after a time without the keepers of this node's sessions."""
        return now < self.homes.starting_until or now < self._asked_until(self._senders)

    def _asked_until(self, names: Iterable[str]) -> float:
        """Return until when a client with a session here waits for answers of these nodes, beyond `claim_wait`."""
        until = 0.0
        if self.lost is not None:
            for name in names:
                until = max(until, self.lost.asked_until(name))
        return until

    def may_be_elsewhere(self) -> bool:
        for name, sender in self._senders.items():
            # The stream of a node that has failed may not have ended.
            is_heard = sender.reachable and sender.is_living and name not in self.silent
            if sender.moves_sessions and not is_heard:
                return True
        return False

    def _ask(self, home: Home, claimant: Claimant, now: float) -> bool:
        """Tell the others of the claim. True when the client waits for answers."""
        awaited: dict[str, None] = {}
        for name, sender in self._senders.items():
            if sender.moves_sessions:
                sender.news.claim(home.client_id)
                if sender.reachable:
                    sender.want_attention()
                if name == home.last_home and not (sender.reachable and sender.is_living):
                    home.last_home = ""
                if name == home.last_home or self._is_awaited(name, sender, now):
                    awaited[name] = None
        if now < self.homes.starting_until:
            awaited.update(self.answers.from_unknown(self.siblings))
        promised = home.promised = home.promised or Promised(self.moves.over.of(home.client_id))
        promised.on_way.update(self.moves.on_way(home.client_id))  # it comes back from where it went
        if not awaited and not home.on_way():
            home.promised = None
            return False
        home.claimant, home.awaited = claimant, awaited
        home.until = now + wait_seconds(home, self.siblings, self.claim_wait)
        if home.client_id in self._broker.sessions:
            home.until = max(home.until, self._asked_until(awaited))
        self.claiming[home] = None
        self.active = True
        return True

    def _is_awaited(self, name: str, sender: PeerSender, now: float) -> bool:
        """Return whether the node may answer soon: its process may be back, or a cut is over that gossip has still to tell."""
        if now < self._asked_until((name,)):
            return True
        if not (sender.is_living or sender.reachable or name in self.siblings) and now >= self.homes.starting_until:
            return False
        claim = self.silent.pop(name, None)
        if claim is not None and self.homes.is_unheard(claim[0], claim[1], sender.outbox.claims_told):
            self.silent[name] = claim
        return name not in self.silent

    def peer_known(self, name: str, sender: PeerSender, now: float) -> None:
        """The node is a member. Clients that wait since this one knew nobody wait for it."""
        if sender.moves_sessions:
            self.homes.meets(name)
            for home in self.claiming:
                if home.awaited is not None and NOBODY in home.awaited:
                    home.awaited[name] = None

    def _answered(self, home: Home, name: str, now: float) -> None:
        """The client does not wait for this node any more."""
        awaited = home.awaited
        if awaited is not None:
            awaited.pop(name, None)
            awaited.pop(NOBODY, None)
            if home.on_way():
                return
            if not awaited:
                self._let_in(home)
            elif self._asked_until(awaited) <= now:
                home.until = min(home.until, now + wait_seconds(home, self.siblings, self.claim_wait))

    def _let_in(self, home: Home) -> None:
        self.claiming.pop(home, None)
        self._others.promise(home, home.on_way(), self._broker.now)
        claimant = home.claimant
        home.claimant = home.awaited = home.promised = None
        home.last_home, home.until = "", NEVER
        if claimant is not None:
            self._let_in_next[home] = claimant
            self.active = True
            claimant.claimed()

    def abandoned(self, client_id: str) -> None:
        home = self.homes.by_client.get(client_id)
        if home is not None:
            self._let_in_next.pop(home, None)
            home.is_opening = False
            if client_id not in self._broker.sessions and ("", client_id) not in self.moves.heads:
                self._end(home, False)

    def _end(self, home: Home, had_session: bool) -> None:
        self.claiming.pop(home, None)
        self._let_in_next.pop(home, None)
        self.homes.end(home, had_session)

    def opened(self, session: Subscriber) -> None:
        home = self.homes.opened(cast(Session, session))
        if home is not None:
            self._let_in_next.pop(home, None)
            home.is_opening = False
            if home.arriving is None:
                home.take_exchanges()
            if self.may_be_elsewhere():
                # The client may go on with exchanges of another session, on the other side of a partition: other identifiers.
                cast(Session, session).begin_packet_ids(1 + home.counter * SPREAD % PACKET_ID_MAX)
            self.homes.keep(home)
            self.moves.take_early(session.client_id, self._broker.now)

    def ended(self, session: Subscriber) -> None:
        home = self.homes.by_client.get(session.client_id)
        if home is None:
            return
        if home.arriving is not None:
            home.arriving.drop_later()
            self.homes.arriving.pop(home, None)
            home.arriving = None
            cast(Session, session).sources = None
            self.moves.passed_on.note(home.client_id, "", self.homes.epoch_of(home))
        if home.is_opening:  # for a new session of the client
            home.is_clean = True
            if home.record and self.homes.journal is not None:
                self.homes.journal.drop(home.record)
                home.record = 0
        else:
            self.moves.over.note(home.client_id, home.includes, home.counter)
            self._end(home, True)

    def departing_sessions(self) -> list[Subscriber]:
        return [departing.session for departings in self.moves.departing.values() for departing in departings]

    def receive(self, name: str, data: bytes, now: float) -> None:
        """The body of a SESSION frame came from another node. Raises FrameError."""
        frame = decode_session_frame(data, self.homes.counter_max())
        sender = self._senders.get(name)
        if sender is None:
            return
        self.active = True
        try:
            if frame.operation == CLAIM:
                self._claim_heard(sender, frame, now)
            elif frame.operation == ANSWER:
                self._answer_heard(sender, frame, now)
            elif frame.operation == MOVE:
                names = [checked(str, home) for home in frame.more]
                if self.lost is not None:
                    self.lost.moved(names, now)
                self.moves.move_heard(name, frame, names, now)
            elif frame.operation == SWITCH:
                self.switched(name, frame, True, now)
            elif frame.operation == HAND:
                self.take(frame, now)
            elif frame.operation == BARRIER and name in self.siblings:
                self.answers.barrier(sender, frame)
            elif self.lost is not None:
                self.lost.receive(name, frame, now)
        except (ValueError, TypeError, IndexError) as error:
            raise FrameError(f"session frame of operation {frame.operation}: {error}") from None

    def _claim_heard(self, sender: PeerSender, frame: SessionFrame, now: float) -> None:
        client_id = frame.client_id
        is_answered, _, has_ended, *adopted = frame.more
        if not is_claimed(client_id):
            return
        if self.lost is not None and not has_ended and client_id not in self.homes.by_client:
            self.lost.wanted(client_id, sender.name, now)
        home = self.homes.by_client.get(client_id)
        if home is None:
            self.moves.asked_keepers.told(client_id, frame.epoch, adopted)
            ended = self.homes.ended.get(client_id)
            if ended is not None and frame.epoch[0] <= ended.counter:
                return  # it hears of the end
            passed = self.moves.asked_keepers.passed.get(client_id)
            if is_answered and passed is not None and frame.epoch < passed[0]:
                self.answers.refuse(sender, frame, REFUSED, passed[0], passed[1])
            elif is_answered:  # what is on its way to another node goes on to this one
                self.answers.say(sender, frame, self.moves.on_way(client_id), self.moves.over.of(client_id))
            return
        own = self.homes.epoch_of(home)
        session = self._broker.sessions.get(client_id)
        if session is not None and session.bridge_end is not None:
            if is_answered:
                self.answers.refuse(sender, frame, OTHER_USER, own, home.adopted)
        elif own >= frame.epoch:
            self.answers.refuse(sender, frame, REFUSED, own, home.adopted)
        elif session is None:
            claimant, on_way = home.claimant, home.on_way()
            self._end(home, False)
            if claimant is not None:
                self.counters.outclaimed += 1
                claimant.outclaimed(TAKEN_OVER)
            self.moves.passed_on.note(client_id, sender.name, frame.epoch)
            self.moves.take_early(client_id, now)
            if is_answered:
                self.answers.say(sender, frame, on_way, self.moves.over.of(client_id))
        elif not self._others.stays(home, session, frame.epoch, adopted, now):
            self._give(session, home, sender, frame, now)
            self.moves.asked_keepers.told(client_id, frame.epoch, adopted)

    def take(self, frame: SessionFrame, now: float) -> None:
        """Records of a session come here."""
        served = self.moves.take(frame, now)
        if served is not None:
            self._let_in(served)

    def switched(self, name: str, frame: SessionFrame, is_direct: bool, now: float) -> None:
        """Messages of the node `name` go to another home: so does the session where its claim is later, and was not heard here
        yet; else that one hands them over, until the node switches again. is_direct: said here, not to a lost home."""
        home = self.homes.by_client.get(frame.client_id)
        session = self._broker.sessions.get(frame.client_id)
        if home is not None and session is not None:
            if self.homes.epoch_of(home) < frame.epoch:
                if not (is_direct and self._others.may_stay(home, session, frame.epoch)):
                    self._give_to_store(home, frame.epoch, now)
            elif is_direct and self.homes.epoch_of(home)[1] != frame.epoch[1]:
                self._others.sent_there(home, session, name, frame.epoch, now)
        if not is_direct:  # it may send what follows to neither
            return
        self.moves.switched(name, frame.client_id, frame.epoch)
        home = self.homes.by_client.get(frame.client_id)
        if session is not None and home is not None and self.homes.epoch_of(home) < frame.epoch:
            self._others.sent_there(home, session, name, frame.epoch, now)
            self._others.wait_for(home.client_id, frame.epoch, max(now + KNOWN_SECONDS_MAX, self.homes.starting_until))

    def _give_to_store(self, home: Home, epoch: Epoch, now: float) -> bool:
        """Hand the session over to the node with this claim. False where none is known to have its store."""
        sender = self.homes.sender_of(epoch[1])
        if sender is None:
            return False
        self.give_on(home, sender.name, epoch, now)
        self.moves.asked_keepers.ask_home(home.client_id, self.lost, now)
        return True

    def _give(self, session: Session, home: Home, sender: PeerSender, frame: SessionFrame, now: float) -> None:
        """Another node is the home from now on: end the session, or hand it over. frame: its claim, without values where that
        was not heard."""
        is_answered, is_clean = frame.more[:2] or (False, False)
        broker = self._broker
        client_id = session.client_id
        marks = Marks(list(self._senders.values()), now + ORDER_SECONDS_MAX)
        claimant = home.claimant
        if claimant is not None:  # the session was on its way to it
            self.claiming.pop(home, None)
            home.claimant = None
            claimant.outclaimed(TAKEN_OVER)
        if session.connection is not None:
            self.counters.outclaimed += 1
            broker.close_connection(session.connection, SESSION_TAKEN_OVER, TAKEN_OVER, now)
        if broker.sessions.get(client_id) is session and is_clean:
            home.is_opening = False
            broker.end_session(session, now)
        self.homes.by_client.pop(client_id, None)
        ended = self.homes.ended.get(client_id)
        if ended is not None:
            self.homes.forget_ended(ended)
        if broker.sessions.get(client_id) is not session:
            if is_answered:
                self.answers.say_later(sender, frame, self.moves.over.of(client_id), marks)
            return
        departing = self.moves.depart(session, home, sender, frame.epoch, marks, now)
        self.moves.asked_keepers.ask(departing, self.lost, now)
        if is_answered:
            self.answers.say(sender, frame, {self._broker.identity.store_id: home.counter}, {})

    def give_on(self, home: Home, name: str, epoch: Epoch, now: float) -> None:
        """The session came here behind a claim of this node."""
        session, sender = self._broker.sessions.get(home.client_id), self._senders.get(name)
        if session is not None and sender is not None:
            self._give(session, home, sender, SessionFrame(CLAIM, home.client_id, epoch, ()), now)

    def _answer_heard(self, sender: PeerSender, frame: SessionFrame, now: float) -> None:
        verdict, counter, store_id, *adopted = frame.more  # of HANDING and NOTHING it is claims
        name = sender.name
        self.moves.asked_keepers.answered(frame, name, adopted if verdict == REFUSED else [])
        home = self.homes.by_client.get(frame.client_id)
        if home is None or self.homes.epoch_of(home) != frame.epoch:
            return
        if verdict in (NOTHING, HANDING):
            if home.promised is not None:
                home.promised.says(verdict == HANDING, claims_of(adopted))
            elif verdict == HANDING:
                self._others.promise(home, claims_of(adopted), now)
            if verdict == HANDING and home.on_way():
                home.until = now + (SIBLING_SECONDS if name in self.siblings else HEAD_SECONDS_MAX)
            self._answered(home, name, now)
        elif verdict == OTHER_USER:
            claimant = home.claimant
            if claimant is not None:
                self._end(home, False)
                claimant.outclaimed("the session belongs to a link of another user")
        elif verdict == REFUSED:
            epoch = between(counter, 0, self.homes.counter_max()), checked(str, store_id)
            if epoch <= self.homes.epoch_of(home):
                return
            claimant = home.claimant
            session = self._broker.sessions.get(frame.client_id)
            if claimant is not None and claimant.is_open():
                self.homes.claim_anew(home, epoch[0])
                home.last_home = name
                if not self._ask(home, claimant, now):
                    self._let_in(home)
            elif session is None:
                self._end(home, False)
                self.moves.passed_on.note(frame.client_id, name, epoch)
                self.moves.take_early(frame.client_id, now)
            elif not self._others.stays(home, session, epoch, adopted, now, True):
                self._give(session, home, sender, SessionFrame(CLAIM, frame.client_id, epoch, ()), now)
                self.moves.asked_keepers.told(frame.client_id, epoch, adopted)

    def peer_removed(self, name: str, now: float) -> None:
        """The node is no member any more."""
        self.silent.pop(name, None)
        for home in list(self.claiming):
            self._answered(home, name, now)
        self.moves.peer_removed(name, now)
        self.active = True

    def turn_ended(self, now: float) -> bool:
        """Hand over what can leave now. True when there is more output."""
        self.active = False
        is_more = self.answers.turn_ended(now)
        is_more = self.moves.turn_ended(now) or is_more
        for home, claimant in list(self._let_in_next.items()):
            if not claimant.is_open():
                del self._let_in_next[home]
                if self.homes.by_client.get(home.client_id) is home:
                    self.abandoned(home.client_id)
        is_more = self.homes.settle_arrived() or is_more
        self.homes.forget_heard()
        active = bool(self.moves.due) or bool(self.homes.ended) or bool(self.homes.arriving) or bool(self._let_in_next)
        self.active = active or self.answers.is_waiting
        return is_more

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        at = min(self.moves.next_timeout(), self.homes.next_timeout(), self.answers.next_timeout())
        return min([at, self._others.next_timeout(), *[home.until for home in self.claiming]])

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, turn_ended."""
        for home in list(self.claiming):
            if home.until <= now:
                self.counters.unanswered += 1
                self._is_silent(home, now)
                self._let_in(home)
        for home, epoch in self._others.take_due(now):
            if not self._give_to_store(home, epoch, now):
                self.homes.claim_above(home, epoch)
        self.homes.handle_timeout(now)
        self.active = True

    def _is_silent(self, home: Home, now: float) -> None:
        """No answer has come in time."""
        for name in home.awaited or {}:
            sender = self._senders.get(name)
            if sender is not None and (sender.reachable or now >= self.homes.starting_until):
                self.silent[name] = home, home.number
