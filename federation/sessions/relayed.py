"""Messages here that are of blocks of other nodes: of which block of which node each is.

A home that was not lost, but away, may have done the newest blocks that came to it: its copy is older, and the nodes that sent
them have not heard of that. It has those messages, and the adopter of its sessions has them once more. So the adopter says of
each message that it hands over to that home from which block it is, and the home leaves out what it has done. A home whose
session goes on at the adopter says the same of what it hands over, and the adopter leaves out what others have brought to it.

The other way round, a home that was killed may not have on its disk what its copy had of the newest batch. It was acknowledged
to who sent it, and is nowhere else: the adopter says of the newest messages of the copy which record of that home each was, as
the record of the session has it (home.Tail).

A session may go on from its adopter to a third node: which of its messages are from a copy, and which record of that, goes with
them, for the lost home may hand them on, too, or be the next one.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Final

from broker.store.identity import StoreIdentity
from broker.store.journal import checked
from broker.store.shapes import count_of
from federation.sessions.home import Unstored, adopted_below, is_included
from federation.sessions.wire import BLOCK_OF, COPIED, NOT_COPIED, Record
from federation.stream.positions import Positions
from federation.stream.promises import PromisedPeer
from federation.stream.record_ranges import RecordRanges

Before = tuple[Record, ...]
"""What stands before messages in a HAND (wire)."""
RELAYED_MAX: Final = 16_384  # blocks; policy: the older half is forgotten, and QoS 2 may come twice


class Relayed:
    """positions  what this node has done of the blocks of others
    nested     number of blocks that are being relayed now, each in the one before
    """

    def __init__(self) -> None:
        self.positions = Positions(None)
        self.nested = 0
        # (id of the lost store, BLOCK_OF; COPIED, with BLOCK_OF before it if one of the newest)
        self._ranges: RecordRanges[tuple[str, Before]] = RecordRanges(RELAYED_MAX)
        # Id of the lost store and BLOCK_OF of the newest blocks that were brought here. Policy: the oldest is forgotten.
        self._brought: OrderedDict[tuple[str, Record], None] = OrderedDict()

    @property
    def forgotten(self) -> int:
        """Return the number of blocks whose messages are not known any more."""
        return self._ranges.forgotten

    def add(self, first: int, end: int, lost: str, node: str, store_id: str, serial: int) -> None:
        """Records with numbers from `first` to below `end` are of messages of this block of the node, which was for the store
        `lost`."""
        mark: Record = (BLOCK_OF, node, store_id, serial)
        self._ranges.add(first, end, (lost, (mark,)))
        self._brought[(lost, mark)] = None
        if len(self._brought) > RELAYED_MAX:
            self._brought.popitem(last=False)

    def copied(self, first: int, end: int, marks: Before) -> None:
        """These have come behind such marks, of which the last is COPIED."""
        self._ranges.add(first, end, (str(marks[-1][1]), marks))

    def marks_of(self, number: int) -> tuple[str, Before]:
        """Return (the lost store, the marks) of the record; ("", ()) for one without."""
        return self._ranges.of(number) or ("", ())

    def own_mark(self, number: int) -> Record:
        """Return BLOCK_OF for a record of a block that came here as a whole; NOT_COPIED for another one."""
        block = self.positions.records.of(number)
        return NOT_COPIED if block is None else (BLOCK_OF, *block)

    def was_brought(self, mark: Record, lost: str) -> bool:
        """Return whether the block of BLOCK_OF was for the store `lost`, and was brought here."""
        return (lost, mark) in self._brought

    def is_here(self, mark: Record, adopted: list[object], identity: StoreIdentity) -> bool:
        """Return whether the session has the messages behind BLOCK_OF by now, because this node has done the block and they
        come from who had adopted its session. adopted: of the HAND (wire)."""
        below = adopted_below(adopted, identity)
        if below == 0:
            return False
        # What was in the copy is told so, too. A block that this node has sent itself is no record of it.
        if mark[2] == identity.store_id and count_of(mark[3]) < below:
            return not identity.is_unstored(count_of(mark[3]))
        return self.is_done(mark)

    def is_done(self, block: Record) -> bool:
        """Return whether this node has done the block of BLOCK_OF, which others had for it before it was relayed. Raises
        TypeError and ValueError for what no node says."""
        _, node, store_id, serial = block
        return self.positions.has_done(checked(str, node), checked(str, store_id), count_of(serial))


class Came:
    """The messages of a HAND, as the marks before them say.

    is_known  the session has them by now
    is_brought  because they were brought to it here, where it was made from a copy of the home that hands them over
    is_block  they are from a block, or from a record of this node's copy
    marks     COPIED or BLOCK_OF, or BLOCK_OF with the record in the copy and COPIED
    """

    def __init__(
        self, relayed: Relayed, identity: StoreIdentity, adopted: list[object], sender: PromisedPeer | None
    ) -> None:
        """sender: to the node that hands over; None for none that is known."""
        self.is_known = False
        self.is_brought = False
        self.is_block = False
        self._relayed = relayed
        self._identity = identity
        self._adopted = adopted
        self._store_id = "" if sender is None else sender.peer_store_id
        self._marks_newest = sender is not None and sender.marks_newest
        self.marks: Before = ()

    def read(
        self,
        mark: Record,
        includes: dict[str, int] | None,
        unstored: Unstored,
        own_since: int,
        brought: Container[str],
    ) -> Record:
        """Take COPIED or BLOCK_OF. includes, unstored, own_since, brought: of the session (Home). Return what is noted of it:
        nothing of COPIED where the node does not say which of the messages that home may lack."""
        self.is_brought = False
        if mark[0] == BLOCK_OF:
            self.note(mark)
            self.is_brought = self._store_id in brought and self._relayed.was_brought(mark, self._store_id)
            self.is_known = self.is_brought or self._relayed.is_here(mark, self._adopted, self._identity)
            return mark
        number = count_of(self.marks[0][3]) if self._is_newest(mark) else None
        self.is_known = is_included(mark, number, includes, unstored, self._identity, own_since)
        noted = mark if self._marks_newest else NOT_COPIED
        self.note(noted)
        return noted

    def note(self, mark: Record) -> None:
        """Take it without asking whether the session has what follows."""
        self.is_block = mark[0] == BLOCK_OF
        self.marks = (*self.marks, mark) if not self.is_block and self._is_newest(mark) else (mark,)

    def is_of_block(self, number: int) -> bool:
        """Return whether the record is of the block that was read last."""
        return self._relayed.marks_of(number)[1] == self.marks

    def _is_newest(self, copied: Record) -> bool:
        """Return whether the mark before COPIED says which record of that copy follows."""
        return len(self.marks) == 1 and self.marks[0][0] == BLOCK_OF and self.marks[0][2] == copied[1]

    def took(self, first: int, end: int) -> None:
        """A message has these records here. One of the newest of the copy that is in doubt (number 0) goes on as any other."""
        marks = self.marks
        if marks and marks[-1][0] == COPIED and marks[-1][1] and (len(marks) == 1 or marks[0][3]):
            self._relayed.copied(first, end, marks)
        elif len(marks) == 1 and self.is_block:
            self.marks = ()
