"""The state of this node that another node is sent beside messages: its full state after a
clean start, and each change of interest.

It gives blocks of the usual size, in order: filters, what changed in them since, retained messages; then single changes. The
value of a retained message is looked up when its block is made. So a message that is published meanwhile, and that the other
node may get before or after that block, is never replaced by an older one.

A node that reads stamps is told the digests of the retained messages, and where it answers with other stamps, those messages
of which it has an older one. Any other node is told all retained messages.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import mypyc_attr

from broker.message import NEVER, Message
from federation.stream.block import Block
from federation.stream.frames import (
    INTEREST_DIGEST,
    IS_NEWS,
    IS_WRITTEN_THERE,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_digest,
    encode_frame,
    encode_interest,
    encode_stamps,
)
from federation.stream.interest_digest import InterestDigest
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation.stream.retained_versions import BUCKET_SHIFT, Listed

DIGEST_SECONDS: Final = 30.0  # between two digests of the interest, and of the retained messages
LISTED_MAX: Final = 32_768  # stamps in one frame
TOPICS_MAX: Final = 8_192  # retained topics looked up for one block; those without a message add nothing to it


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalState:
    """The node behind a sender: what a full state is made of, and who waits for its outbox. This base class is a node without
    any."""

    def interest(self) -> list[tuple[bytes, bytes]]:
        """(share_name, topic_filter) of every local subscription, each once."""
        return []

    def interest_digest(self) -> bytes:
        """InterestDigest of `interest`."""
        return InterestDigest().encode()

    def note(self, share_name: bytes, topic_filter: bytes) -> bytes:
        """Return which links want the filter of a local subscription, or how many members the group has."""
        return b""

    def retained_topics(self) -> list[bytes]:
        """Every topic with a retained message, or whose message was deleted."""
        return []

    def retained_message(self, topic: bytes, now: float) -> Message | None:
        """The present value of a topic: without payload for one that was deleted, None where nothing is known."""
        return None

    def retained_digest(self, now: float) -> bytes:
        """The frame RETAINED_DIGEST."""
        return encode_digest(0.0, b"")

    def retained_stamps(self, part: int) -> list[Listed]:
        """The stamps of one part of the retained messages, in the order of the hashes of the topics."""
        return []

    def has_retained_room(self) -> bool:
        """Return whether retained messages of new topics can be stored."""
        return True

    def outbox_has_room(self, now: float) -> None:
        """A congested outbox has room again: publishers that were held for it may go on."""


class FullState:
    """Of one sender. `interest` are the changes to tell, by (share_name, topic_filter): whether it is wanted now. `changes` is
    how many there were. `is_stamped`: the other node reads stamps. `digest_at` is when the next digests are due, NEVER on a
    stream without digests."""

    def __init__(self, local: LocalState) -> None:
        self._local = local
        self.interest: OrderedDict[tuple[bytes, bytes], bool] = OrderedDict()
        self.is_stamped = False
        # Still to be told: filters, then retained messages; the position in the first one of these.
        self._filters: list[tuple[bytes, bytes]] | None = None
        self._retained: list[bytes] = []
        self._retained_flags = 0
        self._at = 0
        self._is_end_due = False  # all filters are told
        self._parts: OrderedDict[int, None] = OrderedDict()  # of the retained messages, whose stamps are to be told
        self._listed: list[Listed] | None = None  # those of the first part that are left, from the hash _low on
        self._low = 0
        self.changes = 0
        self.digest_at = NEVER
        self._is_direct = False
        self._is_interest_digest_due = False
        self._is_retained_digest_due = False
        self._has_notes = False  # a filter has a note, or has had one in this session
        self._given_up: set[bytes] = set()  # topics of retained messages that the other node refuses to read
        self._is_refused = False  # the next state follows a refusal

    def begin(self) -> None:
        """The other node knows nothing of this one, or nothing any more."""
        if not self._is_refused:
            self._given_up.clear()  # it may be another process, with other bounds
        self._is_refused = False
        self.interest.clear()
        self._has_notes = False
        self._filters = self._local.interest()
        self._is_end_due = False
        if self.is_stamped:
            self._retained = []
            self._at = 0
        else:
            self._begin_retained(self._retained_flags if self._retained else IS_WRITTEN_THERE)

    def begin_mending(self) -> None:
        """Retained messages of unknown topics were dropped."""
        if self.is_stamped:
            self._is_retained_digest_due = True
        else:
            self._begin_retained(IS_NEWS)

    def _begin_retained(self, flags: int) -> None:
        self._retained = self._local.retained_topics()
        self._retained_flags = flags
        self._at = 0

    def tell_retained(self, topics: list[bytes], parts: list[int]) -> None:
        """The other node, which reads stamps, has older retained messages of these topics, and may have newer ones in these
        parts."""
        self._retained += topics
        self._retained_flags = 0
        for part in parts:
            self._parts[part] = None

    def begin_digests(self, is_direct: bool, is_new: bool, now: float) -> None:
        """A stream begins. is_new: a full state is told."""
        self._is_direct = is_direct
        self._is_interest_digest_due = is_direct and not is_new
        self._is_retained_digest_due = self.is_stamped
        if is_direct or self.is_stamped:
            self.digest_at = now + DIGEST_SECONDS

    def end_digests(self) -> None:
        """It ends."""
        self._is_interest_digest_due = self._is_retained_digest_due = False
        self.digest_at = NEVER

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self.digest_at:
            self._is_interest_digest_due = self._is_direct
            self._is_retained_digest_due = self.is_stamped and not self._retained  # those that differ are on their way
            self.digest_at = now + DIGEST_SECONDS

    def give_up(self, topics: list[bytes]) -> None:
        """A batch with the retained messages of these topics was refused: the state that follows goes without them."""
        self._given_up.update(topics)
        self._is_refused = True

    def change(self, share_name: bytes, topic_filter: bytes, wanted: bool) -> bool:
        """False when nothing is left to tell of the filter. Changes alternate, so one that undoes what was not told
        yet leaves nothing: while a node is away no more waits for it than what is different there. With notes the last
        change is told in any case: the note may be another one than before."""
        self.changes += 1
        key = (share_name, topic_filter)
        if self.interest.get(key, wanted) != wanted and not self._has_notes:
            del self.interest[key]
            return False
        self.interest[key] = wanted
        return True

    def change_note(self, share_name: bytes, topic_filter: bytes) -> None:
        """A filter that is wanted already has another note: tell it again."""
        self._has_notes = True
        self.interest[(share_name, topic_filter)] = True

    def has_more(self) -> bool:
        is_due = self._is_interest_digest_due or self._is_retained_digest_due or bool(self._parts)
        return is_due or self._is_end_due or self.has_interest() or self.has_retained()

    def has_interest(self) -> bool:
        """Return whether filters or changes of them are still to be told."""
        return self._filters is not None or bool(self.interest)

    def has_retained(self) -> bool:
        return bool(self._retained)

    def next_block(self, extended: bool, now: float, is_more: bool = False) -> Block | None:
        """None when there is nothing more. `extended`: the begin and end of the filters are marked, and deletions are told.
        `is_more`: the caller has something to tell behind the filters; their end is behind that."""
        filters = self._filters
        if filters is not None or self.interest:
            if filters is None:
                found = self._next_changes(extended, now)
            else:
                found = self._next_filters(filters, extended, is_more, now)
            if self._filters is None and not self.interest:
                found.told = self.changes
            return found
        if self._is_end_due:
            self._is_end_due = False
            block = Block(True, now)
            block.append_frame(encode_frame(STATE_END, b""))
            return block
        if self._is_interest_digest_due or self._is_retained_digest_due:
            block = Block(True, now)
            if self._is_interest_digest_due:
                block.append_frame(encode_frame(INTEREST_DIGEST, self._local.interest_digest()))
            if self._is_retained_digest_due:
                block.append_frame(self._local.retained_digest(now))
            self._is_interest_digest_due = self._is_retained_digest_due = False
            return block
        if self._parts:
            return self._next_stamps(now)
        while self._retained:
            block = self._next_retained(self._retained, extended, now)
            if block.count:
                return block
        return None

    def _next_stamps(self, now: float) -> Block:
        block = Block(True, now)
        only_these = not self._local.has_retained_room()
        while self._parts and block.size < BLOCK_BYTES_MAX:
            part = next(iter(self._parts))
            if self._listed is None:
                self._listed = self._local.retained_stamps(part)
                self._low = part << BUCKET_SHIFT
            listed = self._listed[:LISTED_MAX]
            rest = self._listed[LISTED_MAX:]
            high = listed[-1][0] if rest else (part + 1 << BUCKET_SHIFT) - 1
            block.append_frame(encode_stamps(self._low, high, listed, only_these))
            self._low = high + 1
            self._listed = rest or None
            if not rest:
                del self._parts[part]
        return block

    def _append_interest(self, block: Block, key: tuple[bytes, bytes], extended: bool) -> None:
        note = self._local.note(key[0], key[1]) if extended else b""
        if note:
            self._has_notes = True
        block.append_frame(encode_interest(SUBSCRIBE, key[0], key[1], note))

    def _next_filters(self, filters: list[tuple[bytes, bytes]], extended: bool, is_more: bool, now: float) -> Block:
        block = Block(True, now)
        at = self._at
        if at == 0 and extended:
            block.append_frame(encode_frame(STATE_BEGIN, b""))
        while at < len(filters) and block.size < BLOCK_BYTES_MAX:
            self._append_interest(block, filters[at], extended)
            at += 1
        self._at = at
        if at == len(filters):
            self._filters = None
            self._at = 0
            self._is_end_due = extended and is_more
            if extended and not is_more:
                block.append_frame(encode_frame(STATE_END, b""))
        return block

    def _next_changes(self, extended: bool, now: float) -> Block:
        block = Block(True, now)
        interest = self.interest
        while interest and block.size < BLOCK_BYTES_MAX:
            key, wanted = interest.popitem(last=False)
            if wanted:
                self._append_interest(block, key, extended)
            else:
                block.append_frame(encode_interest(UNSUBSCRIBE, key[0], key[1]))
        return block

    def _next_retained(self, topics: list[bytes], extended: bool, now: float) -> Block:
        block = Block(True, now)
        at = self._at
        stop = min(len(topics), at + TOPICS_MAX)
        while at < stop and block.size < BLOCK_BYTES_MAX:
            message = self._local.retained_message(topics[at], now)
            if message is not None and (message.payload or extended) and message.topic not in self._given_up:
                if block.count and len(message.payload) > BLOCK_BYTES_MAX:
                    break  # a block of its own: where the other node refuses it, nothing else is lost
                block.append_message(RETAINED, message, (), self._retained_flags)
            at += 1
        self._at = at
        if at == len(topics):
            self._retained = []
            self._at = 0
        return block
