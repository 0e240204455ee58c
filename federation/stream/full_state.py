"""What another node is told of this one beside messages: its full state after a clean start, and each change of interest.

It gives blocks of the usual size, in order: filters, what changed in them since, retained messages; then single changes.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.message import Message
from federation.stream.frames import (
    IS_WRITTEN_THERE,
    RETAINED,
    STATE_BEGIN,
    STATE_END,
    SUBSCRIBE,
    UNSUBSCRIBE,
    encode_frame,
    encode_interest,
)
from federation.stream.outbox import BLOCK_BYTES_MAX, Block
from federation.stream.retained_changes import RetainedChanges


@mypyc_attr(allow_interpreted_subclasses=True)
class LocalState:
    """What a full state is made of. This base class is a node without any."""

    def interest(self) -> list[tuple[bytes, bytes]]:
        """(share_name, topic_filter) of every local subscription, each once."""
        return []

    def retained(self) -> list[Message]:
        """Every retained message, and an empty one for each topic that clients here deleted lately."""
        return []

    def retained_message(self, topic: bytes) -> Message | None:
        """What one topic holds."""
        return None


class FullState:
    """Of one sender. `interest` are the changes to tell, by (share_name, topic_filter): whether it is wanted now."""

    __slots__ = ("_at", "_changes", "_filters", "_given_up", "_is_refused", "_local", "_retained", "interest")

    def __init__(self, local: LocalState, changes: RetainedChanges) -> None:
        self._local = local
        self._changes = changes
        self.interest: dict[tuple[bytes, bytes], bool] = {}
        # On their way out: filters, then retained messages; the position in them.
        self._filters: list[tuple[bytes, bytes]] | None = None
        self._retained: list[Message] = []
        self._at = 0
        self._given_up: set[bytes] = set()  # topics of retained messages that the other node refuses to read
        self._is_refused = False  # the next state follows a refusal

    def begin(self) -> None:
        """The other node knows nothing of this one (any more)."""
        if not self._is_refused:
            self._given_up.clear()  # it may be another process, with other bounds
        self._is_refused = False
        self.interest.clear()
        self._filters = self._local.interest()
        self._retained = [message for message in self._local.retained() if message.topic not in self._given_up]
        self._at = 0

    def give_up(self, topics: list[bytes]) -> None:
        """A batch with the retained messages of these topics was refused: the state that follows goes without them."""
        self._given_up.update(topics)
        self._is_refused = True

    def change(self, share_name: bytes, topic_filter: bytes, wanted: bool) -> bool:
        """False when nothing is left to tell of the filter. Changes come in turns, so one that undoes what was not told
        yet leaves nothing: while a node is away no more waits for it than what is different there."""
        key = (share_name, topic_filter)
        if self.interest.get(key, wanted) != wanted:
            del self.interest[key]
            return False
        self.interest[key] = wanted
        return True

    def has_more(self) -> bool:
        return self._filters is not None or bool(self.interest) or bool(self._retained)

    def next_block(self, batched: bool, now: float) -> Block | None:
        """`batched`: the end of the filters is marked, and deletions are told."""
        filters = self._filters
        if filters is not None:
            return self._next_filters(filters, batched, now)
        if self.interest:
            return self._next_changes(now)
        if self._retained:
            return self._next_retained(self._retained, batched, now)
        return None

    def _next_filters(self, filters: list[tuple[bytes, bytes]], batched: bool, now: float) -> Block:
        block = Block(True, now)
        at = self._at
        if at == 0 and batched:
            block.append_frame(encode_frame(STATE_BEGIN, b""))
        while at < len(filters) and block.size < BLOCK_BYTES_MAX:
            share_name, topic_filter = filters[at]
            at += 1
            block.append_frame(encode_interest(SUBSCRIBE, share_name, topic_filter))
        self._at = at
        if at == len(filters):
            self._filters = None
            self._at = 0
            if batched:
                block.append_frame(encode_frame(STATE_END, b""))
        return block

    def _next_changes(self, now: float) -> Block:
        block = Block(True, now)
        told: list[tuple[bytes, bytes]] = []
        for key, wanted in self.interest.items():
            if block.size >= BLOCK_BYTES_MAX:
                break
            told.append(key)
            block.append_frame(encode_interest(SUBSCRIBE if wanted else UNSUBSCRIBE, key[0], key[1]))
        for key in told:
            del self.interest[key]
        return block

    def _next_retained(self, messages: list[Message], batched: bool, now: float) -> Block | None:
        block = Block(True, now)
        at = self._at
        while at < len(messages) and block.size < BLOCK_BYTES_MAX:
            message = messages[at]
            if block.frames and len(message.payload) > BLOCK_BYTES_MAX:
                break  # it travels alone: where the other node refuses it, nothing else goes with it
            at += 1
            if message.expires_at > now and (message.payload or batched):
                flags = IS_WRITTEN_THERE if self._changes.is_written_here(message.topic) else 0
                block.append_message(RETAINED, message, (), flags)
                block.note_retained(message.topic)
        self._at = at
        if at == len(messages):
            self._retained = []
        return block if block.frames else None
