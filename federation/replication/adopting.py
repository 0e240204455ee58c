"""Adoptions under way: how far each has come, and which arriving sessions are to know that a node has relayed everything."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.session.session import Session
from broker.store.kinds import OUTBOX, POSITION
from broker.store.shapes import count_of
from federation.replication.contents import Contents, Record
from federation.replication.replica import Replica
from federation.sessions.home import Home
from federation.sessions.homes import Homes
from federation.sessions.relayed import TAIL_RECORDS, Relayed

HOMES_OF_A_TURN: Final = 2_000


class Adoption:
    """One replica that is becoming this node's own sessions.

    is_open  the records were sorted, which takes some turns
    left   numbers of sessions that are still to be adopted; a client may have two, of which one was leaving
    rest   what follows: ends of sessions, and what the home had for other nodes in its order; None until all sessions are here
    done   how far the store of the home had done what others sent, its records POSITION without their kind
    below  the numbers of all records of the replica are below it
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.is_open = False
        self.left: deque[int] = deque()
        self.rest: deque[Record] | None = None
        self.done: list[Record] = []
        self.below = 0

    def opened(self, contents: Contents) -> None:
        self.is_open = True
        self.left.extend(sorted(contents.sessions))
        self.below = max(contents.records, default=0) + 1

    def note_tail(self, relayed: Relayed, session: Session, numbers: list[int], first: int) -> None:
        """The session has messages whose records had these numbers there, and have numbers from `first` on here."""
        above = self.below - TAIL_RECORDS
        relayed.add_tail(session, numbers, above, first, self.replica.node, self.replica.store_id)

    def sort_rest(self) -> deque[Record]:
        contents = self.replica.contents
        self.rest = deque()
        blocks: list[tuple[int, int, Record]] = []
        if contents is not None:
            for number in sorted(contents.others):
                record = contents.records[number]
                if record[0] == POSITION:
                    self.done.append(record[1:])
                elif record[0] == OUTBOX:
                    blocks.append((count_of(record[2]), number, record))
                else:
                    self.rest.append(record)
        blocks.sort()
        for _, _, record in blocks:
            self.rest.append(record)
        return self.rest


class RelayedAll:
    """Nodes have relayed all that they had for lost homes. Arriving sessions hear of it, some in each turn."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        # (node, id of the lost store, whether its node is back, homes that do not know it)
        self._waiting: deque[tuple[str, str, bool, list[Home]]] = deque()

    def add(self, node: str, store_id: str, is_back: bool) -> None:
        """is_back: the node had nothing to relay, it reaches the home again, which hands that over."""
        self._waiting.append((node, store_id, is_back, list(self._homes.arriving)))

    def is_active(self) -> bool:
        return bool(self._waiting)

    def go_on(self, now: float) -> None:
        node, store_id, is_back, homes = self._waiting[0]
        left = HOMES_OF_A_TURN
        while homes and left > 0:
            left -= 1
            home = homes.pop()
            arriving = home.arriving
            if arriving is not None and store_id in arriving.lost.values():
                if is_back:
                    self._homes.expect(home, arriving, store_id, now)
                arriving.handed(node, now)
                if home in self._homes.arriving:
                    self._homes.keep(home)
        if not homes:
            self._waiting.popleft()
