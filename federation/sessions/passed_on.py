"""Where what comes of sessions goes that have gone on, or have ended, before it came.

It goes to the newest home that is known here. What is behind the head of a hand-over goes where that went, though, and not to
where the client is by then: the home that has the head waits for the end, and the homes behind that one wait for it in turn.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict

from broker.broker import Broker
from broker.counters import DROP_SESSION_ENDED
from broker.store.journal import checked
from broker.store.kinds import OUTGOING, SESSION
from federation.sessions.arriving import Epoch
from federation.sessions.counters import SessionCounters
from federation.sessions.homes import Homes
from federation.sessions.promised import remember
from federation.sessions.wire import HAND, HANDED, Record, SessionFrame, encode_session_frame


class PassedOn:
    """newest  by client id: the node and the epoch of its claim; "" for nowhere"""

    def __init__(self, broker: Broker, homes: Homes, counters: SessionCounters) -> None:
        self.newest: OrderedDict[str, tuple[str, Epoch]] = OrderedDict()
        self._broker = broker
        self._homes = homes
        self._counters = counters
        # By client id, node that hands over, and counter of its claim: the home that the head went to.
        self._heads: OrderedDict[tuple[str, str, int], Epoch] = OrderedDict()

    def note(self, client_id: str, name: str, epoch: Epoch) -> None:
        """The session goes to this home, or nowhere."""
        remember(self.newest, client_id, (name, epoch), self._counters)

    def home_of_head(self, client_id: str, home: str, since: int, epoch: Epoch) -> tuple[str, Epoch] | None:
        """Return where the head went of what this node hands over by its claim `since`, of which some comes for this epoch;
        None where none has gone on, or who has it is not known any more. Epochs rise on the way: where the head has come here
        twice, nothing follows it in a circle."""
        went = self._heads.get((client_id, home, since))
        sender = None if went is None or went <= epoch else self._homes.sender_of(went[1])
        return None if went is None or sender is None else (sender.name, went)

    def send(self, frame: SessionFrame, records: list[Record], to: tuple[str, Epoch], now: float) -> None:
        """Pass on these records in place of those of the HAND (wire)."""
        homes, _, since, *_ = frame.more
        home, claim = checked(tuple, homes)[0], checked(int, since)
        name, epoch = to
        count = 0
        for record in records:
            if record[0] == OUTGOING and record[2] is not None:
                count += 1
            elif record[0] == SESSION:
                remember(self._heads, (frame.client_id, home, claim), epoch, self._counters)
            elif record[0] == HANDED:
                self._handed(frame.client_id, home, claim, now)
        sender = self._homes.senders.get(name)
        if sender is not None:
            more = homes, tuple(records), *frame.more[2:]
            sender.append_session(encode_session_frame(HAND, frame.client_id, epoch, more), count, True, now)
        elif count:
            self._broker.counters.drop(DROP_SESSION_ENDED, count, 1)

    def _handed(self, client_id: str, home: str, since: int, now: float) -> None:
        self._heads.pop((client_id, home, since), None)
        sender = self._homes.senders.get(home)
        if sender is not None:
            for departing in self._homes.departing.get(client_id, ()):
                departing.passed_on(sender.peer_store_id, since, now)
