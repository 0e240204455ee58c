"""What the keepers of this store say of sessions that leave just after a start.

A keeper may have adopted a session that this node has on its disk, and the client may come to a third node, such as another
worker, before the keeper has reached this one. Then the third node would get from both what is in the copy. So the keepers are
asked with the claim by which this node was the home, and answer as to a new one. The session leaves when they have said whether
they have adopted it, or when clients at home here would wait for them no more.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict

from broker.store.identity import StoreIdentity
from federation.sessions.arriving import Epoch
from federation.sessions.counters import SessionCounters
from federation.sessions.departing import Departing
from federation.sessions.home import AllAdopted, adopted_below
from federation.sessions.lost_homes import LostHomes
from federation.sessions.promised import remember
from federation.sessions.wire import CLAIM, SessionFrame, encode_session_frame
from federation.stream.sender import PeerSender


class AskedKeepers:
    """passed  by client id: the last claim here of a session that has gone on, and which copies it came from"""

    def __init__(
        self,
        identity: StoreIdentity,
        departing: dict[str, list[Departing]],
        senders: dict[str, PeerSender],
        counters: SessionCounters,
    ) -> None:
        self.passed: OrderedDict[str, tuple[Epoch, AllAdopted]] = OrderedDict()
        self._departing = departing
        self._counters = counters
        self._identity = identity
        self._senders = senders

    def ask(self, departing: Departing, lost: LostHomes | None, now: float) -> None:
        """The session begins to leave. lost: None without copies."""
        if lost is None or departing.session.records is None:
            return
        claim = CLAIM, departing.session.client_id, (departing.since, self._identity.store_id)
        for name, sender in self._senders.items():
            until = lost.asked_until(name)
            if until > now and name != departing.home and sender.moves_sessions:
                departing.asked[name] = None
                departing.asked_until = max(departing.asked_until, until)
                sender.news.answer(encode_session_frame(*claim, (True, False, False)))
                if sender.reachable:
                    sender.want_attention()

    def answered(self, frame: SessionFrame, name: str, adopted: list[object]) -> None:
        """The node answers a claim. adopted: of its refusal (wire)."""
        for departing in self._departing.get(frame.client_id, ()):
            if departing.since == frame.epoch[0] and departing.asked.pop(name, self) is None:
                departing.note_adopted(adopted_below(adopted, self._identity))

    def passes(self, client_id: str, epoch: Epoch, adopted: AllAdopted) -> None:
        """A session that came from these copies goes on. epoch: of the last claim here."""
        if adopted:
            remember(self.passed, client_id, (epoch, adopted), self._counters)
