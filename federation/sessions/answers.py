"""Answers to the claims of other nodes."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER
from federation.sessions.arriving import Epoch
from federation.sessions.departing import Marks
from federation.sessions.home import AllAdopted, told_adopted
from federation.sessions.promised import Claims, told_claims
from federation.sessions.wire import ANSWER, HANDING, NOTHING, SessionFrame, encode_session_frame
from federation.stream.sender import PeerSender

# A worker of this node that hangs, or has died, with a client's session perhaps, is ended and started again in that time.
SIBLING_SECONDS: Final = 12.0
NOBODY: Final = ""  # in place of the nodes that are not known yet


def wait_seconds(awaited: dict[str, None], siblings: frozenset[str], claim_wait: float) -> float:
    """Return how long a client waits for answers of these nodes. siblings: other workers of this node."""
    for name in awaited:
        if name in siblings:
            return max(claim_wait, SIBLING_SECONDS)
    return claim_wait


class Answer:
    """To a claim: it leaves when what this node has for others has left, so that messages of the client stay in order."""

    __slots__ = ("frame", "marks", "node")

    def __init__(self, node: str, frame: bytes, marks: Marks) -> None:
        self.node = node
        self.frame = frame
        self.marks = marks


class Answers:
    """waiting  those that leave later"""

    def __init__(self, senders: dict[str, PeerSender]) -> None:
        self.waiting: list[Answer] = []
        self._senders = senders

    def from_unknown(self, siblings: frozenset[str]) -> dict[str, None]:
        """Return whose answers may come though no member of that name is known: just after a start, before the first gossip.
        Other workers start together with this one, which knows them from before only if it has something of theirs."""
        names = dict.fromkeys([name for name in siblings if name not in self._senders])
        if not self._senders:
            names[NOBODY] = None
        return names

    def refuse(self, sender: PeerSender, frame: SessionFrame, verdict: int, epoch: Epoch, adopted: AllAdopted) -> None:
        """This node is, or was, the home by this epoch. adopted: of its session."""
        self._send(sender, _answer(sender, frame, verdict, epoch, told_adopted(adopted)))

    def say(self, sender: PeerSender, frame: SessionFrame, on_way: Claims, over: Claims) -> None:
        """Answer at once. on_way: of what is handed on. over: of what has ended here, where nothing is."""
        verdict = HANDING if on_way else NOTHING
        self._send(sender, _answer(sender, frame, verdict, frame.epoch, told_claims(on_way or over)))

    def say_later(self, sender: PeerSender, frame: SessionFrame, over: Claims, marks: Marks) -> None:
        """There is no session here any more."""
        answer = _answer(sender, frame, NOTHING, frame.epoch, told_claims(over))
        self.waiting.append(Answer(sender.name, answer, marks))

    def _send(self, sender: PeerSender, answer: bytes) -> None:
        sender.news.answer(answer)
        if sender.reachable:
            sender.want_attention()

    def turn_ended(self, now: float) -> bool:
        """True when some have left."""
        due: list[Answer] = []
        is_more = False
        for answer in self.waiting:
            sender = self._senders.get(answer.node)
            if not answer.marks.is_done(now):
                due.append(answer)
            elif sender is not None:
                self._send(sender, answer.frame)
                is_more = is_more or sender.reachable
        self.waiting = due
        return is_more

    def next_timeout(self) -> float:
        """Return when turn_ended has something to do; NEVER for not by time."""
        at = NEVER
        for answer in self.waiting:
            at = min(at, answer.marks.until)
        return at


def _answer(sender: PeerSender, frame: SessionFrame, verdict: int, epoch: Epoch, more: tuple[object, ...]) -> bytes:
    told = more if sender.knows_adoptions else ()
    return encode_session_frame(ANSWER, frame.client_id, frame.epoch, (verdict, *epoch, *told))
