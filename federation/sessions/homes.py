"""The clients whose home this node is, as its store and other nodes know them."""

# compiled with mypyc
from __future__ import annotations

import heapq
from typing import Final

from broker.broker import Broker
from broker.hooks import Waiter
from broker.message import NEVER
from broker.routing.subscriber import GROUP_QUEUE_PREFIX, NODE_PREFIX, OWN_PREFIX
from broker.session.session import Session
from broker.store.journal import Journal
from federation.sessions.arriving import HANDING_SECONDS_MAX, LIVING_SECONDS_MAX, Arriving, Epoch
from federation.sessions.departing import Departing
from federation.sessions.home import Ended, Home, told_adopted
from federation.sessions.news import Told
from federation.sessions.wire import CLAIM, MOVE, encode_session_frame
from federation.stream.sender import PeerSender

AHEAD_MILLISECONDS_MAX: Final = (
    10 * 365 * 86_400_000
)  # that the counter of an epoch may be ahead of the clock of this node
NOT_TOLD: Final = 2**62  # and above: a move that the others have not been told of


def is_claimed(client_id: str) -> bool:
    """Return whether clients with this identifier are claimed: those of the node itself are not."""
    return not client_id.startswith((GROUP_QUEUE_PREFIX, NODE_PREFIX, OWN_PREFIX))


LOOKS_OF_A_TURN: Final = 2_000  # at sessions that may be here as a whole


class Homes(Told):
    """by_client  by client id
    arriving   those whose session is not here as a whole
    due        arriving homes that have changed: all of the session may be here by now
    ended      sessions that have ended while another node was away that may have one, by client id
    departing  sessions that leave, by client id, in the order of their epochs
    senders    to the other nodes, by name
    not_waited_for  sessions whose former homes did not hand over everything in time
    starting_until  nodes that are away may be about to be reached
    journal    of the store, None without one
    """

    def __init__(self, broker: Broker, senders: dict[str, PeerSender]) -> None:
        self.by_client: dict[str, Home] = {}
        self.arriving: dict[Home, None] = {}
        self.due: dict[Home, None] = {}
        self.ended: dict[str, Ended] = {}
        self.departing: dict[str, list[Departing]] = {}
        self.senders = senders
        self.not_waited_for = 0
        self.starting_until = 0.0
        self.journal: Journal | None = None
        self._broker = broker
        self._number = 0  # of the newest claim or move
        self._unheard: dict[Home, None] = {}  # arriving homes that only wait until the others have heard of the move
        self._heard = 0  # as of the last look at these
        self._claims_heard = 0  # as of the last look at the ends of sessions
        # A heap of (until when a hand-over is waited for, or was before it went on, number of the wait, home).
        self._hand_over_until: list[tuple[float, int, Home]] = []
        self._waits = 0

    def keep(self, home: Home) -> None:
        """The record of the home follows its session's."""
        if home.arriving is not None:
            self.due[home] = None
        journal = self.journal
        if journal is None:
            return
        session = self._broker.sessions.get(home.client_id)
        is_durable = session is not None and session.records is not None
        if home.record and is_durable:
            journal.change(home.record, home)
        elif home.record:
            journal.drop(home.record)
            home.record = 0
        elif is_durable:
            home.record = journal.keep(home)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def arrives(self, home: Home, arriving: Arriving) -> None:
        """The session of the home is not here as a whole."""
        home.arriving = arriving.session.sources = arriving
        self.arriving[home] = self.due[home] = None

    def wait_for_hand_over(self, home: Home, until: float) -> None:
        """The former homes of the session are not waited for any longer than this, unless they go on."""
        self._waits += 1
        heapq.heappush(self._hand_over_until, (until, self._waits, home))

    def expect(self, home: Home, arriving: Arriving, store_id: str, now: float) -> None:
        """The lost home with this store is back, and hands over what others had for it."""
        counter = 0
        for adopted in home.adopted:
            if adopted[0] == store_id:
                counter = adopted[4]
        epoch = counter, store_id
        if not home.has_all_of(epoch):
            arriving.expect(epoch, now)
            self.wait_for_hand_over(home, arriving.until)

    def meets(self, name: str) -> None:
        """A node that shares sessions is a member."""
        for departings in self.departing.values():
            for departing in departings:
                if departing.meets(name) and departing.record and self.journal is not None:
                    self.journal.change(departing.record, departing)

    def leaves(self, home: Home, epoch: Epoch, now: float) -> None:
        """The session leaves to the node with this claim, which gives nothing of it."""
        if home.arriving is not None:
            home.arriving.does_not_come(epoch[1], now)
        self.arriving.pop(home, None)

    def hand_over_there(self, arriving: Arriving, names: list[str], now: float) -> None:
        """The session goes on to a node to which these homes hand over what they have, or did."""
        for store_id in list(arriving.expected):
            sender = self.sender_of(store_id)
            if sender is not None and sender.name in names:
                arriving.does_not_come(store_id, now)

    def relayed_to(self, client_id: str, lost: str, name: str) -> Arriving | None:
        """Return the session that takes what the node had for the lost home. That may have had two of the client, one on its
        way: it is the first that was claimed behind what the node has said, or the newest where the copy lacks that one."""
        found: Arriving | None = None
        for arriving in self.arriving_of(client_id):
            if arriving.takes_relayed(lost, name):
                if found is not None and arriving.relayed[(lost, name)] < found.epoch:
                    break
                found = arriving
        return found

    def arriving_of(self, client_id: str) -> list[Arriving]:
        """Return those of the client that are not here as a whole, in the order of their epochs."""
        home = self.by_client.get(client_id)
        found = [departing.before for departing in self.departing.get(client_id, ())]
        if home is not None:
            found.append(home.arriving)
        return [arriving for arriving in found if arriving is not None]

    def sharing(self) -> dict[str, None]:
        """Return the nodes that share sessions with this one."""
        return dict.fromkeys([name for name, sender in self.senders.items() if sender.moves_sessions])

    def sender_of(self, store_id: str) -> PeerSender | None:
        """Return the sender to the node with this store, as far as it is known."""
        for sender in self.senders.values():
            if sender.peer_store_id == store_id:
                return sender
        return None

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return self._hand_over_until[0][0] if self._hand_over_until else NEVER

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        waits = self._hand_over_until
        while waits and waits[0][0] <= now:
            _, _, home = heapq.heappop(waits)
            arriving = home.arriving
            if arriving is None or home not in self.arriving or arriving.until == NEVER:
                continue
            self.outwait(arriving, now)
            if arriving.until == NEVER:
                self.keep(home)
            else:
                self.wait_for_hand_over(home, arriving.until)

    def outwait(self, arriving: Arriving, now: float) -> None:
        """What comes directly waits for former homes no more, if it is that late; a bit longer while one of them lives."""
        if arriving.until > now:
            return
        if self._is_waited_for(arriving, now):
            arriving.until = now + HANDING_SECONDS_MAX
        else:
            self.not_waited_for += 1
            arriving.wait_no_more(now)
            arriving.until = NEVER

    def _is_waited_for(self, arriving: Arriving, now: float) -> bool:
        """Return whether a node that hands over, or will, lives, or is not known yet."""
        if now >= arriving.quiet_since + LIVING_SECONDS_MAX:
            return False
        for store_id in arriving.expected:
            sender = self.sender_of(store_id)
            if sender is None or sender.is_living:
                return True
        for name in arriving.handing:  # noqa: SIM110 (compiled without a generator)
            if name in self.senders and self.senders[name].is_living:
                return True
        return False

    def settle_arrived(self) -> bool:
        """Sessions that are here as a whole are like others. Returns True when there are more to look at."""
        heard = self.moves_heard()
        if heard != self._heard:
            self._heard = heard
            self.due.update(self._unheard)
            self._unheard.clear()
        due = self.due
        left = LOOKS_OF_A_TURN
        while due and left > 0:
            left -= 1
            home, _ = due.popitem()
            arriving = home.arriving
            if arriving is None or home not in self.arriving or not arriving.is_whole():
                continue
            if arriving.move_number > heard:
                self._unheard[home] = None
                continue
            arriving.session.sources = None
            home.arriving = None
            del self.arriving[home]
            self.keep(home)
        return bool(due)

    def claim_anew(self, home: Home, counter: int) -> None:
        """The epoch of the home is above this one, and that of its claim before."""
        home.counter = self.counter_above(counter)
        home.number = self.next_number()
        self.keep(home)

    def claim_above(self, home: Home, epoch: Epoch) -> None:
        """No client waits for the claim, and the session of the home with this epoch does not come by now."""
        self.claim_anew(home, epoch[0])
        self.tell_claim(home.client_id)
        self.tell_move(home)

    def made(self, client_id: str, counter: int) -> Home:
        return Home(client_id, counter, self.next_number())

    def opened(self, session: Session) -> Home | None:
        """Return the home of a session that a connection serves. None for one that needs none: there is no other node, nor a
        store that keeps it."""
        home = self.by_client.get(session.client_id)
        if home is None and session.records is not None:
            home = self._made_late(session)
        return home

    def meets_others(self) -> None:
        """There is another node from now on: it hears of the clients, too, that were let in while there was none."""
        for session in self._broker.sessions.values():
            if session.client_id not in self.by_client:
                self._made_late(session)

    def _made_late(self, session: Session) -> Home | None:
        """Return the home of a client that has begun anew while there was no other node, by the time of its last connection."""
        if session.bridge_end is not None or not is_claimed(session.client_id):
            return None
        home = self.by_client[session.client_id] = self.made(session.client_id, self._counter_at(session.connected_at))
        home.is_clean = True
        home.take_exchanges()
        return home

    def epoch_of(self, home: Home) -> Epoch:
        return home.counter, self._broker.identity.store_id

    def first_of(self, home: Home) -> Epoch:
        return home.first, self._broker.identity.store_id

    def counter_above(self, counter: int) -> int:
        return max(counter + 1, self._wall_milliseconds())

    def counter_max(self) -> int:
        """Return the greatest counter of another node that is believed: with one that nobody can top, others would not hear of
        any further claim of the client."""
        return self._wall_milliseconds() + AHEAD_MILLISECONDS_MAX

    def _wall_milliseconds(self) -> int:
        return self._counter_at(self._broker.now)

    def _counter_at(self, now: float) -> int:
        return int((now + self._broker.wall_offset) * 1000.0)

    def tell_claim(self, client_id: str) -> None:
        """Tell the others of a claim for which no client waits, or of the end of a session."""
        for sender in self.senders.values():
            if sender.moves_sessions:
                sender.news.claim(client_id)
                if sender.reachable:
                    sender.want_attention()

    def tell_move(self, home: Home) -> None:
        """Tell the others of this home, and the former ones that are known by now, as soon as the store and its copies have the
        session: who adopts it, if this node is lost, gets what they send from then on."""
        arriving = home.arriving
        if arriving is not None and arriving.moves_messages():
            number = arriving.move_number = NOT_TOLD + self.next_number()
            if not self._broker.commits.wait(MoveStored(self, home, arriving)):
                self.say_move(home, arriving, number)

    def say_move(self, home: Home, arriving: Arriving, number: int) -> None:
        """The store has what was there at this move, unless another one follows."""
        if home.arriving is not arriving or arriving.move_number != number or number == 0:
            return
        arriving.move_number = self.next_number()
        self.due[home] = None
        for sender in self.senders.values():
            if sender.moves_sessions:
                sender.news.move(home.client_id)
                if sender.reachable:
                    sender.want_attention()

    def claims_heard(self) -> int:
        """Return up to which number all other nodes have heard claims."""
        heard = self._number
        for sender in self.senders.values():
            if sender.moves_sessions:
                heard = min(heard, sender.outbox.claims_told)
        return heard

    def is_unheard(self, home: Home, number: int, told: int) -> bool:
        """Return whether the home of the claim with this number still is one, and a node that was told claims up to the number
        `told` has not heard it."""
        return self.by_client.get(home.client_id) is home and number > told

    def moves_heard(self) -> int:
        """Return up to which number all other nodes have heard moves."""
        heard = self._number
        for sender in self.senders.values():
            if sender.moves_sessions and sender.outbox.bytes_max:  # else it was given up
                heard = min(heard, sender.outbox.moves_told)
        return heard

    def store_replaced(self, name: str) -> None:
        """The node has another store than before."""
        for home in self.arriving:
            if home.arriving is not None:
                home.arriving.store_replaced(name)
                self.keep(home)

    def peer_removed(self, name: str, now: float) -> None:
        """The node is no member any more."""
        for home in self.arriving:
            if home.arriving is not None:
                home.arriving.peer_removed(name, now)
                self.keep(home)

    def nodes(self) -> dict[str, None]:
        """Return the nodes that sessions come from; some may be away."""
        names: dict[str, None] = {}
        for home in self.arriving:
            if home.arriving is not None:
                names.update(dict.fromkeys(home.arriving.handing))
                names.update(home.arriving.waiting)
        return names

    def forget_ended(self, ended: Ended) -> None:
        del self.ended[ended.client_id]
        if ended.record and self.journal is not None:
            self.journal.drop(ended.record)

    def claimed(self) -> list[str]:
        found = [(home.number, home.client_id) for home in self.by_client.values()]
        found += [(ended.number, ended.client_id) for ended in self.ended.values()]
        found.sort()
        return [client_id for _, client_id in found]

    def moving(self) -> list[str]:
        found = [(home.arriving.move_number, home.client_id) for home in self.arriving if home.arriving is not None]
        for client_id, departings in self.departing.items():
            found += [(one.before.move_number, client_id) for one in departings if one.before is not None]
        found.sort()
        return [client_id for _, client_id in found]

    def claim(self, client_id: str) -> tuple[bytes, int]:
        home = self.by_client.get(client_id)
        if home is not None:
            more: tuple[object, ...] = (home.claimant is not None, home.is_clean, False)
            if home.adopted:
                first, below, *others = told_adopted(home.adopted)
                more = *more, first, below, home.is_deserted, *others
            return encode_session_frame(CLAIM, client_id, self.epoch_of(home), more), home.number
        ended = self.ended.get(client_id)
        if ended is None:
            return b"", 0
        epoch = (ended.counter, self._broker.identity.store_id)
        return encode_session_frame(CLAIM, client_id, epoch, (False, True, True)), ended.number

    def move(self, client_id: str, name: str) -> tuple[bytes, int]:
        home = self.by_client.get(client_id)
        arriving = None if home is None else home.arriving
        counter = 0 if home is None else home.counter
        homes: tuple[str, ...] = () if arriving is None else tuple(arriving.homes)
        if arriving is None:
            # It has gone on before the node sent there: what it sends to homes before would be lost with them. The next home
            # hears of it, too: it may take its messages. A node that is waited for no more has switched, perhaps before it
            # started again: it does not go back.
            for departing in self.departing.get(client_id, ()):
                before = departing.before
                if before is not None and name in departing.waiting:
                    arriving, counter, homes = before, departing.since, (*before.homes, departing.home)
        if arriving is None or not 0 < arriving.move_number < NOT_TOLD:
            return b"", 0
        epoch = counter, self._broker.identity.store_id
        return encode_session_frame(MOVE, client_id, epoch, homes), arriving.move_number

    def end(self, home: Home, had_session: bool) -> None:
        """This node is not the home any more. had_session: others that were away at the claim may have one, and hear of its
        end."""
        journal = self.journal
        client_id = home.client_id
        del self.by_client[client_id]
        self.arriving.pop(home, None)
        if home.record and journal is not None:
            journal.drop(home.record)
            home.record = 0
        if had_session and home.number > self.claims_heard():
            self.has_ended(client_id, home.counter)

    def has_ended(self, client_id: str, counter: int) -> None:
        """Others hear that the session has ended."""
        ended = self.ended[client_id] = Ended(client_id, counter, self.next_number())
        if self.journal is not None:
            ended.record = self.journal.keep(ended)
        self.tell_claim(client_id)

    def forget_heard(self) -> None:
        """Forget the ends of sessions that all other nodes know of."""
        heard = self.claims_heard()
        if heard != self._claims_heard:
            self._claims_heard = heard
            for ended in list(self.ended.values()):
                if ended.number <= heard:
                    self.forget_ended(ended)


class MoveStored(Waiter):
    """A session that comes here is in the store."""

    def __init__(self, homes: Homes, home: Home, arriving: Arriving) -> None:
        self._homes = homes
        self._home = home
        self._arriving = arriving
        self._number = arriving.move_number

    def committed(self) -> None:
        self._homes.say_move(self._home, self._arriving, self._number)
