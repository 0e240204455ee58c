"""Sessions on their way to a client that waits, by the claims of the homes that hand them on.

A former home says by which of its claims it was the home. What the session here includes by then (Home.includes), or one that
has ended elsewhere did, is not to come any more: a client waits for nothing that it has had.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeVar

from broker.broker import Broker
from broker.store.journal import checked
from broker.store.shapes import count_of
from federation.sessions.counters import SessionCounters

GONE_MAX: Final = 65_536  # clients that have gone on to another node, or ended; policy: the oldest is forgotten
INCLUDES_MAX: Final = 16  # stores of former homes of a session; policy: the one that is named least is forgotten
UNNAMED: Final = ""  # the store of a home that does not say its claim: an earlier build

Claims = dict[str, int]
"""The counter of a claim by the id of the store of its home."""


def take_claim(claims: Claims, store_id: str, counter: int) -> None:
    """The home with this store was named: of its claims the newest counts, in whatever order they come."""
    claims[store_id] = max(counter, claims.pop(store_id, 0))
    if len(claims) > INCLUDES_MAX:
        del claims[next(iter(claims))]


Key = TypeVar("Key")
Value = TypeVar("Value")


def remember(by_client: OrderedDict[Key, Value], key: Key, value: Value, counters: SessionCounters) -> None:
    """It is the newest of them."""
    by_client[key] = value
    by_client.move_to_end(key)
    if len(by_client) > GONE_MAX:
        by_client.popitem(last=False)
        counters.passed_forgotten += 1


class Promised:
    """on_way  homes that have said to hand on what they had at these claims
    over    what those had at these claims has come to a session that has ended
    """

    def __init__(self, over: Claims) -> None:
        self.on_way: Claims = {}
        self.over = dict(over)

    def says(self, is_on_way: bool, claims: Claims) -> None:
        """A node has answered that these are on their way, or over."""
        known = self.on_way if is_on_way else self.over
        for store_id, counter in claims.items():
            take_claim(known, store_id, counter)
        if is_on_way and not claims:
            take_claim(known, UNNAMED, 0)

    def waited_for(self, includes: Claims | None) -> Claims:
        """Return what is to come. includes: of the session here (Home)."""
        here = {} if includes is None else includes
        left: Claims = {}
        for store_id, counter in self.on_way.items():
            if max(here.get(store_id, -1), self.over.get(store_id, -1)) < counter:
                left[store_id] = counter
        return left


class Over:
    """What sessions included that have ended here: homes that still have a part of their departure hand nothing on."""

    def __init__(self, broker: Broker, counters: SessionCounters) -> None:
        self._broker = broker  # it has its identity when its store was read
        self._by_client: OrderedDict[str, Claims] = OrderedDict()
        self._counters = counters

    def note(self, client_id: str, includes: Claims | None, counter: int) -> None:
        """A session has ended that included these, and was at home here by this claim; one that came from nowhere is
        promised by nobody."""
        if includes is None:
            return
        claims = dict(self.of(client_id))
        for store_id, of_home in includes.items():
            take_claim(claims, store_id, of_home)
        take_claim(claims, self._broker.identity.store_id, counter)
        remember(self._by_client, client_id, claims, self._counters)

    def of(self, client_id: str) -> Claims:
        return self._by_client.get(client_id, {})

    def counter_of(self, client_id: str) -> int:
        """Return that of the last claim of this node whose session has ended; 0 for none."""
        return self.of(client_id).get(self._broker.identity.store_id, 0)

    def on_way(self, client_id: str, since: int) -> Claims:
        """Return the claim `since` of a session that leaves here, unless it has ended here behind it."""
        return {self._broker.identity.store_id: since} if since > self.counter_of(client_id) else {}


def told_claims(claims: Claims) -> tuple[object, ...]:
    """Return them as in an ANSWER (wire)."""
    told: list[object] = []
    for store_id, counter in claims.items():
        told += (store_id, counter)
    return tuple(told)


def claims_of(told: list[object]) -> Claims:
    """Return what told_claims gave. Raises ValueError, TypeError and IndexError for what no node says."""
    return {checked(str, told[at]): count_of(told[at + 1]) for at in range(0, len(told), 2)}
