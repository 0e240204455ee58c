"""This node as the home of clients, as its store keeps it.

An epoch is (counter, store id) of the claim that made a node the home. The counter is the time of the claim in milliseconds
since 1970, and more than that of each claim before it that the node has heard of. Of two homes the one with the greater epoch
is the home.
"""

# compiled with mypyc
from __future__ import annotations

from bisect import bisect_right
from typing import Final, cast

from broker.message import NEVER
from broker.ownership import Claimant
from broker.session.session import Session
from broker.store.identity import Range, StoreIdentity, is_within, ranges_of
from broker.store.journal import Content, Journal, checked
from broker.store.kinds import ENDED, HEAD, HOME
from broker.store.shapes import count_of
from federation.sessions.arriving import Arriving, Epoch
from federation.sessions.promised import Claims, Promised, take_claim

NOT_TAKEN: Final = -1
ADOPTED_MAX: Final = 8  # lost stores that a session comes from; policy: the first is forgotten, and it may come twice

Tail = tuple[tuple[int, int, int], ...]
"""The newest messages of a copy, which its home may lack, by rising numbers: (the first number of records here that one was
made of, one above the last, number of its record there); 0 there where it is not known which of the newest it is, if one."""
Adopted = tuple[str, int, int, int, int, Tail]
"""(id of a lost store, a number above all its records that came from there, the first number of records here that were made
of them, and one above the last, counter of the claim of the lost home, the newest of them); the three numbers before the last
are 0 where another node made them, the counter alone where the lost home had handed the session on. All numbers are 0 where
that home was not lost, and has handed on what is not in its copy (Home.hands_on_rest)."""
Unstored = dict[str, tuple[Range, ...]]
AllAdopted = tuple[Adopted, ...]
"""One for each lost store: a client may have had a session on one, and the rest of it on another."""


class Home(Content):
    """client_id
    counter   of the epoch
    first     counter of the first claim since it is the home
    own_since  likewise, 0 where all of the session was here at a start: what this store had of it before went elsewhere
    number    of the claim among all of this process: another node has heard it when it has heard so many
    is_clean  the client wanted a new session: what another node has of an older one ends
    record    number of its record in the store, 0 for none
    adopted   copies of lost stores that the session comes from
    includes  by store id: up to which claim of it the session has what that home has handed on itself; None for none
    unstored  by store id: which records of its copy that home may lack, as it has said; in memory, else all of the newest
    handed    by store id: up to which claim of it all that the home handed over has come; in memory
    brought   ids of lost stores from whose copies this node has made the session: it gets what others had for them; in memory
    arriving  the session comes from another node, None when all of it is here
    taken_at  counter of the home, this one or a former one, whose exchanges with the client were taken; NOT_TAKEN for none
    packet_ids  of the client, which that home had not released; None for none
    is_deserted  the session was adopted, and no client has connected here since
    is_opening  a client is being let in
    claimant  it waits for the answers of other nodes, None while none does
    awaited   those that have not answered it
    promised  sessions that it waits for, too
    last_home  the node that had the session last, as far as it is known here while the client waits; "" for none
    until     when it waits no more
    """

    __slots__ = (
        "adopted",
        "arriving",
        "awaited",
        "brought",
        "claimant",
        "client_id",
        "counter",
        "first",
        "handed",
        "includes",
        "is_clean",
        "is_deserted",
        "is_opening",
        "last_home",
        "number",
        "own_since",
        "packet_ids",
        "promised",
        "record",
        "taken_at",
        "unstored",
        "until",
    )

    def __init__(self, client_id: str, counter: int, number: int) -> None:
        self.client_id = client_id
        self.counter = self.first = self.own_since = counter
        self.number = number
        self.is_clean = False
        self.record = 0
        self.adopted: AllAdopted = ()
        self.includes: dict[str, int] | None = None
        self.unstored: Unstored = {}
        self.handed: Claims = {}
        self.brought: dict[str, None] = {}
        self.arriving: Arriving | None = None
        self.taken_at = NOT_TAKEN
        self.packet_ids: list[int] | None = None
        self.is_deserted = False
        self.is_opening = False
        self.claimant: Claimant | None = None
        self.awaited: dict[str, None] | None = None
        self.promised: Promised | None = None
        self.last_home = ""
        self.until = NEVER

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(HOME, client id, counter, is_clean, how the session arrives (Arriving.values), None when all of it is here); behind
        them former_values."""
        arriving = None if self.arriving is None else self.arriving.values(wall_offset)
        record = HOME, self.client_id, self.counter, self.is_clean, arriving
        return (*record, *former_values(self.adopted, self.includes, self.arriving))

    def take_exchanges(self) -> None:
        """Exchanges that come from now on are older than those of the connection that begins, or has begun, here."""
        self.taken_at = self.counter
        self.packet_ids = None

    def goes_on_with(self, session: Session, packet_ids: list[int], since: int) -> None:
        """The client goes on with the exchanges of the home by this claim, which has not released these packet identifiers."""
        for packet_id in self.packet_ids or ():
            if packet_id not in packet_ids:
                session.release(packet_id)
        self.taken_at = since
        self.packet_ids = packet_ids or None

    def on_way(self) -> Claims:
        """Return the claims of the homes from which a session is on its way to a client that waits here."""
        return {} if self.promised is None else self.promised.waited_for(self.includes)

    def has_all_of(self, epoch: Epoch) -> bool:
        """Return whether what the home with this epoch had is here."""
        return self.includes is not None and self.includes.get(epoch[1], -1) >= epoch[0]

    def has_had(self, copied: tuple[object, ...], number: int | None, identity: StoreIdentity) -> bool:
        """Return whether what has this number in a copy came from the home of that itself, which has handed over all. Arguments
        as of is_included."""
        store_id, counter = cast(tuple[str, int], copied[1:])
        is_over = self.handed.get(store_id, -1) >= counter
        return is_over and is_included(copied, number, self.includes, self.unstored, identity, self.own_since)

    def adopts(self, adopted: Adopted) -> None:
        """The session comes from this copy, too."""
        others = [known for known in self.adopted if known[0] != adopted[0]]
        self.adopted = (*others[-ADOPTED_MAX + 1 :], adopted)
        if adopted[3]:
            self.brought[adopted[0]] = None

    def adopts_told(self, told: list[object]) -> None:
        """It comes from a node that has adopted it (told_adopted): lost homes that are back leave that out for the next home,
        too, unless they have handed on the rest before. Raises as include, and IndexError."""
        rest_is_here = [known[0] for known in self.adopted if known[1] == 0]
        for at in range(0, len(told), 2):
            if told[at] not in rest_is_here:
                self.adopts((checked(str, told[at]), count_of(told[at + 1]), 0, 0, 0, ()))

    def hands_on_rest(self, store_id: str, since: int) -> None:
        """The home with this store, of the claim with the counter `since`, hands on what it has, but not what is in its copy
        where it does not include that claim: it knows that another node has adopted it, and has nothing more. What comes from
        the copy is only here from now on, or on its way."""
        if store_id and not self.has_all_of((since, store_id)):
            self.adopts((store_id, 0, 0, 0, 0, ()))

    def was_not_lost(self, store_id: str, since: int) -> bool:
        """The home with this store, of the claim with the counter `since`, hands over what is not in its copy. Return whether
        the session has the exchanges of that copy, which these go on with."""
        known = [adopted for adopted in self.adopted if adopted[0] == store_id]
        if not known:
            return False
        self.adopted = tuple([adopted for adopted in self.adopted if adopted[0] != store_id])
        if known[0][3]:  # else another node has adopted it, and may have more of it
            self.include(((store_id, since),), ((store_id, ()),))
        return self.taken_at == since

    def include(self, stores: object, *unstored: object) -> None:
        """Former homes have handed on what they had, as in INCLUDES (wire). Raises ValueError and TypeError for a record that
        no node has written."""
        before = dict(self.includes or {})
        claims = more_included(None, stores) or {}
        self.includes = includes = more_included(self.includes, stores)
        known = {of: ranges for of, ranges in self.unstored.items() if claims.get(of, -1) <= before.get(of, -1)}
        for told in unstored:
            for store_id, ranges in checked(tuple, told):
                if claims.get(checked(str, store_id), -1) >= before.get(store_id, -1):  # ranges go with their claim
                    known[store_id] = ranges_of(ranges)
        self.unstored = {of: known[of] for of in includes or () if of in known}  # these are bounded


def more_included(known: dict[str, int] | None, stores: object) -> dict[str, int] | None:
    """Return `includes` of a session with these stores, too. Raises as Home.include."""
    includes = {} if known is None else known
    for store in checked(tuple, stores):
        store_id, counter = store
        take_claim(includes, checked(str, store_id), checked(int, counter))
    return includes or None


def former_values(
    all_adopted: AllAdopted, includes: dict[str, int] | None, arriving: Arriving | None
) -> tuple[object, ...]:
    """The end of a record of a session at home or on its way: adopted, includes, Arriving.lineage; the last of them that there
    are, and what is before these. One that is adopted stands there as an earlier build had it."""
    stored = tuple([one if one[5] else one[:5] for one in all_adopted])
    adopted: object = None
    if stored:
        adopted = stored[0] if len(stored) == 1 else stored
    stores = () if includes is None else tuple(includes.items())
    if arriving is not None and arriving.lost:
        return adopted, stores, arriving.lineage()
    if stores:
        return adopted, stores
    return () if adopted is None else (adopted,)


def adopted_of(value: object) -> AllAdopted:
    """Return `adopted` of a record. Raises as Home.include."""
    if value is None:
        return ()
    values = checked(tuple, value)
    if values and isinstance(values[0], tuple):
        return tuple([_adopted_of(checked(tuple, one)) for one in values])
    return (_adopted_of(values),)


def _adopted_of(values: tuple[object, ...]) -> Adopted:
    store_id, below, *here = values
    first, end, since, *more = here if len(here) >= 3 else (0, 0, 0)  # a store of an earlier build has less
    tail = tuple([_tail_of(checked(tuple, one)) for one in checked(tuple, more[0])]) if more else ()
    return (
        checked(str, store_id),
        checked(int, below),
        checked(int, first),
        checked(int, end),
        checked(int, since),
        tail,
    )


def _tail_of(values: tuple[object, ...]) -> tuple[int, int, int]:
    first, end, number = values
    return checked(int, first), checked(int, end), checked(int, number)


def number_there(tail: Tail, record: int) -> int | None:
    """Return the number that the record had in the copy; None for one that is not among its newest."""
    at = bisect_right(tail, (record + 1, 0, 0)) - 1
    return tail[at][2] if at >= 0 and record < tail[at][1] else None


def told_adopted(all_adopted: AllAdopted) -> tuple[object, ...]:
    """Return the lost stores as other nodes are told (SessionFrame.more): id and bound of the records of each."""
    told: list[object] = []
    for adopted in all_adopted:
        told += adopted[:2]
    return tuple(told)


def adopted_below(told: list[object], identity: StoreIdentity) -> int:
    """Return the number that the records of this store which another node has adopted are below; 0 where it has none. told: of
    its frame (SessionFrame.more). Raises ValueError and TypeError for what no node says."""
    for at, value in enumerate(told):
        if isinstance(value, str) and identity.is_or_was(value):
            return count_of(told[at + 1])
    return 0


def is_included(
    copied: tuple[object, ...],
    number: int | None,
    includes: dict[str, int] | None,
    unstored: Unstored,
    identity: StoreIdentity,
    own_since: int,
) -> bool:
    """Return whether the home of COPIED (wire) has handed on itself what it had at this claim, or has this store, and the
    session since (own_since, of the home). number: of the record there where it is one of the newest of the copy, which that
    home may have lacked; 0 for any of them. A store that was recovered from that one may not have what could not be read."""
    store_id, counter = cast(tuple[str, int], copied[1:])
    ranges = unstored.get(store_id)
    if store_id == identity.store_id:  # it was on its way to a home that was lost, and that this node has adopted
        ranges = identity.unstored
        if own_since <= counter:
            includes = {store_id: counter}
    if includes is None or includes.get(store_id, -1) < counter:
        return False
    return number is None or (number > 0 and ranges is not None and not is_within(ranges, number))


class Ended(Content):
    """A session that has ended here, and that another node may have, which was away at the claim. Fields as those of Home."""

    __slots__ = ("client_id", "counter", "number", "record")

    def __init__(self, client_id: str, counter: int, number: int) -> None:
        self.client_id = client_id
        self.counter = counter
        self.number = number
        self.record = 0

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(ENDED, client id, counter)."""
        return ENDED, self.client_id, self.counter


class Head(Content):
    """Records of a session that a node hands over, of which more come before the session can be served."""

    __slots__ = ("client_id", "node", "record", "records")

    def __init__(self, node: str, client_id: str, records: list[tuple[object, ...]]) -> None:
        self.node = node
        self.client_id = client_id
        self.records = records
        self.record = 0

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(HEAD, node, client id, records)."""
        return HEAD, self.node, self.client_id, tuple(self.records)

    def keep(self, journal: Journal | None) -> None:
        """The rest of it comes in a frame of its own."""
        if journal is None:
            pass
        elif self.record:
            journal.change(self.record, self)
        else:
            self.record = journal.keep(self)

    def forget(self, heads: dict[tuple[str, str], Head], journal: Journal | None) -> None:
        heads.pop((self.node, self.client_id), None)
        if self.record and journal is not None:
            journal.drop(self.record)
