"""The sessions of a home that is lost go on at the keeper of its store.

The keeper takes them from its replica as if their home had handed them over, some in each turn, and becomes their home by the
epoch that follows the one of the lost home: who has claimed a client since stays its home. Then it brings what the lost home
had for other nodes to these, and asks all others for what they have for the lost home (relay). They answer before they send
on their own, so messages stay in order.

A home that was not lost, but away, hears of this with the claims: it hands over what came since, and no more.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.broker import Broker
from broker.errors import MqttError
from broker.origin import HeaderError
from broker.routing.subscriber import GROUP_QUEUE_PREFIX
from broker.session.outgoing import QUEUED
from broker.store.journal import checked
from broker.store.kinds import DEPARTING, ENDED, OUTGOING, RECEIVED, SUBSCRIPTION, WILL
from broker.store.restoring import message_of, outgoing_of, session_of
from broker.store.shapes import check_shape, count_of
from federation.replication.adopting import Adoption, Handing, RelayedAll
from federation.replication.contents import Contents, Record
from federation.replication.relay import Adopter, Relay, behind, choose_again, done_of, take_promised
from federation.replication.replica import Replica
from federation.replication.replicas import Replicas
from federation.sessions.homes import Homes
from federation.sessions.moves import Moves
from federation.sessions.sessions import Sessions
from federation.sessions.wire import (
    ADOPTED,
    ADOPTED_SESSIONS,
    ALL,
    BLOCK,
    COPIED,
    HAND,
    INCLUDES,
    OTHERS,
    RELAY,
    RELAYED,
    REST_OF,
    SessionFrame,
    encode_session_frame,
)
from federation.stream.block import restored_block
from federation.stream.frames import FrameError
from federation.stream.positions import Positions
from federation.stream.receivers import Receivers
from federation.stream.sender import PeerSender
from federation.stream.tree import FederationTree

FAULTS: Final = (FrameError, TypeError, ValueError, IndexError, KeyError, HeaderError, MqttError)
SESSIONS_OF_A_TURN: Final = 256
RECORDS_OF_A_TURN: Final = 8_192  # that are sorted
REST_STEPS_OF_A_TURN: Final = 2_000  # an end of a session is one
BLOCK_STEPS: Final = 100  # of a block for another node
ADOPTERS_MAX: Final = 4_096  # lost homes whose adopters are known; policy: the oldest is forgotten


class Adoptions:
    """adopted   number of sessions
    refused  number of sessions, messages, and blocks for other nodes, that no node has written so
    stores   number of lost stores
    ended    ids of those whose sessions are all here, until they are taken
    relayed  number of messages of other nodes for them
    """

    def __init__(
        self,
        name: str,
        broker: Broker,
        replicas: Replicas,
        receivers: Receivers,
        senders: dict[str, PeerSender],
        positions: Positions,
        tree: FederationTree,
        sessions: Sessions,
    ) -> None:
        self.adopted = 0
        self.refused = 0
        self.relayed = 0
        self.stores = 0
        self.ended: list[str] = []
        self._name = name
        self._broker = broker
        self._replicas = replicas
        self._receivers = receivers
        self._senders = senders
        self._positions = positions
        self._tree = tree
        self._sessions = sessions
        self._homes: Homes = sessions.homes
        self._moves: Moves = sessions.moves
        self._begun: dict[str, Adoption] = {}  # by store id
        self._relayed_all = RelayedAll(self._homes)
        self._relayed: dict[str, int] = {}  # by lost home: the mark of the outbox to it until which all was relayed
        self._lost: dict[str, None] = {}  # those of these that were not heard since
        self._adopters: dict[str, Adopter] = {}  # by lost home

    def is_active(self) -> bool:
        return bool(self._begun) or self._relayed_all.is_active()

    def begin(self, replica: Replica) -> None:
        """The home is lost."""
        if replica.store_id not in self._begun and replica.is_complete:
            self._begun[replica.store_id] = Adoption(replica)
            self.stores += 1

    def dropped(self, replica: Replica) -> None:
        """The replica is being forgotten: nothing more of it is adopted."""
        self._begun.pop(replica.store_id, None)

    def take_client(self, client_id: str, now: float) -> None:
        """The client is wanted: its session is first, where it is among those that are being adopted, and its will is published
        before it says something else."""
        for adoption in self._begun.values():
            replica = adoption.replica
            number = replica.by_client.get(client_id)
            if number is None:
                continue
            record = replica.record(number)
            if record is not None and record[0] != WILL and not adoption.is_open:
                self._open(adoption, len(replica.where) + len(replica.runs))
            replica.remove(self._adopt(adoption, number, now))

    def turn_ended(self, now: float) -> bool:
        """True when there is more output."""
        is_more = bool(self._begun) or self._relayed_all.is_active()
        for adoption in list(self._begun.values()):
            if not adoption.is_open and not self._open(adoption, RECORDS_OF_A_TURN):
                continue
            self._adopt_some(adoption, now)
            if not adoption.left and self._send_some(adoption, now):
                del self._begun[adoption.replica.store_id]
                self._end(adoption, now)
        if self._relayed_all.is_active():
            self._relayed_all.go_on(now)
        return is_more

    def _adopt_some(self, adoption: Adoption, now: float) -> None:
        numbers: list[int] = []
        count = SESSIONS_OF_A_TURN
        try:
            while adoption.left and count:
                count -= 1
                numbers += self._adopt(adoption, adoption.left.popleft(), now)
        finally:
            adoption.replica.remove(numbers)

    def _open(self, adoption: Adoption, count: int) -> bool:
        """Sort so many more records. True when all are."""
        replica = adoption.replica
        if not replica.open_some(count) or replica.contents is None:
            return False
        adoption.opened(replica.contents)
        return True

    def _adopt(self, adoption: Adoption, number: int, now: float) -> list[int]:
        """Return the numbers of the records that are this node's own from now on."""
        replica = adoption.replica
        record = replica.record(number)
        if record is not None and record[0] == WILL:
            try:
                self._publish_will(record, now)
            except FAULTS:
                self.refused += 1
            return [number]
        contents = replica.contents
        if contents is None or number not in contents.records:
            return []
        numbers = [number, *sorted(contents.sessions.get(number, ()))]
        client_id = checked(str, contents.records[number][1])
        try:
            if client_id.startswith(GROUP_QUEUE_PREFIX):
                self._give_jobs(contents, numbers, now)
            else:
                self._take_session(adoption, contents, client_id, numbers, now)
        except FAULTS:
            self.refused += 1
        if replica.by_client.get(client_id) == number and client_id in contents.homes:
            numbers.append(contents.homes[client_id])
        return numbers

    def _publish_will(self, record: Record, now: float) -> None:
        """The session of the client has ended with its connection to the lost home."""
        check_shape(record)
        session = session_of(record, self._broker, self._broker.wall_offset, now)
        if session.will is not None:
            self._broker.publish_will(session.will.will, session, now)

    def _take_session(
        self, adoption: Adoption, contents: Contents, client_id: str, numbers: list[int], now: float
    ) -> None:
        replica = adoption.replica
        head: list[Record] = []
        sent: list[tuple[int, int]] = []
        received: list[tuple[int, int]] = []
        queue: list[tuple[int, Record]] = []
        home_number = contents.homes.get(client_id)
        home_record = None if home_number is None else contents.records[home_number]
        since = 0
        has_left: object = False  # its head
        before: object = None  # how it had arrived there, and from which lost homes
        lineage: object = None
        more: list[object] = []  # of its record, behind these
        goes_on = self._moves.passed_on.newest.get(client_id)  # its client has claimed it for another node
        names: list[object] = [replica.node]  # the home, and those before it
        relayed: dict[str, None] = {self._name: None}
        for name in self._senders:
            relayed[name] = None
        for number in numbers:
            record = contents.records[number]
            kind = record[0]
            if kind == OUTGOING:
                whole = self._with_message(contents, record)
                if whole[8] == QUEUED:
                    queue.append((number, whole))
                else:
                    head.append(whole)
                    sent.append((cast(int, whole[7]), number))
            elif kind == DEPARTING:
                # What is left of it goes after it.
                _, _, counter, store_id, left_since, node, waiting, has_left, before, *more = record
                relayed = dict.fromkeys(checked(tuple, waiting))
                home_record = None
                since = count_of(left_since)
                epoch = count_of(counter), checked(str, store_id)
                if goes_on is None or goes_on[1] < epoch:
                    goes_on = checked(str, node), epoch
            elif kind == SUBSCRIPTION:
                head.insert(1, record)
            else:
                head.append(record)
                if kind == RECEIVED:
                    received.append((cast(int, record[2]), number))
        queue.sort()
        copied: list[Record] = []
        if home_record is not None:
            _, _, counter, _, before, *more = home_record
            since = count_of(counter)
            copied.append((COPIED, replica.store_id, since))
        if len(more) > 1:
            copied.append((INCLUDES, more[1]))
        if len(more) > 2:
            lineage = more[2]
        head[1:1] = copied
        if before is not None:  # it had not arrived there as a whole: some sent to the homes before
            _, _, is_merged, _, homes, waiting = checked(tuple, before)
            names += checked(tuple, homes)
            for name in () if is_merged else checked(tuple, waiting):
                relayed.pop(name, None)
        epoch = since + 1, self._broker.identity.store_id
        journal = self._replicas.journal
        assert journal is not None
        frame = SessionFrame(HAND, client_id, epoch, (tuple(names), (), since))
        handing = Handing(self._broker, self._moves, journal, frame, adoption.newest_from())
        is_new = client_id not in self._homes.by_client
        self._moves.passed_on.newest.pop(client_id, None)
        handing.take_head(head, sent, received, now)
        # The queue of a session that was leaving is what had not left.
        at = self._homes.by_client.get(client_id) if home_record is not None else None
        store_id = replica.store_id
        queue = [each for each in queue if at is None or not handing.was_handed(at, store_id, each[0])]
        handing.take_queue(queue, now)
        self.refused += handing.refused
        self.adopted += 1
        home = self._homes.by_client.get(client_id)
        if home is None or home.arriving is None:
            return
        counter = 0 if home_record is None else since
        home.adopts(handing.adopted(replica.store_id, adoption.below, counter, bool(has_left)))
        home.is_deserted = is_new
        for name, sender in self._senders.items():
            if sender.knows_adoptions and sender.outbox.bytes_max and name != replica.node:
                home.arriving.relaying[name] = replica.store_id
                if sender.reachable:
                    home.arriving.handing[name] = 0
        # The others hear of the move before they are asked for what they have for the lost home: it gets nothing in between.
        self._homes.say_move(home, home.arriving, home.arriving.move_number)
        if lineage is not None:
            home.arriving.take_lineage(lineage)
        home.arriving.lost[replica.node] = replica.store_id
        for name in relayed:
            home.arriving.relayed_switch(replica.node, name, (since, replica.store_id))
        lost = self._senders.get(replica.node)
        if lost is not None and self._moves.switches.has_left(lost, client_id):
            home.arriving.relayed_switch(replica.node, self._name, self._homes.epoch_of(home))
        home.arriving.handing[self._name] = 0
        home.arriving.goes_on(now)
        self._homes.keep(home)
        if goes_on is not None and goes_on[1] > self._homes.epoch_of(home):
            self._sessions.give_on(home, goes_on[0], goes_on[1], now)

    def _with_message(self, contents: Contents, record: Record) -> Record:
        number = cast(int, record[2])
        return (*record[:2], contents.records.get(number) if number else None, *record[3:])

    def _give_jobs(self, contents: Contents, numbers: list[int], now: float) -> None:
        """Give messages that waited for a shared group to its members."""
        offset = self._broker.wall_offset
        for number in sorted(numbers):
            if contents.records[number][0] != OUTGOING:
                continue
            record = self._with_message(contents, contents.records[number])
            check_shape(record)
            if record[2] is None:
                continue
            message = message_of(cast(Record, record[2]), offset)
            job = outgoing_of(record, message, offset, now).copy
            router = self._broker.router
            if job is not None and not router.redeliver(job, message, now):
                try:
                    router.deliver_copy(message, job, None, now)
                except MqttError:
                    continue

    def _send_some(self, adoption: Adoption, now: float) -> bool:
        """All sessions are here: take what is left of the home, and give what it had for other nodes to these. True when
        nothing is left."""
        rest = adoption.sort_rest() if adoption.rest is None else adoption.rest
        steps = REST_STEPS_OF_A_TURN
        while rest and steps > 0:
            record = rest.popleft()
            if record[0] == ENDED:
                steps -= 1
                self._take_ended(record)
                continue
            steps -= BLOCK_STEPS
            try:
                self._send_rest(adoption.replica, record, now)
            except FAULTS:
                self.refused += 1
        return not rest

    def _end(self, adoption: Adoption, now: float) -> None:
        """End an adoption: what other nodes have for the sessions may come."""
        replica = adoption.replica
        more = replica.node, tuple(adoption.done), adoption.below
        self._note_adopter(self._name, replica.store_id, more)
        is_back = self._relay(more, None, now)
        frame = encode_session_frame(ADOPTED, "", (0, replica.store_id), more)
        # They hear of it, also if this process ends, as soon as the store has all that, and behind the moves of the sessions.
        for sender in self._senders.values():
            if sender.knows_adoptions:
                sender.append_session(frame, 0, True, now)
        self.handed_over(self._name, replica.store_id, is_back, now)
        self._replicas.drop(replica)
        self.ended.append(replica.store_id)

    def _take_ended(self, record: Record) -> None:
        """A session had ended there, and another node that was away may have one."""
        client_id, counter = checked(str, record[1]), count_of(record[2])
        if client_id not in self._homes.by_client:
            self._homes.has_ended(client_id, counter)

    def _send_rest(self, replica: Replica, record: Record, now: float) -> None:
        """A block that the lost home had for a node."""
        name, block = restored_block(record, self._broker.wall_offset, now)
        data = b"".join(block.encode(now))
        more = replica.node, block.serial, block.done, block.count, data
        if name == self._name:
            self._rest_came(replica.node, replica.store_id, (block.serial, block.done, block.count), data, now)
            return
        rest = encode_session_frame(REST_OF, "", (0, replica.store_id), more)
        sender = self._senders.get(name)
        if sender is not None:
            sender.append_session(rest, block.messages, True, now)
        adopter = self._adopters.get(name)
        if adopter is not None and (sender is None or sender.peer_store_id != adopter.store_id):
            self._relay_rest(replica, name, rest, block.messages, now)
        else:  # it is lost, too, unless it is back with its store
            self.relay_again([name], now)

    def _relay_rest(self, replica: Replica, lost: str, rest: bytes, messages: int, now: float) -> None:
        """The block was for a home that is lost, too, and whose node has another store: its adopter gets it as REST_OF, and
        knows it by its number, for the node of the block may be back and bring it itself."""
        adopter = self._adopters[lost]
        sender = self._senders.get(adopter.name)
        if adopter.name == self._name:
            self._apply(replica.node, lost, ADOPTED_SESSIONS, rest, 0, now)
        elif sender is not None:
            frame = encode_session_frame(RELAY, "", (0, replica.store_id), (lost, ADOPTED_SESSIONS, rest, 0))
            sender.append_session(frame, messages, True, now)

    def _note_adopter(self, name: str, store_id: str, more: Record) -> None:
        """The node has adopted the sessions of the home of ADOPTED."""
        lost = checked(str, more[0])
        known = self._adopters.pop(lost, None)
        adopter = self._adopters[lost] = Adopter(name, store_id, more)
        if known is not None and known.store_id == store_id:
            adopter.positions = known.positions
        if len(self._adopters) > ADOPTERS_MAX:
            del self._adopters[next(iter(self._adopters))]

    # --- at the other nodes ---

    def receive(self, name: str, frame: SessionFrame, now: float) -> None:
        """ADOPTED, RELAY, RELAYED or REST_OF came from the node. Raises FrameError, TypeError and ValueError."""
        store_id = frame.epoch[1]
        if frame.operation == ADOPTED:
            sender = self._senders.get(name)
            self._note_adopter(name, store_id, frame.more)
            if sender is not None:
                is_back = self._relay(frame.more, sender, now)
                sender.append_session(encode_session_frame(RELAYED, "", (0, store_id), (is_back,)), 0, False, now)
        elif frame.operation == RELAY:
            home, sessions, data, below = frame.more
            self._apply(name, checked(str, home), count_of(sessions), checked(bytes, data), count_of(below), now)
        elif frame.operation == RELAYED:
            self.handed_over(name, store_id, bool(frame.more and frame.more[0]), now)
        else:
            home, serial, done, count, data = frame.more
            block = count_of(serial), count_of(done), count_of(count)
            self._rest_came(checked(str, home), store_id, block, checked(bytes, data), now)

    def _relay(self, more: Record, adopter: PeerSender | None, now: float) -> bool:
        """Send what this node has for a home that is not reached to its adopter; None for this node itself. Returns whether it
        is reached, and gets that itself. more: the home, how far its store had done which stores (store id, serial, done,
        node), and above which record number it has sessions that were not adopted."""
        home, below = checked(str, more[0]), count_of(more[2])
        position = done_of(more, self._broker.identity.store_id, self._name)
        sender = self._senders.get(home)
        if sender is not None and sender.reachable and not sender.is_living:  # nothing relays it when its stream ends
            sender.connection_lost(sender.attempt, "it has failed, and another node has adopted its sessions", now)
        if sender is None or sender.reachable:
            adopted = self._adopters.get(home)
            return sender is not None and adopted is not None and adopted.store_id == sender.peer_store_id
        kept = set(sender.kept)
        self._tree.group_copies.given_up(sender, now)
        for block in take_promised(sender.outbox, self._relayed.get(home, 0), now):
            if not behind(block, position, now):
                continue
            data = b"".join(block.encode(now))
            choose_again(data, sender, kept, self._tree.group_copies, now)
            epoch = 0, self._broker.identity.store_id
            numbered = encode_session_frame(BLOCK, "", epoch, (block.serial, block.done, block.count)) + data
            if adopter is None:
                self._apply(self._name, home, ADOPTED_SESSIONS, numbered, below, now)
            else:
                frame = encode_session_frame(RELAY, "", epoch, (home, ADOPTED_SESSIONS, numbered, below))
                adopter.append_session(frame, block.messages, block.is_once, now)
            frame = encode_session_frame(RELAY, "", epoch, (home, OTHERS, numbered, below))
            sender.append_session(frame, 0, False, now)
        sender.outbox.close_block()
        self._relayed[home] = sender.mark()
        self._lost[home] = None
        return False

    def heard(self, node: str) -> None:
        self._lost.pop(node, None)

    def relay_again(self, homes: list[str], now: float) -> None:
        """A session that was adopted has gone on before this node heard where it was: what this node has published since it
        heard of the adoption waits for the lost home."""
        for home in homes:
            adopter = self._adopters.get(home)
            sender = self._senders.get(home)
            if adopter is None or sender is None or sender.peer_store_id != adopter.store_id:
                continue
            if home not in self._lost:  # it is home again
                continue
            if adopter.name == self._name:
                self._relay(adopter.more, None, now)
            elif adopter.name in self._senders:
                self._relay(adopter.more, self._senders[adopter.name], now)

    def _apply(self, name: str, home: str, sessions: int, data: bytes, below: int, now: float) -> None:
        """Deliver a block for a lost home. Raises FrameError."""
        receiver = self._receivers.by_name.get(name)
        relay = Relay(self._broker, self._sessions, name, home, sessions, receiver, self._adopters, below)
        relay.apply_whole(data, now)
        self.relayed += relay.delivered

    def handed_over(self, name: str, store_id: str, is_back: bool, now: float) -> None:
        """The node has relayed all that it had for that home. is_back: as of RelayedAll.add."""
        self._relayed_all.add(name, store_id, is_back)
        self._relayed_all.go_on(now)
        for departings in self._moves.departing.values():
            for departing in departings:
                departing.relayed_all(name, store_id, now)

    def _rest_came(self, home: str, store_id: str, block: tuple[int, int, int], data: bytes, now: float) -> None:
        """A block that a lost home had for this node, from the one that has adopted its sessions. block: its serial number, how
        many of its events had been done before, and how many there are. Raises FrameError."""
        serial, done, count = block
        receiver = self._receivers.by_name.get(home)
        position = self._positions.of(home, store_id)
        if receiver is None:
            return
        known = position.take(serial, done, count)
        if known < count:
            first = 0 if done or known else self._positions.next_record()
            Relay(self._broker, self._sessions, home, home, ALL, receiver, self._adopters).apply(data, known, now)
            position.done_whole(serial)
            self._positions.came_whole(position, serial, first)
            self._positions.changed(position)
