"""What the replay reader knows of its session by the nodes that let it in. Rules without I/O.

A node that has no session for it, although it had one, is excused by the kill of the node where that one was. What may come
again then is told by docs/replay.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from oracle import Fault, found


class Kind(StrEnum):
    CONNECT = "connect"
    PRESENT = "present"
    ANEW = "anew"
    SERVED = "served"


class Entry(NamedTuple):
    """One line about a connection.

    kind   CONNECT is sent; CONNACK has come, with or without Session Present; or the client was served for its time, and goes
    at     time.monotonic()
    start  the User Property `from` that the client subscribes with, when CONNACK has come
    """

    kind: Kind
    port: int
    at: float
    start: str = ""


class NodeKill(NamedTuple):
    """Between `begin` and `end` (time.monotonic()) the node at this port was killed."""

    port: int
    begin: float
    end: float


class Sessions:
    """start  what the present session has begun with; "" before the first one
    homes  ports of nodes that may have the session, and since when
    lost   ports of nodes that may have a former one, and that did not serve the client since. Until then records come again
    begun  how many began anew, because the one before was not there
    """

    def __init__(self) -> None:
        self.start = ""
        self.homes: dict[int, float] = {}
        self.lost: set[int] = set()
        self.begun = 0
        self._asked_at = 0.0

    def start_without_session(self, own: str) -> str:
        """The start to ask for where there is no session. Every other time it is that of the session before, as clients
        have it that do the same at each connect; else `own`, which names what the client has."""
        return own if not self.start or self.begun % 2 else self.start

    def note(self, entry: Entry) -> None:
        if entry.kind == Kind.CONNECT:
            self._asked_at = entry.at
            self.homes.setdefault(entry.port, entry.at)
            return
        if entry.kind == Kind.SERVED:
            self.lost.discard(entry.port)
            return
        if entry.kind == Kind.ANEW:
            if self.start:
                self.begun += 1
                self.lost |= self.homes.keys() - {entry.port}
            self.start = entry.start
        self.homes = {entry.port: self._asked_at}


def begun_faults(entries: Iterable[Entry], kills: Sequence[NodeKill]) -> list[Fault]:
    """Of sessions that were not there, although no node that may have had them was killed since."""
    fault = Fault("sessions that began anew without the kill of a node that had the one before")
    sessions = Sessions()
    for entry in entries:
        if sessions.start and entry.kind == Kind.ANEW:
            homes = {port: since for port, since in sessions.homes.items() if port != entry.port}
            if not any(kill.end >= homes.get(kill.port, entry.at) and kill.begin <= entry.at for kill in kills):
                fault.add(f"at port {entry.port}, before at {', '.join(map(str, homes)) or 'the same'}")
        sessions.note(entry)
    return found(fault)
