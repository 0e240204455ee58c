"""All that a node has to do with copies of stores: those of its own on others, those of others here, and lost homes."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.codec.reason_codes import SERVER_BUSY
from broker.context import STOOD_STILL
from broker.message import NEVER
from broker.session.will import StoredWill
from broker.store.journal import Journal, checked
from broker.store.shapes import count_of
from federation.replication.adoption import Adoptions
from federation.replication.placement import Candidate
from federation.replication.replica import Replica
from federation.replication.replicas import Replicas
from federation.replication.replication import Replication
from federation.sessions.lost_homes import LostHomes
from federation.sessions.sessions import Sessions
from federation.sessions.wire import ADOPTED, KEEPERS, SessionFrame, encode_session_frame
from federation.settings import FederationSettings
from federation.stream.positions import Positions
from federation.stream.receivers import Receivers
from federation.stream.sender import PeerSender
from federation.stream.tree import FederationTree

LOOK_SECONDS: Final = 1.0  # between two looks for homes and keepers that are away
ADOPTED_SECONDS_MAX: Final = (
    15.0  # a node with another store is not let in for so long, until its former sessions are adopted
)
BEAT_SECONDS: Final = 1.0  # between two looks at the clock
STILL_SECONDS: Final = 5.0  # sooner than others take a node for failed, and may adopt its sessions
REPLACE_SECONDS: Final = 10.0  # a keeper is away so long until another one takes its place


class Copies(LostHomes):
    """replication  this node's store on others
    replicas     those of others here
    adoptions    those that become this node's own sessions
    adopt_after  seconds that a home is away, until its sessions are adopted
    times_still  how often this process stood still so long that others may have adopted its sessions
    """

    def __init__(self, name: str, broker: Broker, journal: Journal, settings: FederationSettings) -> None:
        replication = settings.replication
        self.adopt_after = replication.adopt_after
        self.replication = Replication(name, broker, journal, replication, settings.zone, broker.rng)
        self._stabilization_time = settings.stabilization_time
        self.replicas = Replicas()
        self._name = name
        self._broker = broker
        self._adopt_at: dict[str, float] = {}  # of homes that are away and whose replica is here, by store id
        self._missed_since: dict[str, float] = {}  # of keepers, by name
        self._asked_until: dict[str, float] = {}  # keepers that are, or were, missed, by name; NEVER while they are
        self._kept_by: dict[str, list[str]] = {}  # names of the keepers of other stores, by store id
        self._replaced: dict[str, float] = {}  # lost stores whose nodes have other ones, until when these wait
        # By member: the version of the list of keepers that it was told, and which process of it.
        self._told: dict[str, tuple[int, str]] = {}
        self._look_at = NEVER
        self._startup_wait = settings.startup_wait
        self._beat_at = broker.now
        self.times_still = 0
        self.replicas.restore(journal)
        self.replication.restore()
        broker.commits.replicator = self.replication

    def begin(self, tree: FederationTree, receivers: Receivers, positions: Positions, sessions: Sessions) -> None:
        """The node's other parts are there."""
        senders = self._senders = tree.members
        self._receivers = receivers
        self._sessions = sessions
        sessions.moves.relayed.positions = positions
        self.adoptions = Adoptions(
            self._name, self._broker, self.replicas, receivers, senders, positions, tree, sessions
        )
        sessions.lost = self
        now = self._broker.now
        for replica in self.replicas.by_store.values():  # the oldest first
            sessions.moves.switches.meet((replica.node,), now)
            sender = senders.get(replica.node)
            if sender is not None:
                if sender.peer_store_id:  # it was back with another one before this one was adopted
                    self._replaced[sender.peer_store_id] = now + ADOPTED_SECONDS_MAX
                # A home that is back with another one is lost. What that one says is not taken before messages for it are told
                # apart from those for the lost one.
                sender.peer_store_id = receivers.expected[replica.node] = replica.store_id

    # --- members ---

    def members_changed(self, now: float) -> None:
        """Others live than before, or have other stores."""
        self._choose_keepers(now)
        self._look_at = now

    def _choose_keepers(self, now: float) -> bool:
        """False while one is missed that may soon be back, or will be one when it is no longer new."""
        living: dict[str, str] = {}
        told: dict[str, None] = {}  # other workers of this node, too
        candidates: dict[str, Candidate] = {}
        has_new = False
        stores = 0
        for name, sender in self._senders.items():
            is_there = sender.is_living and sender.addr and not sender.choice.is_go_only
            if is_there and sender.peer_store_id and sender.knows_adoptions:
                told[name] = None
            if sender.peer_store_id and sender.keeps_copies:
                stores += 1
                if is_there:
                    is_new = now < sender.living_since + self._stabilization_time
                    has_new = has_new or is_new
                    living[name] = sender.peer_store_id
                    candidates[name] = Candidate(sender.peer_store_id, sender.zone, is_new, sender.node)
        self.replicas.members = living
        replication = self.replication
        missed: dict[str, float] = {}
        for name in replication.listed.names:
            if name not in living:
                missed[name] = self._missed_since.get(name, now)
        self._missed_since = missed
        self._note_missed(now)
        awaited = [name for name in missed if now < missed[name] + REPLACE_SECONDS]
        replication.choose(candidates, awaited, stores, now)
        for name, keeper in replication.keepers.items():
            if name in living:
                keeper.connect(self._senders[name].addr, self._senders[name].choice.is_tls, now)
        self._tell_others(told, now)
        return not awaited and not (has_new and len(replication.listed.names) < replication.wanted)

    def _note_missed(self, now: float) -> None:
        """Keepers that are back may have adopted this node's sessions."""
        asked = self._asked_until
        for name in self._missed_since:
            asked[name] = NEVER
        for name, until in list(asked.items()):
            sender = self._senders.get(name)
            if sender is None or until <= now:
                del asked[name]
            elif until == NEVER and sender.is_living:
                asked[name] = now + self._startup_wait

    def asked_until(self, node: str) -> float:
        if node in self.replication.listed.names:
            found = self._sessions.homes.starting_until
        else:
            found = 0.0
        until = self._asked_until.get(node, 0.0)
        return max(found, 0.0 if until == NEVER else until)

    def _tell_others(self, living: dict[str, None], now: float) -> None:
        """A member that was a keeper, and is one no more, drops its copy when it hears of it. All know who may adopt the
        sessions of this store."""
        listed = self.replication.listed
        self._told = {name: told for name, told in self._told.items() if name in living}
        for name in living:
            told = listed.version, self._senders[name].process  # a process that starts knows nothing of other stores
            if name not in listed.names and self._told.get(name) != told:
                self._told[name] = told
                epoch = listed.version, self._broker.identity.store_id
                frame = encode_session_frame(KEEPERS, "", epoch, tuple(listed.names))
                self._senders[name].append_session(frame, 0, False, now)

    def holds_back(self, sender: PeerSender, store_id: str, now: float) -> bool:
        """Return whether the member, which has another store than before, has to wait: what is here for the former one goes to
        the node that adopts its sessions, and not to a store that knows nothing of them. Nor does the new store know what the
        sessions of homes that are away subscribe to, until they are adopted here."""
        self._replaced.pop(store_id, None)  # the store is back
        lost = sender.peer_store_id
        if not lost or lost == store_id:
            return False
        if lost not in self._replaced:
            self._replaced[lost] = now + ADOPTED_SECONDS_MAX
            self._look_at = now
            for replica in self.replicas.by_store.values():
                if replica.store_id not in self.replicas.connections:
                    replica.emptied[sender.name] = None
        return now < self._replaced[lost] and (self._has_keeper(lost) or self._adopts_away(self._replaced[lost], now))

    def _adopts_away(self, until: float, now: float) -> bool:
        """Adopt the homes that are away: after `adopt_after`, or when half of the time is over that the new store waits, which
        is until `until`. They may be back sooner, and who lives has to be known. False when there are none."""
        found = False
        latest_at = until - ADOPTED_SECONDS_MAX / 2
        known_at = self._sessions.homes.starting_until
        for replica in list(self.replicas.by_store.values()):
            if replica.is_complete and self._is_away(replica) and self._is_first(replica):
                found = True
                adopt_at = self._adopt_at.setdefault(replica.store_id, now + self.adopt_after)
                if now >= max(known_at, min(adopt_at, latest_at)):
                    self.adoptions.begin(replica)
        return found

    def _has_keeper(self, store_id: str) -> bool:
        """Return whether a member has a copy. One that is away may be back soon."""
        if store_id in self.replicas.by_store:
            return True
        for name in self._kept_by.get(store_id, ()):  # noqa: SIM110 (compiled without a generator)
            if name in self._senders:
                return True
        return False

    # --- lost homes ---

    def wanted(self, client_id: str, node: str, now: float) -> None:
        for replica in list(self.replicas.by_store.values()):
            if client_id in replica.by_client and self._is_away(replica) and self._is_first(replica):
                known_at = 0.0 if self._is_replaced(replica) else self._sessions.homes.starting_until  # who lives
                if now < known_at:
                    self._adopt_at[replica.store_id] = min(self._adopt_at.get(replica.store_id, NEVER), known_at)
                    self._look_at = min(self._look_at, known_at)
                elif replica.node == node and not self._is_replaced(replica):
                    continue
                elif self._may_adopt(replica, now):
                    self.adoptions.begin(replica)
                else:  # when the other keepers are heard, or the start is over
                    self._adopt_at[replica.store_id] = now
                    self._look_at = min(self._look_at, now + LOOK_SECONDS)
        self.adoptions.take_client(client_id, now)

    def heard(self, node: str) -> None:
        self.adoptions.heard(node)

    def moved(self, homes: list[str], now: float) -> None:
        self.adoptions.relay_again(homes, now)

    def kept_alone(self) -> str:
        for replica in self.replicas.by_store.values():
            if replica.is_complete and self._is_away(replica) and self._is_first(replica):
                return replica.node
        return ""

    def _is_away(self, replica: Replica) -> bool:
        return self._is_home_away(replica.node, replica.store_id)

    def _is_home_away(self, node: str, store_id: str) -> bool:
        """Return whether the home is not reached, nor heard: it has failed, has left, or has another store by now."""
        if store_id in self._replaced:
            return True
        receiver = self._receivers.by_name.get(node)
        if receiver is not None and receiver.stream is not None and receiver.position.store_id == store_id:
            return False  # it is back, and was the first to connect
        sender = self._senders.get(node)
        return sender is None or not (sender.is_living or sender.reachable)

    def _is_living(self, replica: Replica) -> bool:
        sender = self._senders.get(replica.node)
        return sender is not None and sender.is_living

    def _is_replaced(self, replica: Replica) -> bool:
        """Return whether the home lives, with another store."""
        return replica.store_id in self._replaced

    def _is_first(self, replica: Replica) -> bool:
        """Return whether no keeper before this node lives."""
        for name in replica.names:
            if name == self._name:
                return True
            sender = self._senders.get(name)
            if sender is not None and sender.is_living and name not in replica.emptied:
                return False
        return True

    def _may_adopt(self, replica: Replica, now: float) -> bool:
        """Return whether it is this node that adopts the home. Another keeper may have done so before this process began, or
        just now: it is heard first, and says that before its interest."""
        if now < self._sessions.homes.starting_until:
            for name in replica.names:
                receiver = self._receivers.by_name.get(name)
                if name != self._name and (receiver is None or not receiver.has_interest):
                    return False
        return self._is_first(replica)

    def _look(self, now: float) -> None:
        """Adopt the sessions of homes that have been away for adopt_after, and replace keepers."""
        self._look_at = NEVER if self._choose_keepers(now) else now + LOOK_SECONDS
        for store_id, replica in list(self.replicas.by_store.items()):
            if not self._is_away(replica):
                self._adopt_at.pop(store_id, None)
                if not self._is_living(replica):  # a stream to it has not ended yet: nothing tells when it does
                    self._look_at = now + LOOK_SECONDS
                continue
            adopt_at = self._adopt_at.setdefault(store_id, now + self.adopt_after)
            # A keeper before this one that lives, and has not adopted for so long, has no copy: it has lost its disk, too.
            next_at = adopt_at + self.adopt_after
            if self._is_replaced(replica):  # before the home is let in with its new store
                next_at = min(next_at, self._replaced[store_id] - ADOPTED_SECONDS_MAX / 2)
            is_next = now >= next_at
            if is_next or ((self._is_replaced(replica) or now >= adopt_at) and self._may_adopt(replica, now)):
                self._adopt_at.pop(store_id, None)
                self.adoptions.begin(replica)
            else:
                self._look_at = now + LOOK_SECONDS

    def receive(self, name: str, frame: SessionFrame, now: float) -> None:
        if frame.operation == ADOPTED and self._broker.identity.is_or_was(frame.epoch[1]):
            self._was_adopted(count_of(frame.more[2]))
            return
        if frame.operation != KEEPERS:
            self.adoptions.receive(name, frame, now)
            if frame.operation == ADOPTED:
                self._forget_keepers(frame.epoch[1])
                copy = self.replicas.by_store.get(frame.epoch[1])
                # Another keeper has adopted the sessions. The home may be back since, and bring its store here.
                if copy is not None and (self._is_away(copy) or copy.store_id not in self.replicas.connections):
                    self._drop(copy)
            return
        names = [checked(str, keeper) for keeper in frame.more]
        sender = self._senders.get(name)
        # Just after a start this may come before the stream to the node says which store that has.
        if sender is not None and sender.peer_store_id in ("", frame.epoch[1]):
            self._kept_by[frame.epoch[1]] = names
        replica = self.replicas.by_store.get(frame.epoch[1])
        is_newer = replica is not None and replica.node == name and replica.version < frame.epoch[0]
        if replica is not None and is_newer and self._name not in names:
            self._drop(replica)

    def _forget_keepers(self, store_id: str) -> None:
        """The sessions of this store are adopted. A home that is back with it tells who its keepers are once, maybe before."""
        sender = self._sessions.homes.sender_of(store_id)
        if sender is None or self._is_home_away(sender.name, store_id):
            self._kept_by.pop(store_id, None)

    def _drop(self, replica: Replica) -> None:
        """It is another node's from now on; what was adopted of it stays."""
        self.adoptions.dropped(replica)
        self.replicas.drop(replica)

    def _was_adopted(self, below: int) -> None:
        """Another node has adopted the store of this one, up to this record: it has published the wills, too."""
        journal = self._broker.commits.journal
        if journal is None:
            return
        for number, content in list(journal.kept.items()):
            if number < below and isinstance(content, StoredWill):
                content.published_elsewhere(journal)

    # --- turns and time ---

    def turn_ended(self, now: float) -> bool:
        """True when there is more output."""
        is_more = False
        if self.adoptions.is_active():
            is_more = self.adoptions.turn_ended(now)
            for store_id in self.adoptions.ended:
                self._forget_keepers(store_id)
            self.adoptions.ended.clear()
        if self.replicas.dropped:
            self.replicas.turn_ended()
            is_more = is_more or bool(self.replicas.dropped)
        if self.replication.kept.is_changed:
            is_more = self.replication.settle() or is_more
        return is_more

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return min(self._look_at, self._beat_at, self.replication.next_timeout())

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, turn_ended."""
        if now >= self._beat_at:
            self._beat(now)
        self.replication.handle_timeout(now)
        if now >= self._look_at:
            self._look(now)

    def _beat(self, now: float) -> None:
        """A process that stands still does not see how long, until it is late here."""
        broker, receivers = self._broker, self._receivers
        if now > broker.still_at:
            self._stood_still(now)
        still_at = now + BEAT_SECONDS + STILL_SECONDS if self.replication.wanted else NEVER
        broker.still_at = receivers.still_at = still_at
        self._beat_at = now + BEAT_SECONDS

    def _stood_still(self, now: float) -> None:
        """A keeper may have gone on with the sessions of this node. What waits in the sockets of clients and nodes is theirs
        again: they have sent it elsewhere meanwhile, or send it once more. Clients are asked for as after a start."""
        self.times_still += 1
        for session in list(self._broker.sessions.values()):
            if session.records is not None and session.connection is not None:
                self._broker.close_connection(session.connection, SERVER_BUSY, STOOD_STILL, now)
        for receiver in self._receivers.by_name.values():
            stream = receiver.stream
            if stream is not None:
                receiver.close_stream(stream)
                stream.end(STOOD_STILL)
        self._sessions.homes.starting_until = now + self._startup_wait
