"""The table of a member: the links that it runs, and the phase of each; rendezvous hashing names the owner of a link. The
sessions of links as a file, which outlives the process.

The rules are in `ownership`.
"""

from __future__ import annotations

import json
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from federation.definitions.resolution import LINKS_MAX
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


SECRET_BYTES_MAX: Final = 64  # of a key of blake2b
Places = dict[str, SessionPlace]
"""Where links have sessions at upstreams, by the id of the link."""


def encode_places(places: Places, plain: frozenset[str] | None, secret: str) -> bytes:
    """A file of the sessions that a node knows. `plain`: the links, by id, that get no random client identifier; None where
    that is not known. `secret`: of which the random parts of the others are made, hexadecimal; "" for none."""
    sessions = {link_id: place._asdict() for link_id, place in places.items()}
    document: dict[str, Any] = {"format": 1, "sessions": sessions}
    if plain is not None:
        document["plain"] = sorted(plain)
    if secret:
        document["secret"] = secret
    return json.dumps(document).encode()


def decode_places(data: bytes) -> tuple[Places, frozenset[str] | None, str]:
    """The inverse of `encode_places`; nothing for an empty file. Raises ValueError."""
    if not data:
        return {}, None, ""
    document: Any = json.loads(data)
    sessions = document.get("sessions") if isinstance(document, dict) and document.get("format") == 1 else None
    if not isinstance(sessions, dict) or len(sessions) > LINKS_MAX:
        raise ValueError("sessions: the file has none of format 1")
    found: Places = {}
    for link_id, place in sessions.items():
        match place:
            case {"client_id": str(client_id), "host": str(host), "port": int(port)}:
                found[link_id] = SessionPlace(client_id, host, port)
            case _:
                raise ValueError(f"sessions.{link_id[:64]}: client_id, host and port are not there")
    secret = document.get("secret", "")
    if not isinstance(secret, str) or len(bytes.fromhex(secret)) > SECRET_BYTES_MAX:
        raise ValueError(f"secret: it is no hexadecimal text of at most {SECRET_BYTES_MAX} bytes")
    match document.get("plain"):
        case None:
            return found, None, secret
        case [*names] if all(isinstance(name, str) for name in names):
            return found, frozenset(names), secret
    raise ValueError("plain: it is no list of the ids of links")
