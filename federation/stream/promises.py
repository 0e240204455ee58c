"""The acknowledgements of publishers that wait until other nodes have their messages.

A QoS 1 or 2 message that goes to another node is promised: its PUBACK or PUBREC leaves when each of these nodes has said that
its store has what the message caused there, or when this node has the message in the outbox in its own store. The messages of
one turn are one promise (`Commits.promise`). A node that does not say so within its `wait_seconds` is behind: what waits for it
is kept in the store, and what follows at once, until it has caught up. So nothing is written while all nodes answer.

The answer to SUBSCRIBE waits in the same way for the nodes that are reached, until they know of the interest.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.hooks import Peer
from broker.message import NEVER
from broker.session.commits import Commits
from federation.stream.counters import DropReason
from federation.stream.full_state import FullState
from federation.stream.outbox import Outbox
from federation.tags import EXTENSION_COPIES, EXTENSION_NEWEST, TAG_WORKER_OF, TAG_ZONE, ZONE_CHARS_MAX

STORE_MARK: Final = "@"
WAIT_SECONDS_MIN: Final = 0.05  # for a node's acknowledgement, before its messages are kept here
WAIT_ROUND_TRIPS: Final = 4  # or so many of its last round trip, with the commit there
WAIT_SECONDS_MAX: Final = 1.0  # however long that took: a node that stood still has a long one behind it


class PromisedPeer(Peer):
    """The sender to another node, as far as acknowledgements wait for it.

    is_behind   it is not reached, or too slow for acknowledgements to wait for it: the store keeps what is promised
    is_living   Serf does not take the node for failed
    promise     the last one that waits for it, with promised_serial and promised_change (Promise)
    round_trip  seconds from sending events to their acknowledgement, the last time; -1.0 before the first one
    peer_store_id  of the node, as its tag says, "" for none
    knows_adoptions  the node is told who has adopted sessions (likewise)
    marks_newest   it says of the messages of a copy that it hands over which of them their home may lack (likewise)
    keeps_copies   of other stores (likewise); not a worker of this node, which is lost with the same machine
    zone           of the node (likewise)
    node           of the member, as its tag says: other workers of the node have the same one
    living_since   time at which it became a member, or was one again after a failure
    """

    def __init__(self, name: str, names_groups: bool, outbox: Outbox, full_state: FullState) -> None:
        super().__init__(name, names_groups)
        self.outbox = outbox
        self.full_state = full_state
        self.is_behind = True
        self.is_living = True
        self.promise = 0
        self.promised_serial = 0
        self.promised_change = 0
        self.round_trip = -1.0
        self.peer_store_id = ""
        self.knows_adoptions = False
        self.marks_newest = False
        self.keeps_copies = False
        self.zone = ""
        self.node = ""
        self.living_since = 0.0

    def copies_told(self, tags: dict[str, str], extensions: list[str], is_worker: bool) -> None:
        """The node has told these tags. extensions: what it knows of sessions. is_worker: it is one of this node."""
        self.knows_adoptions = EXTENSION_COPIES in extensions
        self.marks_newest = EXTENSION_NEWEST in extensions
        self.keeps_copies = self.knows_adoptions and not is_worker
        self.zone = tags.get(TAG_ZONE, "")[:ZONE_CHARS_MAX]
        self.node = tags.get(TAG_WORKER_OF, self.name)

    def hello_id(self, session_id: str) -> str:
        """The session id for Hello: it names the store that the outbox is for, and another one refuses it."""
        return f"{session_id}{STORE_MARK}{self.peer_store_id}" if self.peer_store_id else session_id

    def want_attention(self) -> None:
        """Ask the shell to send blocks at the end of this turn."""
        raise AssertionError("a peer that sends nothing")

    def position(self) -> int:
        return self.outbox.counters.messages_queued

    def mark(self) -> int:
        return self.outbox.mark()

    def is_done(self, mark: int) -> bool:
        return not self.is_living or self.outbox.is_done(mark)

    def promise_message(self, qos: int, promises: Promises) -> None:
        """The publisher of the last message gets an acknowledgement. After a start it sends a message of QoS 2 again if the
        store does not have its packet identifier: so nothing of it may have left before, and it must be kept with that."""
        outbox = self.outbox
        if outbox.is_dropped:
            return
        block = outbox.newest
        block.is_promised = True
        if qos == 2:
            block.is_once = True
        if qos == 2 or self.is_behind:
            outbox.keep_newest()
        else:
            promises.add(self)
            self.promised_serial = block.serial

    def append_session(self, frame: bytes, messages: int, is_once: bool, now: float) -> None:
        """Send a frame about a session, in the order of messages. Arguments as of Outbox.append_session."""
        if self.outbox.bytes_max == 0:  # the node was given up
            self.outbox.counters.drop(DropReason.PEER_GONE, messages)
            return
        self.outbox.append_session(frame, messages, is_once, now)
        if self.outbox.journal is not None and self.is_behind:
            self.outbox.keep_newest()
        if self.reachable:
            self.want_attention()

    def has_room(self) -> bool:
        """Return whether the outbox takes more of what could wait elsewhere."""
        return self.outbox.size < self.outbox.bytes_max // 4

    def promise_interest(self, promises: Promises) -> None:
        """The subscriber gets an answer."""
        if promises.for_interest and not self.is_behind:
            promises.add(self)
            self.promised_change = self.full_state.changes

    def wait_seconds(self) -> float:
        """Return how long acknowledgements wait for the node before it is behind."""
        return min(WAIT_SECONDS_MAX, max(WAIT_SECONDS_MIN, WAIT_ROUND_TRIPS * self.round_trip))

    def is_safe(self, serial: int, change: int) -> bool:
        """Return whether the node has messages up to this block, or the store here, and knows of this change of interest,
        if it is reached."""
        outbox = self.outbox
        if serial and not outbox.is_safe(serial):
            return False
        return change <= outbox.told or self.is_behind or not (self.full_state.has_interest() or outbox.has_state())

    def fall_behind(self) -> None:
        """Acknowledgements wait for the node no more: what was promised is kept in the store."""
        if not self.is_behind:
            self.is_behind = True
            self.outbox.counters.times_behind += 1
            self.outbox.keep_promised()

    def catch_up(self, now: float) -> None:
        """Return to waiting for the node, if nothing has waited for it for long."""
        if self.outbox.oldest_at() > now - self.wait_seconds():
            self.is_behind = False


class Promise:
    """number   of `Commits.promise`
    senders  with the serial number of the last block of messages, and the number of the last change of interest; 0 for none
    until    when nodes that have not answered are behind
    """

    __slots__ = ("number", "senders", "until")

    def __init__(self, number: int, senders: list[tuple[PromisedPeer, int, int]], until: float) -> None:
        self.number = number
        self.senders = senders
        self.until = until

    def is_kept(self) -> bool:
        for sender, serial, change in self.senders:  # noqa: SIM110 (compiled without a generator)
            if not sender.is_safe(serial, change):
                return False
        return True


class Promises:
    """Of one node with a store.

    unstored        senders with blocks that are not sent before they are stored
    for_interest    also of interest, for the answers to SUBSCRIBE
    is_due_changed  `next_timeout` may be sooner than before
    """

    def __init__(self, commits: Commits, for_interest: bool) -> None:
        self.unstored: dict[PromisedPeer, None] = {}
        self.for_interest = for_interest
        self.is_due_changed = False
        self._commits = commits
        self._number = 0  # of the promise of this turn, 0 for none
        self._senders: list[PromisedPeer] = []  # of it
        self._waiting: deque[Promise] = deque()
        self._due: deque[Promise] = deque()  # those whose time is not over; kept ones leave it by time, too

    def is_empty(self) -> bool:
        """Return whether nothing waits for other nodes."""
        return not self._waiting and self._number == 0

    def waiting_for(self, sender: PromisedPeer) -> int:
        """Return how many promises wait for the node."""
        count = 0
        for promise in self._waiting:
            for found, serial, change in promise.senders:
                if found is sender and not sender.is_safe(serial, change):
                    count += 1
        return count

    def add(self, sender: PromisedPeer) -> None:
        """The packet being handled waits for a node that has not answered yet."""
        number = self._number
        if number == 0:
            self._number = number = self._commits.promise()
        else:
            self._commits.promise_due = number
        if sender.promise != number:
            sender.promise = number
            sender.promised_serial = 0
            sender.promised_change = 0
            self._senders.append(sender)

    def turn_ended(self, now: float) -> bool:
        """Close the promise of this turn. True when acknowledgements leave, or blocks."""
        number = self._number
        if number:
            wait = 0.0
            senders: list[tuple[PromisedPeer, int, int]] = []
            for sender in self._senders:
                senders.append((sender, sender.promised_serial, sender.promised_change))
                wait = max(wait, sender.wait_seconds())
            self._begin(Promise(number, senders, now + wait))
            self._number = 0
            self._senders = []
        is_more = False
        if self.unstored:
            for sender in list(self.unstored):
                if not sender.outbox.is_next_unstored():
                    del self.unstored[sender]
                    if sender.reachable:
                        sender.want_attention()
                        is_more = True
        return (bool(self._waiting) and self.settle()) or is_more

    def _begin(self, promise: Promise) -> None:
        self._waiting.append(promise)
        if not self._due:
            self.is_due_changed = True
        self._due.append(promise)

    def settle(self) -> bool:
        """Nodes or the store have answered. True when acknowledgements leave."""
        waiting = self._waiting
        number = 0
        while waiting and waiting[0].is_kept():
            number = waiting.popleft().number
        if number:
            self._commits.kept(number)
        return number > 0

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return self._due[0].until if self._due else NEVER

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. What nodes did not answer is kept, and stored at the end of the turn."""
        due = self._due
        while due and due[0].until <= now:
            for sender, serial, change in due.popleft().senders:
                if not sender.is_safe(serial, change):
                    sender.fall_behind()
