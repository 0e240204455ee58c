"""Messages here that other nodes had for a lost home: of which block of which node each is.

A home that was not lost, but away, may have done the newest blocks that came to it: its copy is older, and the nodes that sent
them have not heard of that. It has those messages, and the adopter of its sessions has them once more. So the adopter says of
each message that it hands over to that home from which block it is, and the home leaves out what it has done.

The other way round, a home that was killed may not have on its disk what its copy had of the newest batch. It was acknowledged
to who sent it, and is nowhere else: the adopter says of the newest messages of the copy which record of that home each was, as
the record of the session has it (home.Tail).

A session may go on from its adopter to a third node: which of its messages are from a copy, and which record of that, goes with
them, for the lost home may hand them on, too, or be the next one.
"""

# compiled with mypyc
from __future__ import annotations

from bisect import bisect_right
from typing import Final

from broker.store.identity import StoreIdentity
from broker.store.journal import checked
from broker.store.shapes import count_of
from federation.sessions.home import Unstored, adopted_below, is_included
from federation.sessions.wire import BLOCK_OF, COPIED, NOT_COPIED, Record
from federation.stream.positions import Positions
from federation.stream.promises import PromisedPeer

Before = tuple[Record, ...]
"""What stands before messages in a HAND (wire)."""
RELAYED_MAX: Final = 16_384  # blocks; policy: the older half is forgotten, and QoS 2 may come twice


class Relayed:
    """positions  what this node has done of the blocks of others
    forgotten  number of blocks whose messages are not known any more
    nested     number of blocks that are being relayed now, each in the one before
    """

    def __init__(self) -> None:
        self.positions = Positions(None)
        self.forgotten = 0
        self.nested = 0
        self._firsts: list[int] = []
        # (one above the last record, id of the lost store, BLOCK_OF; COPIED, with BLOCK_OF before it if one of the newest)
        self._blocks: list[tuple[int, str, Before]] = []

    def add(self, first: int, end: int, lost: str, node: str, store_id: str, serial: int) -> None:
        """Records with numbers from `first` to below `end` are of messages of this block of the node, which was for the store
        `lost`."""
        self._add(first, end, lost, ((BLOCK_OF, node, store_id, serial),))

    def copied(self, first: int, end: int, marks: Before) -> None:
        """These have come behind such marks, of which the last is COPIED."""
        if self._firsts and self._blocks[-1][0] == first and self._blocks[-1][2] == marks:
            first = self._firsts.pop()
            self._blocks.pop()
        self._add(first, end, str(marks[-1][1]), marks)

    def _add(self, first: int, end: int, lost: str, marks: Before) -> None:
        if first < end:
            if len(self._firsts) >= RELAYED_MAX:
                self.forgotten += RELAYED_MAX // 2
                del self._firsts[: RELAYED_MAX // 2]
                del self._blocks[: RELAYED_MAX // 2]
            self._firsts.append(first)
            self._blocks.append((end, lost, marks))

    def marks_of(self, number: int) -> tuple[str, Before]:
        """Return (the lost store, the marks) of the record; ("", ()) for one without."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0:
            end, lost, marks = self._blocks[at]
            if number < end:
                return lost, marks
        return "", ()

    def is_here(self, mark: Record, adopted: list[object], identity: StoreIdentity) -> bool:
        """Return whether the session has the messages behind BLOCK_OF by now, because this node has done the block and they
        come from who had adopted its session. adopted: of the HAND (wire)."""
        if adopted_below(adopted, identity) == 0:
            return False
        if mark[2] == identity.store_id:  # what was in the copy
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
    is_block  they are from a block, or from a record of this node's copy
    marks     COPIED or BLOCK_OF, or BLOCK_OF with the record in the copy and COPIED
    """

    def __init__(
        self, relayed: Relayed, identity: StoreIdentity, adopted: list[object], sender: PromisedPeer | None
    ) -> None:
        """sender: to the node that hands over; None for none that is known."""
        self.is_known = False
        self.is_block = False
        self._relayed = relayed
        self._identity = identity
        self._adopted = adopted
        self._marks_newest = sender is not None and sender.marks_newest
        self.marks: Before = ()

    def read(self, mark: Record, includes: dict[str, int] | None, unstored: Unstored, own_since: int) -> Record:
        """Take COPIED or BLOCK_OF. includes, unstored, own_since: of the session (Home). Return what is noted of it: nothing
        of COPIED where the node does not say which of the messages that home may lack."""
        if mark[0] == BLOCK_OF:
            self.note(mark)
            self.is_known = self._relayed.is_here(mark, self._adopted, self._identity)
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
