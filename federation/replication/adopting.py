"""Adoptions under way: how far each has come, and which arriving sessions are to know that a node has relayed everything."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
from broker.store.journal import Journal
from broker.store.kinds import OUTBOX, POSITION
from broker.store.shapes import count_of
from federation.replication.contents import Contents, Record
from federation.replication.replica import Replica
from federation.sessions.home import Adopted, Home
from federation.sessions.homes import Homes
from federation.sessions.moves import Moves
from federation.sessions.wire import COPIED, HANDED, HEAD_END, SessionFrame
from federation.stream.frames import FrameError

HOMES_OF_A_TURN: Final = 2_000
TAIL_RECORDS: Final = 4_096  # at least so many of a copy are among its newest, which its home may lack


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

    def newest_from(self) -> int:
        """Return the number from which on records are the newest: all that the home had not on its disk as far as it has said,
        which are those of one batch, or more where its disk was full."""
        above = self.below - TAIL_RECORDS
        stored_below = self.replica.stored_below
        return min(above, stored_below) if stored_below else above

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


class Handing:
    """A session of a replica becomes this node's own, as if its home had handed it over.

    first    of the numbers of records here that it is made of
    tail     as of Adopted (sessions/home), in any order
    refused  number of records that were not as a broker writes them
    """

    def __init__(self, broker: Broker, moves: Moves, journal: Journal, frame: SessionFrame, above: int) -> None:
        """frame: without records. above: records from this number on are the newest of the replica."""
        self.first = journal.next_number
        self.tail: list[tuple[int, int, int]] = []
        self.refused = 0
        self._broker = broker
        self._moves = moves
        self._journal = journal
        self._frame = frame
        self._above = above

    def take_head(
        self, head: list[Record], sent: list[tuple[int, int]], received: list[tuple[int, int]], now: float
    ) -> None:
        """sent: (packet identifier, number there) of messages in it; received: of identifiers that the client has not released.
        Raises FrameError."""
        is_new = self._frame.client_id not in self._broker.sessions
        first, end = self._take((*head, (HEAD_END,)), now)
        newest = {packet_id: number for packet_id, number in sent if number >= self._above}
        session = self._broker.sessions.get(self._frame.client_id)
        if not newest:
            pass
        elif is_new and session is not None and session.inflight is not None:  # they have kept their identifiers
            for outgoing in session.inflight.messages():
                number = newest.get(outgoing.packet_id)
                if number is not None:
                    self.tail.append((outgoing.record, outgoing.record + 1, number))
        else:
            self.tail.append((first, end, 0))
            return
        for packet_id, number in received:
            record = 0 if session is None or session.incoming is None else session.incoming.get(packet_id, 0)
            if record >= first and number >= self._above:
                self.tail.append((record, record + 1, number))

    def was_handed(self, home: Home, store_id: str, number: int) -> bool:
        """Return whether the lost home has handed the message with this number over itself, before it was lost."""
        copied = COPIED, store_id, self._frame.more[2]
        return home.has_had(copied, number if number >= self._above else None, self._broker.identity)

    def take_queue(self, queue: list[tuple[int, Record]], now: float) -> None:
        """queue: (number there, record), by rising numbers. One of the newest comes alone, so that it is known which records
        are made of it, and whether any is. A record that is refused takes no newer one along."""
        older = tuple([record for number, record in queue if number < self._above])
        if older:
            self._take_if_sound(older, now)
        for number, record in queue:
            if number >= self._above:
                first, end = self._take_if_sound((record,), now)
                if first < end:
                    self.tail.append((first, end, number))
        self._take(((HANDED,),), now)

    def adopted(self, store_id: str, below: int, counter: int, has_left: bool) -> Adopted:
        """Return what the session here knows of this copy. has_left: the head of the session had left that home, which leaves
        all that follows to this node then (Departing.note_adopted), and has nothing of it when it is the next home."""
        if has_left:
            return store_id, below, 0, 0, counter, ()
        return store_id, below, self.first, self._journal.next_number, counter, tuple(sorted(self.tail))

    def _take_if_sound(self, records: tuple[Record, ...], now: float) -> tuple[int, int]:
        try:
            return self._take(records, now)
        except FrameError:
            self.refused += len(records)
            return 0, 0

    def _take(self, records: tuple[Record, ...], now: float) -> tuple[int, int]:
        """Return the first of the numbers that came with these, and one above the last."""
        first = self._journal.next_number
        frame = self._frame
        self._moves.take(frame._replace(more=(frame.more[0], records, frame.more[2])), now, True)
        return first, self._journal.next_number


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
                arriving.relayed_all(node, store_id, now)
                if home in self._homes.arriving:
                    self._homes.keep(home)
        if not homes:
            self._waiting.popleft()
