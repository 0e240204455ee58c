"""Homes of a client beside the one here, as other nodes say: their messages go there.

A home with a lower epoch hears of the claim here, and hands over what it has. What comes directly waits for that, since it is
newer. One with a greater epoch takes the session, unless it has only adopted it while this node was away, and the client
stayed here: then this node claims the client above it.

A node that has just started, or was cut off, hears where the messages of another one go before it has met that home. It waits
for the home, whose claim says the rest. Where none has come in time, that one is away: this node claims the client above it,
and the two merge their sessions when they meet.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.message import NEVER
from broker.session.session import Session
from federation.sessions.arriving import Epoch
from federation.sessions.home import Home
from federation.sessions.homes import Homes
from federation.sessions.moves import Moves
from federation.sessions.promised import UNNAMED, Claims

KNOWN_SECONDS_MAX: Final = 5.0  # a home is waited for so long that another node sends to
CLAIMS_OF_A_TURN: Final = 256


class OtherHomes:
    def __init__(self, broker: Broker, homes: Homes, moves: Moves) -> None:
        self._broker = broker
        self._homes = homes
        self._moves = moves
        # By client id, the oldest first: until when it is waited for, and its epoch.
        self._waiting: dict[str, tuple[float, Epoch]] = {}

    def stays(
        self, home: Home, session: Session, epoch: Epoch, adopted: list[object], now: float, is_refusal: bool = False
    ) -> bool:
        """Return whether the client is here, and the home with this greater epoch has adopted its session from this store and
        had no client since. Then it hears of an epoch above that, and hands over what it has. adopted: of its claim, or of its
        refusal, which does not say whether a client was there (wire)."""
        is_deserted = is_refusal or (len(adopted) > 2 and bool(adopted[2]))
        is_own = is_deserted and self._homes.epoch_of(home)[1] in adopted
        return is_own and self._stays(home, session, epoch, now)

    def _stays(self, home: Home, session: Session, epoch: Epoch, now: float) -> bool:
        if not self.may_stay(home, session, epoch):
            return False
        self._hands_over(home, session, epoch, now)
        self._homes.claim_above(home, epoch)
        return True

    def may_stay(self, home: Home, session: Session, epoch: Epoch) -> bool:
        """Return whether the client is here, and this is the epoch of who has adopted its session: the one behind that which
        this home had in the copy. A client that connects there while this node is away raises it."""
        return session.connection is not None and epoch[0] <= home.counter + 1

    def sent_there(self, home: Home, session: Session, name: str, epoch: Epoch, now: float) -> None:
        """Messages of the node are for another home, until it has heard of this one. It does now where this one has the greater
        epoch: else a move would change nothing, it would say so once more."""
        arriving = home.arriving or self._moves.arrives(home, session, {})
        is_here = epoch < self._homes.epoch_of(home)
        if is_here:
            self._hands_over(home, session, epoch, now)
        else:
            arriving.elsewhere = max(arriving.elsewhere, epoch)
        if name not in arriving.waiting and session.subscriptions:
            arriving.waiting[name] = None
            self._homes.keep(home)
            if is_here:
                self._homes.tell_move(home)

    def _hands_over(self, home: Home, session: Session, epoch: Epoch, now: float) -> None:
        """The home with this lower epoch has something of the session, unless that is here."""
        if home.has_all_of(epoch):
            return
        arriving = home.arriving or self._moves.arrives(home, session, {})
        sender = self._homes.sender_of(epoch[1])
        if sender is not None:
            arriving.homes[sender.name] = None
        arriving.expect(epoch, now)
        self._homes.wait_for_hand_over(home, arriving.until)
        self._homes.keep(home)

    def promise(self, home: Home, claims: Claims, now: float) -> None:
        """Other homes, too, have said to hand over what they had at these claims. The client does not wait for them any more;
        what comes directly does, since it is newer. Of a client that has begun anew they hand over nothing."""
        session = self._broker.sessions.get(home.client_id)
        if session is None or home.is_clean:
            return
        for store_id, counter in claims.items():
            is_other = store_id not in (UNNAMED, self._broker.identity.store_id)
            if is_other and not self._has_begun(home, store_id, counter):
                self._hands_over(home, session, (counter, store_id), now)

    def _has_begun(self, home: Home, store_id: str, counter: int) -> bool:
        """Return whether the home with this store hands over what it had at this claim, or has done so. It does not say that
        it has handed on all where another node had adopted the session."""
        sender = self._homes.sender_of(store_id)
        if sender is not None and home.arriving is not None and home.arriving.handing.get(sender.name, -1) >= counter:
            return True
        return home.handed.get(store_id, -1) >= counter

    def wait_for(self, client_id: str, epoch: Epoch, until: float) -> None:
        """The client has this home, which is not known here, and is waited for until then."""
        until, known = self._waiting.get(client_id, (until, epoch))
        self._waiting[client_id] = until, max(epoch, known)

    def next_timeout(self) -> float:
        """Return when to call take_due; NEVER for not at all."""
        for until, _ in self._waiting.values():
            return until
        return NEVER

    def take_due(self, now: float) -> list[tuple[Home, Epoch]]:
        """Some that are waited for no more, with the home here of the same client, which has a lower epoch, and does not
        stay."""
        found: list[tuple[Home, Epoch]] = []
        for client_id, (until, epoch) in list(self._waiting.items())[:CLAIMS_OF_A_TURN]:
            if until > now:
                break
            del self._waiting[client_id]
            home = self._homes.by_client.get(client_id)
            if home is None or self._homes.epoch_of(home) >= epoch:
                continue
            session = self._broker.sessions.get(client_id)
            if session is None or not self._stays(home, session, epoch, now):
                found.append((home, epoch))
        return found
