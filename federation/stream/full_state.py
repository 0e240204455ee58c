"""The state of this node that another node is sent beside messages: its full state after a
clean start, and each change of interest.

It gives blocks of the usual size, in order: filters, what changed in them since, retained messages; then single changes. The
value of a retained message is looked up when its block is made. So a message that is published meanwhile, and that the other
node may get before or after that block, is never replaced by an older one.
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
    IS_MENDED,
    IS_NEWS,
    IS_WRITTEN_THERE,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_frame,
    encode_interest,
)
from federation.stream.interest_digest import InterestDigest
from federation.stream.outbox import BLOCK_BYTES_MAX
from federation.stream.retained_changes import HERE, RetainedChanges

DIGEST_SECONDS: Final = 30.0  # between two digests of the interest
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
        """Return which links want the filter of a local subscription."""
        return b""

    def retained(self) -> list[Message]:
        """Every retained message."""
        return []

    def deleted(self) -> list[bytes]:
        """Topics without a retained message that clients here deleted lately."""
        return []

    def retained_message(self, topic: bytes) -> Message | None:
        """The retained message of one topic."""
        return None

    def outbox_has_room(self, now: float) -> None:
        """A congested outbox has room again: publishers that were held for it may go on."""


class FullState:
    """Of one sender. `interest` are the changes to tell, by (share_name, topic_filter): whether it is wanted now. `changes` is
    how many there were. `digest_at` is when the next digest of the interest is due, NEVER on a stream
    without digests."""

    def __init__(self, local: LocalState, changes: RetainedChanges) -> None:
        self._local = local
        self._changes = changes
        self.interest: OrderedDict[tuple[bytes, bytes], bool] = OrderedDict()
        # Still to be told: filters, then retained messages, then deletions; the position in the first one of these.
        self._filters: list[tuple[bytes, bytes]] | None = None
        self._retained: list[Message] = []
        self._deleted: list[bytes] = []
        self._at = 0
        self.changes = 0
        self.digest_at = NEVER
        self._is_digest_due = False
        self._has_links = False  # a link wants a filter, or has wanted one in this session
        self._is_mending = False
        self._given_up: set[bytes] = set()  # topics of retained messages that the other node refuses to read
        self._is_refused = False  # the next state follows a refusal

    def begin(self) -> bool:
        """The other node knows nothing of this one, or nothing any more. True when that ended a mending state before its
        end."""
        was_mending = self._is_mending
        if not self._is_refused:
            self._given_up.clear()  # it may be another process, with other bounds
        self._is_refused = False
        self.interest.clear()
        self._has_links = False
        self._filters = self._local.interest()
        self._begin_retained(False)
        self._deleted = self._local.deleted()
        return was_mending

    def begin_mending(self) -> None:
        """Retained messages of unknown topics were dropped: all are told again."""
        self._begin_retained(True)

    def _begin_retained(self, is_mending: bool) -> None:
        self._is_mending = is_mending
        self._retained = self._local.retained()
        self._deleted = []
        self._at = 0

    def begin_digests(self, is_due: bool, now: float) -> None:
        """A direct stream begins."""
        self._is_digest_due = is_due
        self.digest_at = now + DIGEST_SECONDS

    def end_digests(self) -> None:
        """It ends."""
        self._is_digest_due = False
        self.digest_at = NEVER

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now >= self.digest_at:
            self._is_digest_due = True
            self.digest_at = now + DIGEST_SECONDS

    def give_up(self, topics: list[tuple[bytes, bool]]) -> None:
        """A batch with the retained messages of these topics was refused: the state that follows goes without them."""
        for topic, _ in topics:
            self._given_up.add(topic)
        self._is_refused = True

    def change(self, share_name: bytes, topic_filter: bytes, wanted: bool) -> bool:
        """False when nothing is left to tell of the filter. Changes alternate, so one that undoes what was not told
        yet leaves nothing: while a node is away no more waits for it than what is different there. With links the last
        change is told in any case: others may want the filter than before."""
        self.changes += 1
        key = (share_name, topic_filter)
        if self.interest.get(key, wanted) != wanted and not self._has_links:
            del self.interest[key]
            return False
        self.interest[key] = wanted
        return True

    def change_note(self, topic_filter: bytes) -> None:
        """Other links want a filter that is wanted already: tell it again."""
        self._has_links = True
        self.interest[(b"", topic_filter)] = True

    def has_more(self) -> bool:
        return self.has_interest() or self._is_digest_due or self.has_retained()

    def has_interest(self) -> bool:
        """Return whether filters or changes of them are still to be told."""
        return self._filters is not None or bool(self.interest)

    def has_retained(self) -> bool:
        return bool(self._retained) or bool(self._deleted)

    def next_block(self, extended: bool, now: float) -> Block | None:
        """None when there is nothing more. `extended`: the begin and end of the filters are marked, and deletions are told."""
        filters = self._filters
        if filters is not None or self.interest:
            found = self._next_changes(extended, now) if filters is None else self._next_filters(filters, extended, now)
            if self._filters is None and not self.interest:
                found.told = self.changes
            return found
        if self._is_digest_due:
            self._is_digest_due = False
            block = Block(True, now)
            block.append_frame(encode_frame(INTEREST_DIGEST, self._local.interest_digest()))
            return block
        while self._retained:
            block = self._next_retained(self._retained, now)
            if block.count:
                return block
        while self._deleted:
            block = self._next_deleted(self._deleted, extended, now)
            if block.count:
                return block
        return None

    def _append_interest(self, block: Block, key: tuple[bytes, bytes], extended: bool) -> None:
        note = self._local.note(key[0], key[1]) if extended else b""
        if note:
            self._has_links = True
        block.append_frame(encode_interest(SUBSCRIBE, key[0], key[1], note))

    def _next_filters(self, filters: list[tuple[bytes, bytes]], extended: bool, now: float) -> Block:
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
            if extended:
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

    def _next_retained(self, messages: list[Message], now: float) -> Block:
        # A mending block is kept as a message is: after a clean start it comes again, behind the new full state.
        block = Block(not self._is_mending, now)
        at = self._at
        stop = min(len(messages), at + TOPICS_MAX)
        while at < stop and block.size < BLOCK_BYTES_MAX:
            message = self._local.retained_message(messages[at].topic)
            if message is not None and message.expires_at > now and message.topic not in self._given_up:
                flags = self._flags(message.topic)
                if flags >= 0:
                    if block.count and len(message.payload) > BLOCK_BYTES_MAX:
                        break  # a block of its own: where the other node refuses it, nothing else is lost
                    block.append_message(RETAINED, message, (), flags)
            at += 1
        self._at = at
        if at == len(messages):
            self._retained = []
            self._is_mending = False
            self._at = 0
        return block

    def _flags(self, topic: bytes) -> int:
        """Of a RETAINED frame; -1 where another node tells the topic."""
        changed_by = self._changes.changed_by(topic)
        if not self._is_mending:
            return IS_WRITTEN_THERE if changed_by == HERE else 0
        if changed_by is None:
            return IS_MENDED
        return IS_NEWS if changed_by == HERE else -1

    def _next_deleted(self, topics: list[bytes], extended: bool, now: float) -> Block:
        block = Block(True, now)
        at = self._at
        stop = min(len(topics), at + TOPICS_MAX) if extended else len(topics)
        while extended and at < stop and block.size < BLOCK_BYTES_MAX:
            topic = topics[at]
            at += 1
            if self._local.retained_message(topic) is None and topic not in self._given_up:
                flags = IS_WRITTEN_THERE if self._changes.changed_by(topic) == HERE else 0
                block.append_message(RETAINED, Message(topic, b"", 0, True), (), flags)
        self._at = at
        if at == len(topics) or not extended:
            self._deleted = []
            self._at = 0
        return block
