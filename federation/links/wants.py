"""The parties that want the messages of a filter: clients of this cluster, and domains that subscribe here through links.

A want of clients may be told to every upstream. One that came through a link has the path of domains that it passed and the
number of links that messages may pass on their way back: it is told on only as far as these allow, so that no two domains keep
each other's interest alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.origin import HeaderError
from federation.links.bridging.headers import HOPS_MAX, WANTS_MAX, encode_want, parse_want
from federation.links.bridging.notes import parse_note


class Want(NamedTuple):
    """path  the domains that want the messages, the one whose clients do first; () for clients of this domain
    hops  how many links messages may pass on their way to the first one
    """

    path: tuple[bytes, ...]
    hops: int

    def header(self) -> bytes:
        """As a header of SUBSCRIBE."""
        return encode_want(self.path, self.hops)

    def includes(self, other: Want) -> bool:
        """Return whether this one is told on wherever the other one is. A want of clients only does not stand for one
        of a domain behind them: messages that are passed on have numbers."""
        return (
            len(self.path) >= min(2, len(other.path))
            and self.hops - len(self.path) >= other.hops - len(other.path)
            and set(self.path) <= set(other.path)
        )


Wants = tuple[Want, ...]
"""Wants of one filter, sorted, none of which includes another. () is no interest."""

CLIENT: Final = Want((), HOPS_MAX)
CLIENTS: Final[Wants] = (CLIENT,)
NOBODY: Final[Wants] = ()


def merged(wants: Iterable[Want]) -> Wants:
    """The wants that no other one includes. At most WANTS_MAX of them: those that may go furthest."""
    found: list[Want] = []
    for want in sorted(set(wants), key=lambda want: (len(want.path) - want.hops, want.path)):
        if not any(other.includes(want) for other in found):
            found.append(want)
    return tuple(found[:WANTS_MAX])


def include(wants: Wants, others: Wants) -> bool:
    """Return whether each of `others` is included in one of `wants`."""
    if wants == others:
        return True
    return all(any(want.includes(other) for want in wants) for other in others)


def parse_wants(note: bytes) -> Wants:
    """The wants of a filter on one node, as an InterestObserver is told. A header that cannot be read is left out."""
    has_clients, headers = parse_note(note)
    found = [CLIENT] if has_clients else []
    for header in headers:
        try:
            want = parse_want(header)
        except HeaderError:
            continue
        found.append(Want(want.path, want.hops))
    return merged(found)


class Upstream:
    """The other end of a link, as far as it matters which interest it is told.

    domain    name of this domain
    name      domain of the upstream; None for one that is not of our kind
    is_known  False until the upstream has answered CONNECT: what `name` would be is not known yet
    """

    def __init__(self, domain: bytes, max_hops: int, name: bytes | None, is_known: bool = True) -> None:
        self.domain = domain
        self.max_hops = max_hops
        self.name = name
        self.is_known = is_known

    def told(self, wants: Wants) -> Wants:
        """Return what the upstream is told of a filter with these wants. () for a filter that it is not told."""
        if self.is_known and self.name is None:
            if CLIENT not in wants:
                return NOBODY
            wants = CLIENTS  # told as before CONNACK: so nothing changes for most filters
        found: list[Want] = []
        for path, hops in wants:
            passed = len(path)
            if passed < hops and self.domain not in path and self.name not in path:
                found.append(Want((*path, self.domain), min(hops, self.max_hops + passed)))
        return merged(found) if len(found) > 1 else tuple(found)


class Tally:
    """Counts the wants of one filter: one for each subscription, or each filter, that they come from."""

    __slots__ = ("_count", "_first", "_others")

    def __init__(self) -> None:
        # Most filters have one kind of wants only. A dict for each of them would take most of the memory.
        self._first: Wants = NOBODY
        self._count = 0
        self._others: dict[Wants, int] | None = None

    def add(self, wants: Wants) -> None:
        if self._count == 0 and self._others is None:
            self._first = wants
        if wants == self._first:
            self._count += 1
        elif self._others is None:
            self._others = {wants: 1}
        else:
            self._others[wants] = self._others.get(wants, 0) + 1

    def remove(self, wants: Wants) -> None:
        """Undo one `add`."""
        if wants == self._first:
            assert self._count > 0
            self._count -= 1
            return
        others = self._others
        assert others is not None
        others[wants] -= 1
        if others[wants] == 0:
            del others[wants]
            if not others:
                self._others = None

    def is_empty(self) -> bool:
        return self._count == 0 and self._others is None

    def wants(self) -> Wants:
        """All of them together."""
        others = self._others
        if others is None:
            return self._first if self._count else NOBODY
        found = [want for wants in others for want in wants]
        if self._count:
            found += self._first
        return merged(found)
