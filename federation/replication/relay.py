"""Messages of a node for a home that is away, brought to the node that has adopted its sessions.

The messages of a block of the outbox go to the sessions that were adopted from that home, and to those of its sessions that
nobody could adopt, when it is back: they end with their connection, or came to it behind the copy.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import cast

from broker.broker import Broker
from broker.errors import MqttError
from broker.hooks import NO_GROUPS
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.route import Receiver
from broker.routing.subscriber import Subscriber
from broker.session.session import Session
from broker.store.journal import checked
from broker.store.shapes import count_of
from federation.sessions.arriving import Arriving
from federation.sessions.departing import Departing
from federation.sessions.home import ADOPTED_MAX
from federation.sessions.sessions import Sessions
from federation.sessions.wire import (
    ADOPTED,
    ADOPTED_SESSIONS,
    ALL,
    BLOCK,
    HAND,
    KEEPERS,
    OTHERS,
    RELAY,
    RELAYED,
    REST_OF,
    SWITCH,
    SessionFrame,
    decode_session_frame,
)
from federation.stream.block import Block
from federation.stream.effects import stamped
from federation.stream.frames import (
    BLOCK_HEAD_SIZE,
    GROUP_COPY,
    HAS_EXTENSIONS,
    HEADER_SIZE,
    PUBLISH,
    PUBLISH_BLOCK,
    RETAINED,
    SESSION,
    STAMP,
    FrameError,
    body_start,
    decode_block_version,
    decode_copy_head,
    decode_groups,
    decode_packet,
    extension,
)
from federation.stream.group_copies import GroupCopies
from federation.stream.group_peer import GroupPeer
from federation.stream.outbox import Outbox
from federation.stream.positions import ANY_NODE, POSITIONS_MAX, Position
from federation.stream.receiver import PeerReceiver

Record = tuple[object, ...]


def take_promised(outbox: Outbox, above: int, now: float) -> list[Block]:
    """Take the blocks whose messages are acknowledged, or will be, out of the outbox of a node that is not reached. above: only
    those with greater serial numbers."""
    outbox.close_block()
    outbox.rewind(0, now)
    taken: list[Block] = []
    others: deque[Block] = deque()
    for block in outbox.waiting:
        if not block.is_promised or block.serial <= above:
            others.append(block)
            continue
        taken.append(block)
        outbox.size -= block.size
        if block.record and outbox.journal is not None:
            outbox.journal.drop(block.record)
            block.record = 0
    outbox.waiting = others
    return taken


def behind(block: Block, position: Position, now: float) -> bool:
    """Leave what the home has done out of a block. False when nothing is left."""
    done = position.skips(block.serial, block.done, block.count)
    if done == block.count:
        return False
    if done:
        block.leave_out(done, now)
    return True


def choose_again(data: bytes, lost: GroupPeer, kept: Container[int], copies: GroupCopies, now: float) -> None:
    """This node chose members of a lost home, in a block of its own that the copy of the home does not have. kept: numbers of
    those that were chosen again as this node kept them. Others are of before its last start, or the home had told their end
    and is lost with their members. Raises FrameError."""
    pos = 0
    while pos < len(data):
        start = pos + HEADER_SIZE
        end = start + int.from_bytes(data[pos + 2 : start], "big")
        if data[pos] == GROUP_COPY:
            flags = data[pos + 1]
            at = body_start(data, flags, start, end) if flags & HAS_EXTENSIONS else start
            head, at = decode_copy_head(data, at, end)
            if head.number and head.number not in kept:
                message, _ = decode_packet(data, at, end, 5, now)
                copy = GroupCopy(head.share_name, head.topic_filter, head.hops + 1, head.key)
                copies.orphaned(copy, message, lost, now)
        pos = end


def done_of(more: Record, store_id: str, name: str) -> Position:
    """Return how far the home of ADOPTED had done what this store of the node had for it."""
    found = Position(name, store_id)
    for position in checked(tuple, more[1]):
        there, serial, done, *rest = position
        node, *former = rest or (ANY_NODE,)
        if there == store_id and node in (name, ANY_NODE):
            found.restore((serial, done, *former))
    return found


class Adopter:
    """The node that has the sessions of a lost home.

    name       of the node
    store_id   of the lost home
    more       ADOPTED (wire)
    positions  by node and store id: how far their blocks for the lost home were done, by that or here for it; of POSITIONS_MAX
               the first is forgotten, and QoS 2 may come twice
    """

    def __init__(self, name: str, store_id: str, more: Record) -> None:
        self.name = name
        self.store_id = store_id
        self.more = more
        self.positions: dict[tuple[str, str], Position] = {}

    def position_of(self, name: str, store_id: str) -> Position:
        """Raises ValueError and TypeError for an ADOPTED that no node says."""
        position = self.positions.get((name, store_id))
        if position is None:
            if len(self.positions) >= POSITIONS_MAX:
                del self.positions[next(iter(self.positions))]
            position = self.positions[name, store_id] = done_of(self.more, store_id, name)
        return position


class Relay:
    """Applies a block that a third node brings.

    name      of the node whose block it is
    receiver  of that node, None where it is this one
    sessions  those that get its messages
    below     durable sessions of the home whose records have lower numbers were adopted
    adopters  by lost home
    """

    def __init__(
        self,
        broker: Broker,
        moves: Sessions,
        name: str,
        home: str,
        sessions: int,
        receiver: PeerReceiver | None,
        adopters: dict[str, Adopter],
        below: int = 0,
    ) -> None:
        self.delivered = 0
        self._broker = broker
        self._moving = moves
        self._name = name
        self._home = home
        self._sessions = sessions
        self._below = below
        self._adopters = adopters
        self._receiver = receiver
        self._first = 0  # sessions whose records have lower numbers were adopted from here
        self._skip = 0
        self._block: tuple[str, int] | None = None  # store id and serial of BLOCK
        self._is_rest = False  # the node is lost, too
        self._relayed_to = home  # the lost home that it was for before the adopter of that one was lost, too

    def apply(self, data: bytes, skip: int, now: float) -> None:
        """The first `skip` events were done before. Raises FrameError."""
        relayed = self._moving.moves.relayed
        relayed.nested += 1
        try:
            if relayed.nested > ADOPTED_MAX:
                raise FrameError(
                    f"more than {ADOPTED_MAX} relayed blocks, each inside another one: one for each lost home"
                )
            self._apply_frames(data, skip, now)
        finally:
            relayed.nested -= 1

    def _apply_frames(self, data: bytes, skip: int, now: float) -> None:
        self._skip = skip
        pos = 0
        while pos < len(data):
            start = pos + HEADER_SIZE
            end = start + int.from_bytes(data[pos + 2 : start], "big")
            if end > len(data):
                raise FrameError(f"a relayed block ends inside a frame, at {pos} of {len(data)} bytes")
            self._apply_frame(data, data[pos], data[pos + 1], start, end, now)
            pos = end

    def apply_whole(self, data: bytes, now: float) -> None:
        """All of it, and note which records the messages have. Raises FrameError."""
        first = self._moving.moves.relayed.positions.next_record()
        self.apply(data, 0, now)
        if self._block is not None:
            self._note_brought(first, self._name, self._block[0], self._block[1])

    def _note_brought(self, first: int, name: str, store_id: str, serial: int) -> None:
        """The records from the number `first` on are of this block of the node."""
        relayed = self._moving.moves.relayed
        adopter = self._adopters.get(self._home)
        if first and adopter is not None:
            relayed.add(first, relayed.positions.next_record(), adopter.store_id, name, store_id, serial)

    def _is_next_new(self) -> bool:
        if self._skip > 0:
            self._skip -= 1
            return False
        return True

    def _apply_frame(self, data: bytes, kind: int, flags: int, start: int, end: int, now: float) -> None:
        at = body_start(data, flags, start, end) if flags & HAS_EXTENSIONS else start
        if kind == PUBLISH_BLOCK:
            version = decode_block_version(data, at)
            at += BLOCK_HEAD_SIZE
            while at < end:
                message, at = decode_packet(data, at, end, version, now)
                if self._is_next_new():
                    self._publish(message, NO_GROUPS, now)
        elif not self._is_next_new():
            return
        elif kind in (PUBLISH, RETAINED):
            groups = NO_GROUPS
            if kind == PUBLISH:
                groups, at = decode_groups(data, at, end)
            message, _ = decode_packet(data, at, end, 5, now)
            if flags & HAS_EXTENSIONS:
                message = stamped(message, extension(data, start, STAMP))
            if kind == PUBLISH:
                self._publish(message, groups, now)
                if self._sessions == ADOPTED_SESSIONS:  # it was not known yet whether the home takes copies
                    for share_name, topic_filter in groups:
                        self._deliver_copy(message, GroupCopy(share_name, topic_filter), now)
            elif self._sessions == ALL and self._receiver is not None:
                self._receiver.store(message, flags, now)
        elif kind == GROUP_COPY and self._sessions == ALL and self._receiver is not None:
            self._receiver.publish_copy(data, at, end, now)
        elif kind == GROUP_COPY and self._sessions == ADOPTED_SESSIONS:
            head, at = decode_copy_head(data, at, end)
            if head.number == 0 or self._is_rest:  # for others the node that chose chooses again
                message, _ = decode_packet(data, at, end, 5, now)
                self._deliver_copy(message, GroupCopy(head.share_name, head.topic_filter, head.hops + 1, head.key), now)
        elif kind == SESSION:
            self._take_frame(data[at:end], now)

    def _take_frame(self, body: bytes, now: float) -> None:
        """A hand-over is passed on once, a switch to both. A block that was relayed to the lost home is relayed on."""
        frame = decode_session_frame(body)
        if frame.operation == SWITCH:
            if self._name != self._moving.moves.name:  # else it has done so when it switched
                self._moving.switched(self._name, frame, self._sessions != ADOPTED_SESSIONS, now)
            if self._sessions == ADOPTED_SESSIONS:  # what follows in the block goes to another home
                self._moving.moves.relayed_switch(frame.client_id, self._relayed_to, self._name, frame.epoch)
        elif self._sessions == OTHERS:
            if frame.operation == RELAY:
                self._apply_for_rest(frame, now)
            elif frame.operation in (ADOPTED, KEEPERS, RELAYED) and self._receiver is not None:
                self._receiver.sessions.receive(self._name, body, now)
            elif frame.operation == BLOCK:
                self._leave_out_done(frame)
        elif frame.operation == HAND:
            if self._sessions == ALL or self._is_of(self._relayed_to, frame.epoch[1]):
                self._moving.take(frame, now)
        elif frame.operation == RELAY and self._sessions == ADOPTED_SESSIONS:
            home, sessions, data, _ = frame.more
            if sessions == ADOPTED_SESSIONS:
                outside = self._relayed_to, self._is_rest
                self._relayed_to = checked(str, home)
                self._is_rest = False  # the node lived when it relayed this
                self.apply(checked(bytes, data), 0, now)
                self._relayed_to, self._is_rest = outside
        elif frame.operation == REST_OF and self._sessions == ADOPTED_SESSIONS:
            self._apply_rest(frame, now)
        elif frame.operation == BLOCK and self._relayed_to == self._home:
            serial, *events = frame.more
            self._block = frame.epoch[1], count_of(serial)
            if len(events) == 2:  # an earlier build does not say them
                self._skip = self._take_block(self._name, frame.epoch[1], serial, events[0], events[1])
        elif self._receiver is not None and (
            frame.operation == KEEPERS
            or (self._sessions == ALL and frame.operation in (ADOPTED, RELAY, RELAYED, REST_OF))
        ):
            self._receiver.sessions.receive(self._name, body, now)

    def _apply_for_rest(self, frame: SessionFrame, now: float) -> None:
        """What the node had for this one, as the adopter of another home, which was then adopted itself: of a session that its
        copy lacks, that adopter has nothing."""
        home, sessions, data, _ = frame.more
        if sessions == ADOPTED_SESSIONS:
            lost = checked(str, home)
            relay = Relay(self._broker, self._moving, self._name, lost, sessions, self._receiver, self._adopters)
            relay._first = self._below
            relay.apply_whole(checked(bytes, data), now)
            self.delivered += relay.delivered

    def _leave_out_done(self, frame: SessionFrame) -> None:
        """The home had done the whole block, which its node had not heard. Raises ValueError and TypeError."""
        serial, _, count = frame.more
        if self._moving.moves.relayed.positions.has_done(self._name, frame.epoch[1], count_of(serial)):
            self._skip = count_of(count)

    def _apply_rest(self, frame: SessionFrame, now: float) -> None:
        """A block of another node that is lost, from who has adopted its sessions: where its messages go is what that node has
        said, and nobody else chooses again for groups."""
        home, serial, done, count, data = frame.more
        name = checked(str, home)
        rest = Relay(
            self._broker, self._moving, name, self._home, self._sessions, self._receiver, self._adopters, self._below
        )
        rest._relayed_to = self._relayed_to
        rest._is_rest = True
        first = self._moving.moves.relayed.positions.next_record()
        rest.apply(checked(bytes, data), self._take_block(name, frame.epoch[1], serial, done, count), now)
        self.delivered += rest.delivered
        if self._relayed_to == self._home:
            self._note_brought(first, name, frame.epoch[1], count_of(serial))

    def _is_of(self, home: str, store_id: str) -> bool:
        """Return whether this was the store of the lost home. What is handed over to one that its node has since goes there."""
        adopter = self._adopters.get(home)
        return adopter is None or adopter.store_id == store_id

    def _take_block(self, name: str, store_id: str, serial: object, done: object, count: object) -> int:
        """Return how many events of a block that this store had for the lost home were done, by that or for it: the node brings
        them itself, and so does who has adopted its sessions. Raises ValueError and TypeError."""
        adopter = self._adopters.get(self._relayed_to)
        if adopter is None:
            return 0
        return adopter.position_of(name, store_id).take(count_of(serial), count_of(done), count_of(count))

    def _publish(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        try:
            if self._sessions == ALL and self._receiver is not None:
                self._receiver.publish(message, groups, now)
            elif message.expires_at > now:
                self._deliver(message, now)
        except MqttError:
            return

    def _deliver_copy(self, message: Message, copy: GroupCopy, now: float) -> None:
        try:
            self._broker.router.deliver_copy(message, copy, None, now)
        except MqttError:
            return

    def _deliver(self, message: Message, now: float) -> None:
        for receiver in self._broker.router.lookup(message.topic).receivers:
            session = receiver.session
            qos = min(receiver.qos, message.qos)
            retain = message.retain and receiver.retain_as_published
            if self._sessions == OTHERS:
                is_for = self._is_left_here(receiver, message, qos, retain, now)
            else:
                is_for = self._is_for(session)
            if is_for:
                self.delivered += 1
                session.deliver(message, qos, retain, receiver.identifiers, None, now)

    def _is_left_here(self, receiver: Receiver, message: Message, qos: int, retain: bool, now: float) -> bool:
        """Return whether the session was not adopted, and the message is for it."""
        records = cast(Session, receiver.session).records
        if records is not None and records.number < self._below:
            return False
        sources = receiver.session.sources
        publisher = None if self._receiver is None else self._receiver.publisher
        return sources is None or sources.takes(message, qos, retain, receiver.identifiers, publisher, now)

    def _is_for(self, session: Subscriber) -> bool:
        """Return whether the session was adopted from the home, and what this node has for the home is for it."""
        sources = session.sources
        arriving = sources.before if isinstance(sources, Departing) else sources
        if not isinstance(arriving, Arriving):
            return False
        records = arriving.session.records
        if records is not None and records.number < self._first:
            return False
        if self._relayed_to != self._home:
            before = self._adopters.get(self._relayed_to)
            store_id = "" if before is None else before.store_id
            if not arriving.takes_passed(self._home, self._relayed_to, store_id, self._name):
                return False
        elif self._moving.homes.relayed_to(session.client_id, self._home, self._name) is not arriving:
            return False
        if isinstance(sources, Departing) and sources.due is not None:
            sources.due[sources] = None
        return True
