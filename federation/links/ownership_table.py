"""The table of a member: the links that it runs, and the phase of each; rendezvous hashing names the owner of a link.

The rules are in `ownership`.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from federation.links.reconnecting import SessionPlace


class Phase(IntEnum):
    """The phase of a link at a member. The numbers are on the wire."""

    ABLE = 1
    CLAIMS = 2
    RUNS = 3
    DRAINS = 4


class Row(NamedTuple):
    """`epoch`: of the claim; of an ABLE row the highest that the member has heard of, 0 for none. `session`: where the
    link has its session at the upstream, as far as the member knows; None for nowhere."""

    link_id: str
    phase: Phase
    epoch: int
    session: SessionPlace | None = None


class Table(NamedTuple):
    """A member's word about its links.

    incarnation  a random number of its process
    serial       rises with each change; a table with a lower one came late
    """

    node: str
    incarnation: int
    serial: int
    rows: tuple[Row, ...]


class Run(NamedTuple):
    """Run the link with this epoch from now on; again: nobody else has its session any more. `session`: where it is, None
    for none that is known."""

    link_id: str
    epoch: int
    session: SessionPlace | None = None


class Drain(NamedTuple):
    """End the link: nothing new, what is in flight until the deadline. Then `released`."""

    link_id: str
    deadline: float


class Stop(NamedTuple):
    """End the link at once: the deadline of Drain is over."""

    link_id: str


class Telling(NamedTuple):
    """The own table for a member: the answer goes to `handle_answer`, a failure to `telling_failed`."""

    name: str
    table: Table


class Claim(NamedTuple):
    """Of this node; it waits for other members."""

    link_id: str
    epoch: int
    since: float
    deadline: float


class Owner(NamedTuple):
    """The node that runs a link, or is about to. `epoch` is 0 before a claim."""

    node: str
    epoch: int


Order = Run | Drain | Stop


@lru_cache(maxsize=65_536)
def weight(link_id: str, name: str) -> bytes:
    """The hash of rendezvous hashing; the member with the highest one gets the link."""
    return blake2b(f"{link_id}\0{name}".encode(), digest_size=8).digest()
