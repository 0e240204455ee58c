"""Copies for shared groups whose node has gone: others of the group get them (decision 14)."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.counters import DROP_GROUP_GONE
from broker.message import NEVER, Message
from broker.routing.group_copy import GroupCopy
from broker.routing.router import Router
from broker.slices import SLICE_STEPS
from federation.stream.group_peer import GroupPeer, KeptCopy

AGAIN_SECONDS: Final = 2.0  # between two searches for somebody else, while a node with copies is away
UNKNOWN_SECONDS: Final = 60.0  # after a start, in which the interest of other nodes may be unknown
ADOPTED_MAX: Final = 16_384  # copies that wait for it; then others are dropped, and counted
CHOICES_MAX: Final = SLICE_STEPS // 8  # copies that are chosen for again in one call; the rest follow in the next turns


class Orphan:
    """A copy whose receiver has gone. without: the node that does not get it, None for any. may_return: that node may return,
    and then still has it."""

    __slots__ = ("kept", "may_return", "number", "without")

    def __init__(self, kept: KeptCopy, number: int, without: GroupPeer | None, may_return: bool) -> None:
        self.kept = kept
        self.number = number
        self.without = without
        self.may_return = may_return


class GroupCopies:
    """Of one node. again_at: when to call handle_timeout, NEVER for not at all."""

    def __init__(self, router: Router) -> None:
        self.again_at = NEVER
        self._router = router
        self._orphans: deque[Orphan] = deque()
        self._away: dict[GroupPeer, None] = {}
        self._adopted: deque[KeptCopy] = deque()
        self._known_at = router.context.now + UNKNOWN_SECONDS
        self._look_at = NEVER  # for somebody who takes copies of nodes that are away, or adopted ones

    def process_told(self, peer: GroupPeer, process: str, now: float) -> None:
        """The node lives. Another process than before has none of the copies that were sent to that one."""
        self._away.pop(peer, None)
        peer.takes_copies = bool(process)
        if peer.process and process != peer.process:
            self._abandon(peer, peer.take_kept(False), None, now)
        peer.process = process

    def is_away(self, peer: GroupPeer, now: float) -> None:
        """The node is taken for failed, or has left and may return. What nobody else takes waits for its return."""
        self._away[peer] = None
        self._look_at = self.again_at = now

    def given_up(self, peer: GroupPeer, now: float) -> None:
        """The node is waited for no more, and its outbox is dropped next."""
        self._away.pop(peer, None)
        self._abandon(peer, peer.take_kept(True), peer, now)

    def orphaned(self, copy: GroupCopy, message: Message, without: GroupPeer, now: float) -> None:
        """A copy of the process before this one waits for a node that is given up."""
        self._orphans.append(Orphan(KeptCopy(copy, message, 0), 0, without, False))
        self.again_at = now

    def _abandon(self, peer: GroupPeer, kept: dict[int, KeptCopy], without: GroupPeer | None, now: float) -> None:
        """Nobody has these copies any more: what nobody takes is dropped."""
        for number, found in kept.items():
            self._orphans.append(Orphan(found, number, without, False))
        if kept:
            peer.outbox.counters.copies_chosen_again += len(kept)
            self.again_at = now

    def adopt(self, copy: GroupCopy, message: Message, now: float) -> bool:
        """Keep a copy that was sent to the process before this one, whose members have gone, until somebody takes it. False
        when nobody will be heard of any more."""
        if now >= self._known_at or len(self._adopted) >= ADOPTED_MAX:
            return False
        self._adopted.append(KeptCopy(copy, message, 0))
        self._look_at = min(self._look_at, now + AGAIN_SECONDS)
        self.again_at = min(self.again_at, self._look_at)
        return True

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early."""
        if now < self.again_at:
            return
        if now >= self._look_at:
            self._look_at = NEVER
            for peer in self._away:
                for number, found in peer.take_kept(False).items():
                    self._orphans.append(Orphan(found, number, peer, True))
            while self._adopted:
                self._orphans.append(Orphan(self._adopted.popleft(), 0, None, False))
        orphans = self._orphans
        for _ in range(min(CHOICES_MAX, len(orphans))):
            self._choose_again(orphans.popleft(), now)
        self.again_at = now if orphans else self._look_at

    def _choose_again(self, orphan: Orphan, now: float) -> None:
        message = orphan.kept.message
        copy = orphan.kept.copy
        peer = orphan.without
        if message.expires_at <= now:
            copy.end()
        elif self._router.redeliver(copy, message.copy(), now, False, peer):
            if peer is not None and orphan.may_return:
                peer.outbox.counters.copies_chosen_again += 1
        elif peer is not None and orphan.may_return:
            peer.put_back(orphan.number, orphan.kept)
            self._look_at = now + AGAIN_SECONDS
        elif not self.adopt(copy, message, now):
            self._router.context.counters.drop_of_topic(DROP_GROUP_GONE, 1, message.qos, message.topic)
            copy.end()
