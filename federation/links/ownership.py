"""Decides which node of a cluster runs a link: one owner, fenced by an epoch that only rises.

Each member with links has a table: a row for each link that it can run, with what it does there. A change of the own table is
told to all living members; the answer is their table. So each member knows who runs what, and nothing is lost with a message
that does not arrive: the next one has everything.

    ABLE      could run the link                        claims it, when this node is the first for it
    CLAIMS    wants to run it, and has told everybody   runs it, when nobody else does, at the latest at a deadline
    RUNS      runs it                                   drains it, when another node claims it with a higher epoch
    DRAINS    finishes what is in flight                able, when that is done, at the latest at a deadline

The first for a link is the member with the highest hash of link and name (rendezvous hashing) among those that can run it: a
member that comes or goes moves the links of no other pair of members. A claim has an epoch above all that this node has heard
of. Two nodes that do not hear of each other may take the same number, so epochs compare by number, then by the name of the
node.

A row says, too, where the link has its session at the upstream (known_sessions.py).

A core: after every call take `take_tables` and `take_orders`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from broker.message import NEVER
from federation.definitions.resolution import LINKS_MAX
from federation.links.known_sessions import KnownSessions
from federation.links.ownership_table import (
    Claim,
    Drain,
    Order,
    Owner,
    Phase,
    Row,
    Run,
    Stop,
    Table,
    Telling,
    weight,
)
from federation.links.reconnecting import SessionPlace

CLAIM_SECONDS_MAX: Final = 2.0
"""Longest wait of a claim for the answers of other members, and for the first table of a member that has just come."""
DRAIN_SECONDS_MAX: Final = 5.0
"""Longest time until a link that ends has finished what is in flight. A claim waits as long, and CLAIM_SECONDS_MAX more."""
SETTLE_SECONDS_MAX: Final = 3.0
"""Longest wait of a node that starts until it knows another member: it would claim what others run."""
READY_SECONDS_MAX: Final = 10.0
"""Longest wait of a node that starts until it knows what the other members subscribe to: it would acknowledge messages that
somebody there wants."""
RECLAIM_SECONDS: Final = 1.0
"""Rest of a node that gave way to another claim: by then both see the same members."""
RETRY_SECONDS: Final = 0.5
"""Between two tries to tell a member the table."""
UNKNOWN_MAX: Final = 64
"""Tables of nodes that are no members yet. The oldest one is dropped."""


@dataclass(slots=True)
class _Own:
    """One link here. `told_with`: serial of the first table that has the claim; `rests_until`: no claim before."""

    phase: Phase = Phase.ABLE
    epoch: int = 0
    told_with: int = 0
    claimed_at: float = 0.0
    deadline: float = NEVER
    rests_until: float = 0.0
    is_wanted: bool = True
    is_contested: bool = False


@dataclass(slots=True)
class _Other:
    """One living member with links.

    waits_until  of its first table; 0.0 when that is here, or is not waited for any more
    answered     serial of the newest table of this node that it has answered; -1 for none
    is_told      a table is on its way to it
    """

    table: Table | None = None
    waits_until: float = 0.0
    answered: int = -1
    is_told: bool = False
    retry_at: float = 0.0


class Ownership:
    """`epoch_min`: above all epochs that this node had in an earlier process, such as milliseconds of the wall clock.

    settles_until  when a node that waits for other members stops to wait; `now` for one that has none
    ready_until    when a node claims links even if it is not `ready`
    sessions       where links had sessions at the end of the process before
    """

    def __init__(
        self,
        node: str,
        incarnation: int,
        epoch_min: int,
        settles_until: float,
        ready_until: float = 0.0,
        sessions: Mapping[str, SessionPlace] | None = None,
    ) -> None:
        self.node = node
        self._incarnation = incarnation
        self._epoch_min = epoch_min
        self._settles_until = settles_until
        self._ready_until = ready_until
        self._serial = 1
        self._links: dict[str, _Own] = {}
        self._heard: dict[str, int] = {}  # highest epoch of each link that a member knows
        self._sessions = KnownSessions(sessions or {})
        self._others: dict[str, _Other] = {}
        self._unknown: OrderedDict[str, Table] = OrderedDict()
        self._rows: dict[str, dict[str, Row]] = {}  # of living members, by name and link
        self._is_leaving = False
        self._orders: list[Order] = []

    # --- what the owner tells ---

    def set_links(self, link_ids: Iterable[str], now: float) -> None:
        """The links of the definitions, of those that can run on this node."""
        wanted = dict.fromkeys(link_ids)  # in their order: the same run of the simulator for the same seed
        if len(wanted) > LINKS_MAX:
            raise ValueError(f"{len(wanted)} links; at most {LINKS_MAX} are possible")
        for link_id in wanted:
            if link_id not in self._links:
                self._links[link_id] = _Own()
                self._serial += 1
        for link_id, own in list(self._links.items()):
            own.is_wanted = link_id in wanted
            if not own.is_wanted:
                self._give_up(link_id, own, "", now)
        self._forget_unknown()
        self._decide(now)

    def set_members(self, names: Iterable[str], now: float) -> None:
        """The living members with links, without this node."""
        living = dict.fromkeys(name for name in names if name != self.node)
        for name in [name for name in self._others if name not in living]:
            del self._others[name]
            self._rows.pop(name, None)
        for name in living:
            if name not in self._others:
                other = self._others[name] = _Other(waits_until=now + CLAIM_SECONDS_MAX)
                table = self._unknown.pop(name, None)
                if table is not None:
                    self._take(name, other, table)
        self._decide(now)

    def set_sessions(self, places: Mapping[str, SessionPlace | None]) -> bool:
        """Links that run here have their sessions at these places; None for a link without one. True for a change."""
        before = self._serial
        for link_id, place in places.items():
            own = self._links.get(link_id)
            if own is not None and own.phase in (Phase.RUNS, Phase.DRAINS) and place != self._sessions.place(link_id):
                self._serial += self._sessions.note(link_id, own.epoch, self.node, place)
        return self._serial != before

    def released(self, link_id: str, now: float) -> None:
        """The link is drained."""
        own = self._links.get(link_id)
        if own is not None and own.phase is Phase.DRAINS:
            self._set_able(link_id, own)
            self._decide(now)

    def leave(self, now: float) -> None:
        """Drain all links and claim none any more: this node leaves the federation or stops."""
        self._is_leaving = True
        for link_id, own in list(self._links.items()):
            self._give_up(link_id, own, "", now)
        self._serial += 1  # the rows of links that this node is only able to run are gone
        self._decide(now)

    def come_back(self, now: float) -> None:
        """The node is a member again after a leave."""
        self._is_leaving = False
        self._settles_until = now + SETTLE_SECONDS_MAX
        self._ready_until = now + READY_SECONDS_MAX
        self._serial += 1
        self._decide(now)

    def waits_until_ready(self) -> bool:
        """Return whether `ready` would let this node claim links."""
        return self._settles_until == 0.0 and self._ready_until > 0.0

    def ready(self, now: float) -> None:
        """The node knows what the other members subscribe to."""
        self._ready_until = 0.0
        self._decide(now)

    def has_left(self) -> bool:
        """After `leave`: nothing runs here, and all living members know."""
        is_idle = all(own.phase is Phase.ABLE for own in self._links.values())
        return self._is_leaving and is_idle and all(other.answered >= self._serial for other in self._others.values())

    # --- what other members tell ---

    def handle_table(self, table: Table, now: float) -> Table:
        """A member tells its table. The answer is the own one, with what the other table has caused."""
        other = self._others.get(table.node)
        if other is not None:
            self._take(table.node, other, table)
            self._decide(now)
        elif table.node != self.node:
            self._unknown.pop(table.node, None)
            self._unknown[table.node] = table
            if len(self._unknown) > UNKNOWN_MAX:
                self._unknown.popitem(last=False)
        return self.table()

    def handle_answer(self, name: str, serial: int, table: Table, now: float) -> None:
        """A member has read the own table with this serial, and tells its table."""
        other = self._others.get(name)
        if other is None or table.node != name:
            self.telling_failed(name, now)
            return
        other.is_told = False
        known = other.table
        self._take(name, other, table)
        if known is None or known.incarnation == table.incarnation:
            other.answered = max(other.answered, serial)
        # Otherwise the answer may be a late one of an earlier process: the next answer tells.
        self._decide(now)

    def telling_failed(self, name: str, now: float) -> None:
        """A member could not be told the table."""
        other = self._others.get(name)
        if other is not None:
            other.is_told = False
            other.retry_at = now + RETRY_SECONDS

    # --- what is to be done ---

    def take_orders(self) -> list[Order]:
        """Return what to do with the links of this node."""
        orders = self._orders
        if orders:
            self._orders = []
        return orders

    def take_tables(self, now: float) -> list[Telling]:
        """Whom to tell the own table. One at a time is on its way to a member."""
        found: list[Telling] = []
        for name, other in self._others.items():
            if other.answered < self._serial and not other.is_told and now >= other.retry_at:
                other.is_told = True
                found.append(Telling(name, self.table()))
        return found

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        at = min([until for until in (self._settles_until, self._ready_until) if until > 0.0], default=NEVER)
        for other in self._others.values():
            if other.waits_until > 0.0:
                at = min(at, other.waits_until)
            if other.answered < self._serial and not other.is_told:
                at = min(at, other.retry_at)
        for own in self._links.values():
            if own.phase is Phase.ABLE:
                if own.rests_until > 0.0:
                    at = min(at, own.rests_until)
            elif own.phase is not Phase.RUNS:
                at = min(at, own.deadline)
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        self._decide(now)

    # --- what an operator sees ---

    def table(self) -> Table:
        """Return what this node does with its links."""
        rows = [
            Row(
                link_id,
                own.phase,
                own.epoch if own.phase is not Phase.ABLE else self._heard.get(link_id, 0),
                self._sessions.place(link_id),
            )
            for link_id, own in self._links.items()
            if own.phase is not Phase.ABLE or (own.is_wanted and not self._is_leaving)
        ]
        return Table(self.node, self._incarnation, self._serial, tuple(rows))

    def sessions(self) -> dict[str, SessionPlace]:
        """Return where the links of the cluster have sessions, as far as this node knows."""
        return self._sessions.places()

    def owner(self, link_id: str) -> Owner | None:
        """The member that runs the link, or else the first for it; None where no member can run it."""
        competing = self._competing(link_id)
        own = self._links.get(link_id)
        if own is not None and own.phase in (Phase.CLAIMS, Phase.RUNS):
            if competing is None or (own.epoch, self.node) > (competing.epoch, competing.node):
                return Owner(self.node, own.epoch)
        if competing is not None:
            return competing
        chosen = self._chosen(link_id)
        return None if chosen is None else Owner(chosen, 0)

    def settled_at(self, link_id: str) -> str:
        """The other member that claims or runs the link, and to which it falls; "" for none."""
        competing = self._competing(link_id)
        return competing.node if competing is not None and competing.node == self._chosen(link_id) else ""

    def phase(self, link_id: str) -> Phase | None:
        """Return what this node does with a link; None for one that it does not know."""
        own = self._links.get(link_id)
        return None if own is None else own.phase

    def waiting(self) -> list[Claim]:
        """The claims of this node that wait for others."""
        return [
            Claim(link_id, own.epoch, own.claimed_at, own.deadline)
            for link_id, own in self._links.items()
            if own.phase is Phase.CLAIMS
        ]

    # --- rules ---

    def _take(self, name: str, other: _Other, table: Table) -> None:
        """Replace the table of a member, unless this one is older."""
        known = other.table
        if known is not None and known.incarnation == table.incarnation:
            if table.serial <= known.serial:
                return
        else:
            other.answered = -1  # an earlier process has answered
        other.table = table
        other.waits_until = 0.0
        self._rows[name] = {row.link_id: row for row in table.rows}
        for row in table.rows:
            self._heard[row.link_id] = max(row.epoch, self._heard.get(row.link_id, 0))
            self._sessions.hear(name, row)
        self._forget_unknown()

    def _forget_unknown(self) -> None:
        """Forget links that no member knows."""
        link_ids = set(self._links).union(*self._rows.values())
        self._heard = {link_id: epoch for link_id, epoch in self._heard.items() if link_id in link_ids}
        self._sessions.keep(link_ids)

    def _decide(self, now: float) -> None:
        """Everything that follows from what is known now."""
        is_waiting = False
        for other in self._others.values():
            if now >= other.waits_until:
                other.waits_until = 0.0
            else:
                is_waiting = True
        if now >= self._settles_until or (self._others and not is_waiting):
            self._settles_until = 0.0
        if now >= self._ready_until:
            self._ready_until = 0.0
        is_ready = self._settles_until == 0.0 and self._ready_until == 0.0
        may_claim = is_ready and not self._is_leaving and not is_waiting
        for link_id, own in list(self._links.items()):
            competing = self._competing(link_id)
            is_beaten = competing is not None and (competing.epoch, competing.node) > (own.epoch, self.node)
            if own.phase is Phase.CLAIMS:
                if is_beaten:
                    self._set_able(link_id, own)
                    own.rests_until = now + RECLAIM_SECONDS
                elif now >= own.deadline or self._is_free(link_id, own, now):
                    own.phase = Phase.RUNS
                    own.is_contested = False
                    self._serial += 1
                    self._order_run(link_id, own)
            elif own.phase is Phase.RUNS:
                if competing is not None and is_beaten:
                    self._give_up(link_id, own, competing.node, now)
                    own.rests_until = now + RECLAIM_SECONDS
                    continue
                is_busy = self._is_busy(link_id)
                if own.is_contested and not is_busy:
                    self._order_run(link_id, own)
                own.is_contested = is_busy
            elif own.phase is Phase.DRAINS:
                if now >= own.deadline:
                    self._orders.append(Stop(link_id))
                    self._set_able(link_id, own)
            else:
                if now >= own.rests_until:
                    own.rests_until = 0.0
                if may_claim and own.rests_until == 0.0 and self._chosen(link_id) == self.node:
                    self._claim(link_id, own, now)

    def _claim(self, link_id: str, own: _Own, now: float) -> None:
        own.epoch = max(self._heard.get(link_id, 0) + 1, self._epoch_min)
        self._heard[link_id] = own.epoch
        self._serial += 1
        own.phase = Phase.CLAIMS
        own.told_with = self._serial
        own.claimed_at = now
        own.deadline = now + CLAIM_SECONDS_MAX + (DRAIN_SECONDS_MAX if self._is_busy(link_id) else 0.0)
        if not self._others:
            own.phase = Phase.RUNS
            own.is_contested = False
            self._order_run(link_id, own)

    def _order_run(self, link_id: str, own: _Own) -> None:
        self._orders.append(Run(link_id, own.epoch, self._sessions.place(link_id)))

    def _is_free(self, link_id: str, own: _Own, now: float) -> bool:
        """Return whether every living member has read the claim, and none runs the link."""
        if self._is_busy(link_id):
            own.deadline = max(own.deadline, own.claimed_at + DRAIN_SECONDS_MAX + CLAIM_SECONDS_MAX)
            return False
        return all(other.answered >= own.told_with for other in self._others.values())

    def _is_busy(self, link_id: str) -> bool:
        """Return whether another living member runs the link or drains it."""
        for rows in self._rows.values():
            row = rows.get(link_id)
            if row is not None and row.phase in (Phase.RUNS, Phase.DRAINS):
                return True
        return False

    def _give_up(self, link_id: str, own: _Own, owner: str, now: float) -> None:
        """Drain a link that runs; forget a claim, and a link that is not wanted any more."""
        if own.phase is Phase.RUNS:
            own.phase = Phase.DRAINS
            own.deadline = now + DRAIN_SECONDS_MAX
            self._serial += 1
            self._orders.append(Drain(link_id, own.deadline, owner))
        elif own.phase is not Phase.DRAINS:
            self._set_able(link_id, own)

    def _set_able(self, link_id: str, own: _Own) -> None:
        own.phase = Phase.ABLE
        own.deadline = NEVER
        self._serial += 1
        if not own.is_wanted:
            del self._links[link_id]
            self._heard.pop(link_id, None)
            self._sessions.forget(link_id)

    def _competing(self, link_id: str) -> Owner | None:
        """The other member that claims or runs the link with the highest epoch."""
        found: Owner | None = None
        for name, rows in self._rows.items():
            row = rows.get(link_id)
            if row is not None and row.phase in (Phase.CLAIMS, Phase.RUNS):
                if found is None or (row.epoch, name) > (found.epoch, found.node):
                    found = Owner(name, row.epoch)
        return found

    def _chosen(self, link_id: str) -> str | None:
        """The member that is the first for the link."""
        names = [name for name, rows in self._rows.items() if link_id in rows]
        own = self._links.get(link_id)
        if own is not None and own.is_wanted and not self._is_leaving:
            names.append(self.node)
        return max(names, key=lambda name: (weight(link_id, name), name)) if names else None
