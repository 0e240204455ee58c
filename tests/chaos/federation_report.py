"""What `scripts/chaos federation` says at its end."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from federation_schedule import Trouble
from ledger import Account


@dataclass
class FederationReport:
    """seconds    how long things went wrong
    incidents  number by kind
    lengths    seconds of each incident, by kind
    account    what was promised and delivered
    clients    how many subscribers and publishers
    moves      times that a client was let in at another node than before; of these those in a cut, to the other side; and
               times that its session was not known there
    two_owners  client identifiers with sessions, or connections, on two nodes after healing
    adopted    lost stores whose sessions another node went on with
    spared     disks that were not lost, since their copies were not whole any more
    heals      seconds from the end of each incident until all that was acknowledged before was delivered, and each client had
               one owner
    faults     what is not as promised
    """

    nodes: int
    seconds: float = 0.0
    lengths: dict[Trouble, list[float]] = field(default_factory=lambda: {trouble: [] for trouble in Trouble})
    account: Account = field(default_factory=Account)
    clients: str = ""
    moves: int = 0
    crossings: int = 0
    begins: int = 0
    two_owners: int = 0
    adopted: int = 0
    spared: int = 0
    heals: dict[Trouble, list[float]] = field(default_factory=lambda: {trouble: [] for trouble in Trouble})
    faults: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        account = self.account
        return not (self.faults or account.lost or account.twice or account.late or self.two_owners)

    @property
    def claim(self) -> str:
        return (
            "every acknowledged message reached every durable session, in order; QoS 2 once; each client had one owner"
        )

    def lines(self) -> list[str]:
        account = self.account
        heals = [seconds for all_seconds in self.heals.values() for seconds in all_seconds] or [0.0]
        return [
            f"{self.nodes} nodes, {self.seconds:.0f} s; {self.clients}",
            *(
                f"  {len(lengths):>2} {trouble}, {min(lengths):.1f} to {max(lengths):.1f} s, healed in "
                f"{max(self.heals[trouble], default=0.0):.1f} s at most"
                for trouble, lengths in self.lengths.items()
                if lengths
            ),
            f"published       {account.published:>10,}",
            f"acknowledged    {account.acknowledged:>10,}",
            f"refused         {account.refused:>10,} (of a node with a full disk)",
            f"delivered       {account.delivered:>10,} of {account.expected:,}",
            f"repeated        {account.repeated:>10,} (QoS 1)",
            f"lost            {account.lost:>10,}",
            f"out of order    {account.late:>10,}",
            f"                {account.late_moving:>10,} to subscribers that changed nodes while another one did not answer",
            f"QoS 2 repeated  {account.twice:>10,}",
            *(
                f"                {count:>10,} of clients that were {unsure}"
                for unsure, count in account.unsure.items()
            ),
            f"two owners      {self.two_owners:>10,}",
            f"clients moved   {self.moves:>10,}",
            f"                {self.crossings:>10,} of them to the other side of a cut",
            f"                {self.begins:>10,} times let in without their session",
            f"stores adopted  {self.adopted:>10,}",
            f"disks spared    {self.spared:>10,} (their copies were not whole any more)",
            f"time to heal    {statistics.median(heals):>10.1f} s median, {max(heals):.1f} s longest",
            *(f"FAULT: {fault}" for fault in [*account.examples, *self.faults]),
        ]
