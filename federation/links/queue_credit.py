"""Credit of queue links: how many jobs of a shared group move from the queue of an upstream to this domain.

An upstream offers the jobs that its own consumers have no room for. The downstream asks for some of them while its own queue is
empty and its own consumers have room, for at most that room, from all upstreams together.

Credit is a limit: the number of jobs that the downstream takes since the connection began. It goes down again when the room
goes; jobs that are on the way then come all the same. The upstream's end is federation/links/bridging/lending.py.
"""

from __future__ import annotations

from federation.errors import QueueLinkFault
from federation.links.bridging.job_header import NO_QUEUE


class Borrower:
    """The downstream end of one link, for one group.

    offered     jobs that the upstream has to spare, with those on the way
    is_missing  the upstream has no queue for the group
    limit       told to the upstream
    received    jobs since the connection began
    """

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.begin()

    def begin(self) -> None:
        """A connection begins: nothing was offered, asked for, or received."""
        self.offered = self.limit = self.received = self._highest = 0
        self.is_missing = False

    def asked(self) -> int:
        """Number of jobs that were asked for and did not come yet."""
        return max(0, self.limit - self.received)

    def offer(self, count: int, sent: int = 0) -> None:
        """The upstream has so many jobs to spare, without those on the way; NO_QUEUE where it has no queue. `sent`: all that it
        has sent before; some of them may come behind the offer."""
        self.is_missing = count == NO_QUEUE
        self.offered = max(0, count) + max(0, sent - self.received)

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
        counts: dict[str, int] = {}
        for name, borrower in self.borrowers.items():  # who was asked stays asked, or two upstreams send for one place
            counts[name] = min(left, borrower.asked(), borrower.offered)
            left -= counts[name]
        for name in names[self._first :] + names[: self._first]:
            borrower = self.borrowers[name]
            more = min(left, max(0, min(borrower.offered, borrower.prefetch) - counts[name]))
            counts[name] += more
            left -= more
        return [name for name, count in counts.items() if self.borrowers[name].ask(count)]
