"""Copies of messages for shared groups, between the node that chose another one and that node (decision 14).

A copy has a number. The node that chose keeps it until the other one tells its end: its member has acknowledged it, its store
has it, or it was dropped there and counted. When that node's process has ended, or the node is taken for failed, others of the
group get what it had taken and not ended. What it had not taken waits in the outbox as any other message. QoS 0 and 2 are not
kept: a QoS 2 message that was sent is nobody else's [MQTT-4.8.2-5].
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.context import Context
from broker.message import NEVER, Message, message_bytes
from broker.routing.group_copy import GroupCopy
from federation.stream.frames import CopyHead, decode_copy_numbers, encode_copies_ended, encode_copy_head
from federation.stream.full_state import FullState
from federation.stream.outbox import Outbox
from federation.stream.promises import PromisedPeer, Promises

KEPT_MAX: Final = 16_384  # copies for one node; then the oldest is forgotten, and counted
KEPT_BYTES_MAX: Final = 16 * 2**20  # and their bytes
ENDED_MAX: Final = 65_536  # numbers that wait for a stream to the node; then the oldest half is forgotten
ENDED_FRAME_MAX: Final = 4_096  # numbers in one frame
ENDED_SECONDS: Final = 0.05  # the end of a copy may wait so long for others
ENDED_ENOUGH: Final = 256  # and for so many: fewer are kept at the node that chose


class KeptCopy:
    """serial  of the block of the outbox that has it"""

    __slots__ = ("copy", "message", "serial")

    def __init__(self, copy: GroupCopy, message: Message, serial: int) -> None:
        self.copy = copy
        self.message = message
        self.serial = serial


class GroupPeer(PromisedPeer):
    """The sender to another node, as far as copies for shared groups are concerned.

    process     of the node, as its tag says: another one has none of the copies; "" before it is known
    kept        copies that have not ended there, by number
    ended       numbers of copies of that node that have ended here and are to be told
    ended_at    when to tell them; NEVER for not at all
    """

    def __init__(
        self,
        name: str,
        names_groups: bool,
        outbox: Outbox,
        full_state: FullState,
        promises: Promises | None,
        first_number: int,
    ) -> None:
        super().__init__(name, names_groups, outbox, full_state)
        self.promises = promises
        self.process = ""
        self.kept: dict[int, KeptCopy] = {}
        self.kept_bytes = 0
        self.ended: list[int] = []
        self.ended_at = NEVER
        self._copy_number = first_number
        self._oldest = first_number + 1  # no kept copy has a lower number

    # --- of this node

    def load(self) -> int:
        return len(self.kept)

    def forward_copy(self, message: Message, copy: GroupCopy, now: float) -> None:
        self._append_copy(message, copy, now)
        self.promise_newest(message.qos)

    def promise_newest(self, qos: int) -> None:
        """A publisher waits for what was appended last, if that has QoS 1 or 2."""
        if qos and self.promises is not None:
            self.promise_message(qos, self.promises)

    def forward_again(self, message: Message, copy: GroupCopy, now: float) -> None:
        self._append_copy(message, copy, now)
        outbox = self.outbox
        if message.qos and self.promises is not None and not outbox.is_dropped:
            outbox.newest.is_promised = True
            if message.qos == 2:
                outbox.newest.is_once = True
            outbox.keep_newest()

    def _append_copy(self, message: Message, copy: GroupCopy, now: float) -> None:
        number = 0
        if message.qos == 1:
            self._copy_number = number = self._copy_number + 1
        head = encode_copy_head(number, copy.hops, copy.key, copy.share_name, copy.topic_filter)
        outbox = self.outbox
        full = outbox.append_copy(message, head, now)
        if outbox.is_dropped or number == 0:
            copy.end()
        else:
            self.kept[number] = KeptCopy(copy, message, outbox.newest.serial)
            self.kept_bytes += message_bytes(message)
            while len(self.kept) > KEPT_MAX or self.kept_bytes > KEPT_BYTES_MAX:
                self._forget_oldest()
        self.appended(full, 1)

    def _forget_oldest(self) -> None:
        """By number: where a dict has lost its first keys, its iterator looks at the place of each of them."""
        while self._oldest not in self.kept:
            self._oldest += 1
        self._end(self._oldest)
        self.outbox.counters.copies_forgotten += 1

    def appended(self, is_full: bool, count: int) -> None:
        """So many more messages are in the outbox, and a block is full or not."""
        raise AssertionError("a peer that sends nothing")

    def receive_ended(self, data: bytes, start: int, end: int) -> None:
        """The node tells the end of copies. Unknown numbers are those of an earlier process, or were chosen again. Raises
        FrameError."""
        for number in decode_copy_numbers(data, start, end):
            self._end(number)

    def _end(self, number: int) -> None:
        kept = self.kept.pop(number, None)
        if kept is not None:
            self.kept_bytes -= message_bytes(kept.message)
            kept.copy.end()

    def take_kept(self, also_waiting: bool) -> dict[int, KeptCopy]:
        """Take the copies that the node has taken; `also_waiting`: and those that wait in the outbox, which is dropped next."""
        found: dict[int, KeptCopy] = {}
        for number, kept in self.kept.items():
            if self.outbox.is_done(kept.serial):
                found[number] = kept
            elif also_waiting:
                found[number] = kept
                self.outbox.give_back(kept.serial)
        for number, kept in found.items():
            del self.kept[number]
            self.kept_bytes -= message_bytes(kept.message)
        return found

    def put_back(self, number: int, kept: KeptCopy) -> None:
        """Nobody else has taken it."""
        self.kept[number] = kept
        self._oldest = min(self._oldest, number)
        self.kept_bytes += message_bytes(kept.message)

    # --- of the other node

    def note_ended(self, number: int, at: float) -> None:
        """A copy of the other node has ended here, and that is to be told until then."""
        if len(self.ended) >= ENDED_MAX:
            del self.ended[: ENDED_MAX // 2]
        self.ended.append(number)
        if len(self.ended) == ENDED_ENOUGH:
            at = 0.0
        if at < self.ended_at:
            self.ended_at = at
            if self.reachable:
                self.want_attention()

    def tell_ended(self, now: float) -> None:
        """Put the numbers that are due into the outbox."""
        if now < self.ended_at:
            return
        self.ended_at = NEVER
        for at in range(0, len(self.ended), ENDED_FRAME_MAX):
            self.outbox.append_frame(encode_copies_ended(self.ended[at : at + ENDED_FRAME_MAX]), now)
        self.ended = []


class ReceivedCopy(GroupCopy):
    """A copy of another node. number: 0 for one of which that node does not wait for the end."""

    __slots__ = ("_chooser", "_context", "_number")

    def __init__(self, chooser: GroupPeer, context: Context, head: CopyHead) -> None:
        super().__init__(head.share_name, head.topic_filter, head.hops + 1, head.key)
        self._chooser = chooser
        self._context = context
        self._number = head.number

    def end(self) -> None:
        if self._number:
            self._chooser.note_ended(self._number, self._context.now + ENDED_SECONDS)
            self._number = 0

    def stored(self) -> GroupCopy:
        """The end is told at once: it should be there before the acknowledgement of the event, which waits for the store."""
        if self._number:
            self._chooser.note_ended(self._number, 0.0)
            self._number = 0
        return GroupCopy(self.share_name, self.topic_filter, self.hops, self.key)
