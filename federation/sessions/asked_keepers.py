"""What the keepers of this store say of sessions that leave just after a start.

A keeper may have adopted a session that this node has on its disk, and the client may come to a third node, such as another
worker, before the keeper has reached this one. Then the third node would get from both what is in the copy. So the keepers are
asked with the claim by which this node was the home, and answer as to a new one. The session leaves when they have said whether
they have adopted it, or when clients at home here would wait for them no more. A new home whose claim has not been heard here
is asked, too.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.broker import Broker
from federation.sessions.arriving import Epoch
from federation.sessions.counters import SessionCounters
from federation.sessions.departing import Departing
from federation.sessions.home import AllAdopted, adopted_below
from federation.sessions.lost_homes import LostHomes
from federation.sessions.promised import remember
from federation.sessions.wire import CLAIM, SessionFrame, encode_session_frame
from federation.stream.sender import PeerSender

HOME_SECONDS_MAX: Final = 15.0  # a session that leaves waits so long for the answer of its new home


class AskedKeepers:
    """passed  by client id: the last claim here of a session that has gone on, and which copies it came from"""

    def __init__(
        self,
        broker: Broker,
        departing: dict[str, list[Departing]],
        senders: dict[str, PeerSender],
        counters: SessionCounters,
    ) -> None:
        self.passed: OrderedDict[str, tuple[Epoch, AllAdopted]] = OrderedDict()
        self._departing = departing
        self._counters = counters
        self._broker = broker  # it has its identity when its store was read
        self._senders = senders

    def begin(self, lost: LostHomes | None, now: float) -> None:
        """The senders are there, and sessions that the process before this one had begun to hand over."""
        for departings in self._departing.values() if lost is not None else ():
            for departing in departings:
                self.ask(departing, lost, now)
                self._ask(departing, departing.home, now + HOME_SECONDS_MAX, now)

    def ask(self, departing: Departing, lost: LostHomes | None, now: float) -> None:
        """The session begins to leave. lost: None without copies."""
        if lost is not None:
            for name in self._senders:
                if name != departing.home:
                    self._ask(departing, name, lost.asked_until(name), now)

    def ask_home(self, client_id: str, lost: LostHomes | None, now: float) -> None:
        """Its new home is known by what others say, and its claim was not heard yet, which says what it has adopted."""
        for departing in self._departing.get(client_id, ())[-1:]:
            if lost is not None:
                self._ask(departing, departing.home, now + HOME_SECONDS_MAX, now)

    def _ask(self, departing: Departing, name: str, until: float, now: float) -> None:
        sender = self._senders.get(name)
        if until > now and sender is not None and sender.moves_sessions and departing.session.records is not None:
            departing.asked[name] = None
            departing.asked_until = max(departing.asked_until, until)
            claim = CLAIM, departing.session.client_id, (departing.since, self._broker.identity.store_id)
            sender.news.answer(encode_session_frame(*claim, (True, False, False)))
            if sender.reachable:
                sender.want_attention()

    def told(self, client_id: str, epoch: Epoch, adopted: list[object]) -> None:
        """The claim of a session that leaves was heard. adopted: of it (wire)."""
        for departing in self._departing.get(client_id, ()):
            if departing.epoch <= epoch:
                departing.note_adopted(adopted_below(adopted, self._broker.identity))
                if departing.epoch[1] == epoch[1]:
                    departing.asked.pop(departing.home, None)

    def answered(self, frame: SessionFrame, name: str, adopted: list[object]) -> None:
        """The node answers a claim. adopted: of its refusal (wire)."""
        for departing in self._departing.get(frame.client_id, ()):
            if departing.since == frame.epoch[0] and departing.asked.pop(name, self) is None:
                departing.note_adopted(adopted_below(adopted, self._broker.identity))

    def passes(self, client_id: str, epoch: Epoch, adopted: AllAdopted) -> None:
        """A session that came from these copies goes on. epoch: of the last claim here."""
        if adopted:
            remember(self.passed, client_id, (epoch, adopted), self._counters)
