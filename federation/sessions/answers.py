"""Answers to the claims of other nodes, and to a worker that leaves: whether anything comes for it still."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.message import NEVER
from broker.store.journal import checked
from federation.sessions.arriving import Epoch
from federation.sessions.departing import Departing, Marks
from federation.sessions.home import AllAdopted, Home, told_adopted
from federation.sessions.promised import Claims, told_claims
from federation.sessions.wire import ANSWER, BARRIER, HANDING, NOTHING, SessionFrame, encode_session_frame
from federation.stream.sender import PeerSender

# A worker of this node that hangs, or has died, with a client's session perhaps, is ended and started again in that time.
SIBLING_SECONDS: Final = 12.0
HEAD_SECONDS_MAX: Final = 5.0  # a client waits so long for a session that a node has said to hand over, or had last
NOBODY: Final = ""  # in place of the nodes that are not known yet


def wait_seconds(home: Home, siblings: dict[str, str], claim_wait: float) -> float:
    """Return how long the client waits for answers. siblings: other workers of this node."""
    awaited = home.awaited or {}
    for name in awaited:
        if name in siblings:
            return max(claim_wait, SIBLING_SECONDS)
    is_elsewhere = home.last_home != NOBODY and home.last_home in awaited
    return max(claim_wait, HEAD_SECONDS_MAX) if is_elsewhere or home.on_way() else claim_wait


class Answer:
    """To a claim: it leaves when what this node has for others has left, so that messages of the client stay in order."""

    __slots__ = ("frame", "marks", "node")

    def __init__(self, node: str, frame: bytes, marks: Marks) -> None:
        self.node = node
        self.frame = frame
        self.marks = marks


class Answers:
    """waiting   those that leave later
    passed    by node: the number of the last question of this worker behind whose answer nothing comes from there
    """

    def __init__(self, senders: dict[str, PeerSender], departing: dict[str, list[Departing]]) -> None:
        self.waiting: list[Answer] = []
        self.passed: dict[str, int] = {}
        self._senders = senders
        self._departing = departing
        self._barriers: dict[str, int] = {}  # by the name of a worker that leaves: the number of its last question

    def ask(self, sender: PeerSender, number: int) -> None:
        """Ask whether the node has anything for this worker."""
        self._send(sender, encode_session_frame(BARRIER, "", (number, ""), (False,)))

    def barrier(self, sender: PeerSender, frame: SessionFrame) -> None:
        (is_answer,) = frame.more
        numbers = self.passed if checked(bool, is_answer) else self._barriers
        numbers[sender.name] = frame.epoch[0]

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting) or bool(self._barriers)

    def from_unknown(self, siblings: dict[str, str]) -> dict[str, None]:
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
        for name, number in list(self._barriers.items()):
            sender = self._senders.get(name)
            if sender is None:  # it is over
                del self._barriers[name]
            elif not self._leaves_to(name):
                del self._barriers[name]
                sender.append_session(encode_session_frame(BARRIER, "", (number, ""), (True,)), 0, False, now)
                is_more = True
        return is_more

    def has_for(self, sender: PeerSender) -> bool:
        """Return whether this node has something for the other one."""
        return self._leaves_to(sender.name) or not sender.outbox.is_done(sender.mark())

    def _leaves_to(self, name: str) -> bool:
        for departings in self._departing.values():
            for departing in departings:
                if departing.home == name:
                    return True
        return False

    def next_timeout(self) -> float:
        """Return when turn_ended has something to do; NEVER for not by time."""
        at = NEVER
        for answer in self.waiting:
            at = min(at, answer.marks.until)
        return at


def _answer(sender: PeerSender, frame: SessionFrame, verdict: int, epoch: Epoch, more: tuple[object, ...]) -> bytes:
    told = more if sender.knows_adoptions else ()
    return encode_session_frame(ANSWER, frame.client_id, frame.epoch, (verdict, *epoch, *told))
