"""Credit of queue links: how many jobs of a shared group move from the queue of an upstream to this domain.

An upstream offers the jobs that its own consumers have no room for. The downstream asks for some of them while its own queue is
empty and its own consumers have room, for at most that room, from all upstreams together. A job that was sent is the
downstream's when it is acknowledged; one that was not goes back to the upstream's queue when the session ends.

Credit is a limit: the number of jobs that the downstream takes since the session began. It goes down again when the room goes;
jobs that are on the way then come all the same.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

from federation.errors import QueueLinkFault

VISITS_MAX: Final = 1_000  # domains that a job came through; it stays where it is then
OFFER_MAX: Final = 65_535

Job = TypeVar("Job")


class Borrower:
    """The downstream end of one link, for one group.

    offered   jobs that the upstream has to spare
    limit     told to the upstream
    received  jobs since the session began
    """

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.begin()

    def begin(self) -> None:
        """A session begins: nothing was offered, asked for, or received."""
        self.offered = self.limit = self.received = self._highest = 0

    def asked(self) -> int:
        """Number of jobs that were asked for and did not come yet."""
        return max(0, self.limit - self.received)

    def offer(self, count: int) -> None:
        """The upstream has so many jobs to spare, without those on the way."""
        self.offered = count

    def ask(self, count: int) -> bool:
        """Ask for so many jobs, in all. True when the upstream is to be told the new `limit`."""
        limit = self.received + count
        if limit == self.limit:
            return False
        self.limit = limit
        self._highest = max(self._highest, limit)
        return True

    def receive(self) -> None:
        """A job came. Raises QueueLinkFault for one that was never asked for."""
        if self.received >= self._highest:
            raise QueueLinkFault(f"the upstream sent {self.received + 1} jobs, was asked for {self._highest}")
        self.received += 1
        self.offered = max(0, self.offered - 1)


class Demand:
    """What one group of this domain asks of all its upstreams. `borrowers` by the id of the link."""

    def __init__(self) -> None:
        self.borrowers: dict[str, Borrower] = {}
        self._first = 0  # whose turn it is to be asked first: so that each upstream has its share

    def plan(self, waiting: int, room: int) -> list[str]:
        """Share the room of the consumers here among the upstreams that offer jobs. `waiting`: jobs in the queue here. Returns
        the links whose limit is another one."""
        left = 0 if waiting else room
        names = list(self.borrowers)
        self._first = (self._first + 1) % len(names) if names else 0
        changed: list[str] = []
        for name in names[self._first :] + names[: self._first]:
            borrower = self.borrowers[name]
            count = min(left, borrower.offered, borrower.prefetch)
            left -= count
            if borrower.ask(count):
                changed.append(name)
        return changed


class Lender(Generic[Job]):
    """The upstream end of one link, for one group and one session.

    told             the offer that the downstream knows
    unacknowledged   the jobs that the downstream has, by number
    """

    def __init__(self) -> None:
        self.told = 0
        self.unacknowledged: OrderedDict[int, Job] = OrderedDict()
        self._limit = 0
        self._sent = 0

    def offer(self, spare: int) -> bool:
        """So many jobs wait for which no consumer here has room. True when the downstream is to be told."""
        spare = min(spare, OFFER_MAX)
        if spare == self.told:
            return False
        self.told = spare
        return True

    def grant(self, limit: int) -> None:
        """The downstream takes so many jobs since the session began."""
        self._limit = limit

    def credit(self) -> int:
        """How many jobs may be sent."""
        return max(0, self._limit - self._sent)

    def send(self, job: Job) -> int:
        """A job goes to the downstream. Returns its number."""
        assert self.credit() > 0, "the downstream has no room"
        self._sent += 1
        self.told = max(0, self.told - 1)
        self.unacknowledged[self._sent] = job
        return self._sent

    def acknowledge(self, number: int) -> bool:
        """The downstream has stored the job. False for a number that nothing waits for."""
        return self.unacknowledged.pop(number, None) is not None

    def end(self) -> list[Job]:
        """The session is over: the jobs that go back to the queue, in order."""
        jobs = list(self.unacknowledged.values())
        self.unacknowledged.clear()
        return jobs


def may_move(visits: int) -> bool:
    """Whether a job that came through so many domains may be moved once more."""
    return visits < VISITS_MAX
