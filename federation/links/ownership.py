"""Decides which node of a cluster runs a link: one owner, fenced by an epoch that only rises.

Each member with links has a table: a row for each link that it can run, with what it does there. A change of the own table is
told to all living members; the answer is their table. So each member knows who runs what, and nothing is lost with a message
that does not arrive: the next one has everything.

    ABLE      could run the link                        claims it, when this node is the first for it
    CLAIMS    wants to run it, and has told everybody   runs it, when nobody else does, at the latest at a deadline
    RUNS      runs it                                   drains it, when another node claims it with a higher epoch
    DRAINS    finishes what is in flight                able, when that is done, at the latest at a deadline

A node takes part from `join` to `leave`. The first for a link is the member with the highest hash of link and name
(rendezvous hashing) among those that can run it: a member that comes or goes moves the links of no other pair of members. A
claim has an epoch above all that this node has heard of. Two nodes that do not hear of each other may take the same number,
so epochs compare by number, then by the name of the node.

A row says, too, where the link has its session at the upstream, which may have several addresses. The word of the member that
runs the link with the highest epoch counts, also after that member is gone: the next one goes on with the session, and leaves
no second one behind.

A core: after every call take `take_tables` and `take_orders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.message import NEVER
from federation.definitions.resolution import LINKS_MAX
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
"""Longest wait of a node that joins until it knows another member: it would claim what others run."""
READY_SECONDS_MAX: Final = 10.0
"""Longest wait of a node that joins until it knows what the other members subscribe to: it would acknowledge messages that
somebody there wants."""
RECLAIM_SECONDS: Final = 1.0
"""Rest of a node that gave a link up before it claims it again: by then all see the same members."""
RETRY_SECONDS: Final = 0.5
"""Between two tries to tell a member the table."""
COMPETING: Final = (Phase.CLAIMS, Phase.RUNS)
BUSY: Final = (Phase.RUNS, Phase.DRAINS)


@dataclass(slots=True)
class _Own:
    """One link here.

    heard      the highest epoch that this node or a member knows
    told_with  serial of the first table that has the claim
    until      able: no claim before; claims: it runs then at the latest; drains: it ends then at the latest
    session    where it has its session, None for nowhere
    said_by    epoch and name of the member that ran it as it said so; (0, "") for one that did not, (-1, "") for nobody
    """

    heard: int = 0
    phase: Phase = Phase.ABLE
    epoch: int = 0
    told_with: int = 0
    claimed_at: float = 0.0
    until: float = 0.0
    is_wanted: bool = True
    is_contested: bool = False
    session: SessionPlace | None = None
    said_by: tuple[int, str] = (-1, "")

    def hear(self, row: Row, name: str) -> None:
        """A member tells its row. Of one that does not run the link the session counts only where nothing is known."""
        self.heard = max(self.heard, row.epoch)
        if row.phase in BUSY and (row.epoch, name) >= self.said_by:
            self.session, self.said_by = row.session, (row.epoch, name)
        elif row.session is not None and self.said_by < (0, ""):
            self.session, self.said_by = row.session, (0, "")


@dataclass(slots=True)
class _Other:
    """One living member with links.

    waits_until  a claim waits for the first table of the member so long
    rows         of its table, by link
    answered     serial of the newest table of this node that it has answered; -1 for none
    tells_at     it is told no table before; NEVER while one is on its way
    """

    waits_until: float
    table: Table | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    answered: int = -1
    tells_at: float = 0.0


class Ownership:
    """epoch_min  above all epochs that this node had in an earlier process, such as milliseconds of the wall clock
    sessions   where links had sessions at the end of the process before
    """

    def __init__(
        self, node: str, incarnation: int, epoch_min: int, sessions: Mapping[str, SessionPlace] | None = None
    ) -> None:
        self.node = node
        self._incarnation = incarnation
        self._epoch_min = epoch_min
        self._is_away = True
        self._settles_until = 0.0
        self._ready_until = 0.0
        self._is_waiting = False  # for other members, or their first tables
        self._serial = 1
        self._sessions_before = dict(sessions or {})
        self._links: dict[str, _Own] = {}
        self._others: dict[str, _Other] = {}
        self._orders: list[Order] = []
        self._wakes_at = NEVER

    # --- what the owner tells ---

    def join(self, waits: bool, now: float) -> None:
        """The node takes part from now on. `waits`: there may be other members that it does not know yet."""
        self._is_away = False
        self._settles_until = now + SETTLE_SECONDS_MAX if waits else now
        self._ready_until = now + READY_SECONDS_MAX if waits else 0.0
        self._serial += 1
        self._decide(now)

    def leave(self, now: float) -> None:
        """Drain all links and claim none any more: this node leaves the federation or stops."""
        self._is_away = True
        for link_id, own in list(self._links.items()):
            self._give_up(link_id, own, now)
        self._serial += 1  # the rows of links that this node is only able to run are gone
        self._decide(now)

    def has_left(self) -> bool:
        """After `leave`: nothing runs here, and all living members know."""
        is_idle = all(own.phase is Phase.ABLE for own in self._links.values())
        return self._is_away and is_idle and all(other.answered >= self._serial for other in self._others.values())

    def set_links(self, link_ids: Iterable[str], now: float) -> None:
        """The links of the definitions, of those that can run on this node."""
        wanted = dict.fromkeys(link_ids)  # in their order: the same run of the simulator for the same seed
        if len(wanted) > LINKS_MAX:
            raise ValueError(f"{len(wanted)} links; at most {LINKS_MAX} are possible")
        for link_id in wanted:
            if link_id not in self._links:
                own = self._links[link_id] = _Own()
                place = self._sessions_before.pop(link_id, None)
                if place is not None:
                    own.session, own.said_by = place, (0, "")
                for name, row in self._rows(link_id).items():
                    own.hear(row, name)
                self._serial += 1
        for link_id, own in list(self._links.items()):
            own.is_wanted = link_id in wanted
            if not own.is_wanted:
                self._give_up(link_id, own, now)
        self._decide(now)

    def set_members(self, names: Iterable[str], now: float) -> None:
        """The living members with links, without this node."""
        before = self._others
        living = dict.fromkeys(name for name in names if name != self.node)
        self._others = {name: before.get(name) or _Other(now + CLAIM_SECONDS_MAX) for name in living}
        self._decide(now)

    def waits_until_ready(self) -> bool:
        """Return whether `ready` would let this node claim links."""
        return self._ready_until > 0.0 and not self._is_waiting

    def ready(self, now: float) -> None:
        """The node knows what the other members subscribe to."""
        self._ready_until = 0.0
        self._decide(now)

    def set_sessions(self, places: Mapping[str, SessionPlace | None]) -> bool:
        """Links that run here have their sessions at these places; None for a link without one. True for a change."""
        before = self._serial
        for link_id, place in places.items():
            own = self._links.get(link_id)
            if own is not None and own.phase in BUSY and place != own.session and (own.epoch, self.node) >= own.said_by:
                own.session, own.said_by = place, (own.epoch, self.node)
                self._serial += 1
        return self._serial != before

    def sessions(self) -> dict[str, SessionPlace]:
        """Return where links have sessions, as far as this node knows."""
        return {link_id: own.session for link_id, own in self._links.items() if own.session is not None}

    def released(self, link_id: str, now: float) -> None:
        """The link is drained."""
        own = self._links.get(link_id)
        if own is not None and own.phase is Phase.DRAINS:
            self._set_able(link_id, own, now)
            self._decide(now)

    # --- what other members tell ---

    def handle_table(self, table: Table, now: float) -> Table:
        """A member tells its table. The answer is the own one, with what the other table has caused. A node that is no member
        yet is told this node's table, and answers with its own, as soon as it is one."""
        other = self._others.get(table.node)
        if other is not None:
            self._take(table.node, other, table)
            self._decide(now)
        return self.table()

    def handle_answer(self, name: str, serial: int, table: Table, now: float) -> None:
        """A member has read the own table with this serial, and tells its table."""
        other = self._others.get(name)
        if other is None or table.node != name:
            self.telling_failed(name, now)
            return
        other.tells_at = 0.0
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
            other.tells_at = now + RETRY_SECONDS

    # --- what is to be done ---

    def take_orders(self) -> list[Order]:
        """Return what to do with the links of this node."""
        orders, self._orders = self._orders, []
        return orders

    def take_tables(self, now: float) -> list[Telling]:
        """Whom to tell the own table. One at a time is on its way to a member."""
        found: list[Telling] = []
        for name, other in self._others.items():
            if other.answered < self._serial and now >= other.tells_at:
                other.tells_at = NEVER
                found.append(Telling(name, self.table()))
        return found

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        tells = [other.tells_at for other in self._others.values() if other.answered < self._serial]
        return min([self._wakes_at, *tells])

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        self._decide(now)

    # --- what an operator sees ---

    def table(self) -> Table:
        """Return what this node does with its links."""
        rows = [
            Row(link_id, own.phase, own.heard if own.phase is Phase.ABLE else own.epoch, own.session)
            for link_id, own in self._links.items()
            if own.phase is not Phase.ABLE or self._is_able(own)
        ]
        return Table(self.node, self._incarnation, self._serial, tuple(rows))

    def owner(self, link_id: str) -> Owner | None:
        """The member that runs the link, or else the first for it; None where no member can run it."""
        epoch, name = _competing(self._rows(link_id))
        own = self._links.get(link_id)
        if own is not None and own.phase in COMPETING and (epoch, name) <= (own.epoch, self.node):
            return Owner(self.node, own.epoch)
        if not name:
            name = self._chosen(link_id)
        return Owner(name, epoch) if name else None

    def settled_at(self, link_id: str) -> str:
        """The other member that claims or runs the link, and is the first for it; "" for none."""
        _, name = _competing(self._rows(link_id))
        return name if name == self._chosen(link_id) else ""

    def waiting(self) -> list[Claim]:
        """The claims of this node that wait for others."""
        return [
            Claim(link_id, own.epoch, own.claimed_at, own.until)
            for link_id, own in self._links.items()
            if own.phase is Phase.CLAIMS
        ]

    # --- rules ---

    def _take(self, name: str, other: _Other, table: Table) -> None:
        """Replace the table of a member, unless this one is older."""
        known = other.table
        if known is None or known.incarnation != table.incarnation:
            other.answered = -1  # an earlier process has answered
        elif table.serial <= known.serial:
            return
        other.table = table
        other.rows = {row.link_id: row for row in table.rows}
        for row in table.rows:
            own = self._links.get(row.link_id)
            if own is not None:
                own.hear(row, name)

    def _decide(self, now: float) -> None:
        """Everything that follows from what is known now."""
        if now >= self._ready_until:
            self._ready_until = 0.0
        waits = [other.waits_until for other in self._others.values() if other.table is None]
        if not self._others:
            waits.append(self._settles_until)
        self._is_waiting = any(now < until for until in waits)
        may_claim = not (self._is_away or self._is_waiting or self._ready_until)
        for link_id, own in list(self._links.items()):
            if own.phase is Phase.ABLE and may_claim and now >= own.until and self._chosen(link_id) == self.node:
                self._claim(own, now)
            rows = self._rows(link_id)
            is_beaten = _competing(rows) > (own.epoch, self.node)
            is_busy = any(row.phase in BUSY for row in rows.values())
            if own.phase is Phase.CLAIMS:
                if is_busy:
                    own.until = own.claimed_at + CLAIM_SECONDS_MAX + DRAIN_SECONDS_MAX
                has_been_read = all(other.answered >= own.told_with for other in self._others.values())
                if is_beaten:
                    self._set_able(link_id, own, now)
                elif now >= own.until or (has_been_read and not is_busy):
                    own.phase, own.until = Phase.RUNS, 0.0
                    self._serial += 1
                    self._orders.append(Run(link_id, own.epoch, own.session))
            elif own.phase is Phase.RUNS:
                if is_beaten:
                    self._give_up(link_id, own, now)
                elif own.is_contested and not is_busy:
                    self._orders.append(Run(link_id, own.epoch, own.session))
            elif own.phase is Phase.DRAINS and now >= own.until:
                self._orders.append(Stop(link_id))
                self._set_able(link_id, own, now)
            own.is_contested = own.phase is Phase.RUNS and is_busy
        deadlines = [self._ready_until, *waits, *(own.until for own in self._links.values())]
        self._wakes_at = min([at for at in deadlines if at > now], default=NEVER)

    def _claim(self, own: _Own, now: float) -> None:
        own.epoch = own.heard = max(own.heard + 1, self._epoch_min)
        self._serial += 1
        own.phase = Phase.CLAIMS
        own.told_with = self._serial
        own.claimed_at = now
        own.until = now + CLAIM_SECONDS_MAX

    def _give_up(self, link_id: str, own: _Own, now: float) -> None:
        """Drain a link that runs; forget a claim, and a link that is not wanted any more."""
        if own.phase is Phase.RUNS:
            own.phase = Phase.DRAINS
            own.until = now + DRAIN_SECONDS_MAX
            self._serial += 1
            self._orders.append(Drain(link_id, own.until))
        elif own.phase is not Phase.DRAINS:
            self._set_able(link_id, own, now)

    def _set_able(self, link_id: str, own: _Own, now: float) -> None:
        own.phase = Phase.ABLE
        own.until = now + RECLAIM_SECONDS
        self._serial += 1
        if not own.is_wanted:
            del self._links[link_id]

    def _rows(self, link_id: str) -> dict[str, Row]:
        """The rows of a link at the other members, by member."""
        return {name: other.rows[link_id] for name, other in self._others.items() if link_id in other.rows}

    def _is_able(self, own: _Own) -> bool:
        """Return whether this node may claim the link."""
        return own.is_wanted and not self._is_away

    def _chosen(self, link_id: str) -> str:
        """The member that is the first for the link; "" for none."""
        names = list(self._rows(link_id))
        own = self._links.get(link_id)
        if own is not None and self._is_able(own):
            names.append(self.node)
        return max(names, key=lambda name: (weight(link_id, name), name), default="")


def _competing(rows: dict[str, Row]) -> tuple[int, str]:
    """The highest epoch of the other members that claim or run a link, and who has it; (0, "") for none."""
    return max([(row.epoch, name) for name, row in rows.items() if row.phase in COMPETING], default=(0, ""))
