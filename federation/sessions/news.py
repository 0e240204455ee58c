"""The state that one other node is to be told beside messages: statements about sessions, and the full state.

Claims and answers go before interest, since clients wait for them. A move goes behind the interest in what the session
subscribes to: the other node switches when it knows that. As with interest, a new session of the stream begins with all of it.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import mypyc_attr

from federation.stream.block import Block, BlockOwner
from federation.stream.full_state import FullState

BLOCK_BYTES: Final = 65_536
ANSWERS_MAX: Final = 65_536  # that wait for the stream; then the older half is forgotten: their clients wait no more


@mypyc_attr(allow_interpreted_subclasses=True)
class Told:
    """The node behind the news. This base class has no sessions."""

    def claimed(self) -> list[str]:
        """Client ids of which this node is, or was, the home, by the numbers of their claims."""
        return []

    def moving(self) -> list[str]:
        """Client ids of sessions that arrive here, by the numbers of their moves."""
        return []

    def claim(self, client_id: str) -> tuple[bytes, int]:
        """(CLAIM, its number); b"" when there is nothing to say any more."""
        return b"", 0

    def move(self, client_id: str, name: str) -> tuple[bytes, int]:
        """(MOVE, its number) for this node; b"" when there is nothing to say any more."""
        return b"", 0


class SessionNews:
    """The claims and moves that a node was told. It has been told all with lower numbers: the newest ones are last.

    claims   client ids
    moves    client ids
    answers  to claims of the other node, which may have been heard before the stream to it began
    """

    def __init__(self, told: Told, full_state: FullState, name: str) -> None:
        self.claims: OrderedDict[str, None] = OrderedDict()
        self.moves: OrderedDict[str, None] = OrderedDict()
        self.answers: list[bytes] = []
        self._told = told
        self._name = name
        self._full_state = full_state

    def begin(self, owner: BlockOwner) -> None:
        """The other node knows nothing, or nothing any more."""
        owner.claims_told = owner.moves_told = 0
        self.claims.clear()
        self.moves.clear()
        for client_id in self._told.claimed():
            self.claims[client_id] = None
        for client_id in self._told.moving():
            self.moves[client_id] = None

    def claim(self, client_id: str) -> None:
        """The client has been claimed, or its session has ended."""
        self.claims[client_id] = None
        self.claims.move_to_end(client_id)

    def move(self, client_id: str) -> None:
        """The session arrives here."""
        self.moves[client_id] = None
        self.moves.move_to_end(client_id)

    def answer(self, frame: bytes) -> None:
        if len(self.answers) >= ANSWERS_MAX:
            del self.answers[: ANSWERS_MAX // 2]
        self.answers.append(frame)

    def clear(self) -> None:
        self.answers.clear()
        self.claims.clear()
        self.moves.clear()

    def has_more(self) -> bool:
        return self._full_state.has_more() or bool(self.claims) or bool(self.answers) or bool(self.moves)

    def next_block(self, extended: bool, now: float) -> Block | None:
        """Answers and claims, filters, moves, the rest of the full state; None when there is nothing more. `extended` as of
        FullState.next_block."""
        block = None
        if self.claims or self.answers:
            block = self._next_urgent(now)
        elif self.moves and not self._full_state.has_interest():
            block = self._next_moves(now)
        return self._full_state.next_block(extended, now, bool(self.moves)) if block is None else block

    def _next_urgent(self, now: float) -> Block | None:
        """Answers and claims; None when there are none."""
        block = Block(True, now)
        for frame in self.answers:
            block.append_frame(frame)
        self.answers.clear()
        claims = self.claims
        while claims and block.size < BLOCK_BYTES:
            client_id, _ = claims.popitem(last=False)
            frame, number = self._told.claim(client_id)
            if frame:
                block.append_frame(frame)
                block.claims_told = max(block.claims_told, number)
        return block if block.count else None

    def _next_moves(self, now: float) -> Block | None:
        """Moves; None when there are none."""
        block = Block(True, now)
        while self.moves and block.size < BLOCK_BYTES:
            client_id, _ = self.moves.popitem(last=False)
            frame, number = self._told.move(client_id, self._name)
            if frame:
                block.append_frame(frame)
                block.moves_told = max(block.moves_told, number)
        return block if block.count else None
