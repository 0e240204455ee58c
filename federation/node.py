"""One federated node without I/O: a broker, its place in the membership, and the event streams with each other node.

What the simulator runs and what the plugin puts shells around. Serf's events come in through `member_events`; streams
through the senders (`senders`, `outlets`) and `receivers`; time through `next_timeout` and `handle_timeout`. After every call
the broker may have output, and `outlets` senders with blocks.
"""

# compiled with mypyc
from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from broker.broker import Broker
from broker.message import NEVER
from broker.store.journal import Journal, StoredRecord
from broker.store.kinds import INTEREST, OUTBOX, POSITION
from broker.store.restoring import hold_wills
from federation.broker_state import BrokerState
from federation.node_events import BadAddress, NoWay, SendsNothing
from federation.replication.copies import ADOPTED_SECONDS_MAX, Copies
from federation.serf.events import (
    Event,
    Member,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberStatus,
    MemberUpdate,
)
from federation.sessions.drain import Drain
from federation.sessions.heard import SessionsHeard
from federation.sessions.news import Told
from federation.sessions.sessions import Sessions
from federation.sessions.stored import keep_here
from federation.sessions.switches import Nodes
from federation.settings import FederationSettings
from federation.stream.block import Block, restored_block
from federation.stream.counters import StreamCounters
from federation.stream.effects import SessionEvents
from federation.stream.outbox import Outbox
from federation.stream.positions import Positions
from federation.stream.promises import Promises
from federation.stream.receiver import MISSING_SECONDS_MAX, PeerReceiver
from federation.stream.receivers import Receivers
from federation.stream.retained_versions import RetainedVersions
from federation.stream.sender import Outlets, PeerSender
from federation.stream.serials import Serials
from federation.stream.state import State
from federation.stream.stored_interest import InterestPage, StoredInterest
from federation.stream.tree import FederationTree
from federation.tags import (
    DRAINING_OVER,
    EXTENSION_DIRECT,
    EXTENSION_FIELDS,
    EXTENSION_SESSIONS,
    EXTENSION_STAMPS,
    TAG_DRAINING,
    TAG_EXTENSIONS,
    TAG_PROCESS,
    TAG_STORE,
)
from federation.trust import Reach, reach_of
from federation.worker_names import WorkerNames

STORE_ID_CHARS_MAX: Final = 64  # of a tag that are shown


class Node(Nodes):
    """`senders` and `counters` are by the name of the other node; `counters` stay until it is reaped. `tls_members` are those
    that this node reaches with TLS, until they are reaped, and other workers of the node `worker_of`. `siblings` are those by
    name, with the paths of their Unix sockets as addresses: `unix:///PATH`. `ending` do not come back when they leave."""

    def __init__(self, name: str, broker: Broker, settings: FederationSettings, rng: random.Random) -> None:
        self.name = name
        self.broker = broker
        self.settings = settings
        self.versions = RetainedVersions(broker, settings.retained_tombstone_age)
        self.tree = FederationTree(broker.router, name=name)
        self.promises: Promises | None = None
        self._journal: Journal | None = None
        self._serials = Serials(0)
        self._positions = Positions(None)
        self._unheard_until = NEVER
        self._joins_others = False
        self.outlets = Outlets()
        self.senders: dict[str, PeerSender] = {}
        self.receivers = Receivers()
        self.counters: dict[str, StreamCounters] = {}
        self.tls_members: dict[str, None] = {}
        self.siblings: dict[str, str] = {}
        self.ending: frozenset[str] = frozenset()
        self.worker_of = ""
        self.knows_ending = False  # workers that are not among `siblings` have ended, and given all away
        self.has_left = False
        self._sessions: dict[str, tuple[str, int]] = {}  # of nodes that are no members any more, until they are reaped
        self._rng = rng
        self._state = BrokerState(broker, self.tree, self.versions)
        self.copies: Copies | None = None
        self.sessions: Sessions | None = None
        self.drain: Drain | None = None
        if settings.session_scope == "federation":
            self.sessions = Sessions(name, broker, self.senders, settings.claim_wait, self)
            broker.ownership = self.sessions
            self.drain = Drain(broker, self.sessions, self.senders)
        self._told = Told() if self.sessions is None else self.sessions.homes
        self._heard = SessionEvents() if self.sessions is None else SessionsHeard(self.sessions)
        self._held_back: dict[str, Member] = {}  # members with other stores than before (Copies.holds_back)
        self._given_up_at: dict[str, float] = {}  # failed members: when they are given up
        self._events: list[BadAddress | NoWay | SendsNothing] = []
        broker.forwarder = self.tree
        for share_name, topic_filter in broker.local_interest():  # of sessions that a store has brought
            self.tree.local_digest.change(share_name, topic_filter, True)

    # --- the store ---

    def begin(self, now: float, has_seeds: bool, joins_others: bool = False) -> None:
        """The store of the broker is open, or there is none: take back what it keeps for other nodes. Before the first member.
        has_seeds: there are nodes to join; joins_others: not only other workers of this one. Raises ValueError or TypeError for
        a record that no node has written."""
        broker = self.broker
        self._serials = Serials(broker.identity.starts)
        self.versions.begin()
        journal = broker.commits.journal
        names = WorkerNames(journal, broker.identity, self.worker_of)
        if self.sessions is not None:
            self.sessions.begin()
        else:
            keep_here(broker)
        if journal is not None:
            self._restore(journal, now)
        names.keep()
        if self.knows_ending:
            for name in names.strangers(self.senders, self.siblings):
                self._remove(name, "the node has no such worker any more")
        if has_seeds or self.senders:
            until = now + self.settings.startup_wait
            if self.sessions is not None:
                self.sessions.homes.starting_until = until
                self.sessions.moves.asked_keepers.begin(self.sessions.lost, now)
            if journal is not None:
                hold_wills(broker, until)
                self._unheard_until = until
                self._joins_others = joins_others
                broker.unheard = {}

    def _restore(self, journal: Journal, now: float) -> None:
        broker = self.broker
        self._journal = journal
        self.receivers.store_id = broker.identity.store_id
        self._positions = Positions(journal)
        self.versions.restore(journal)
        self.promises = Promises(broker.commits, self.settings.suback_wait == "peers")
        stored = StoredInterest(journal)
        pages: list[InterestPage] = []
        blocks: list[tuple[int, int, str, Block]] = []
        for number, content in list(journal.kept.items()):
            if not isinstance(content, StoredRecord):
                continue
            kind = content.stored[0]
            if kind == POSITION:
                self._positions.restore(number, content)
            elif kind == INTEREST:
                pages.append(stored.restore(number, content))
            elif kind == OUTBOX:
                name, block = restored_block(content.stored, broker.wall_offset, now)
                blocks.append((block.serial, number, name, block))
        for page in pages:
            self.added(page.node, now)
            for (share_name, topic_filter), note in page.filters.items():
                if not self.tree.add_interest(page.node, share_name, topic_filter, note):
                    raise ValueError(f"{page.node} cannot want the filter {topic_filter!r:.50}")
        self.tree.stored = stored
        blocks.sort()
        for _, number, name, block in blocks:
            journal.kept[number] = block
            self.added(name, now).outbox.restore(block, number)
        if self.sessions is not None:
            for name in self.sessions.moves.nodes():
                self.added(name, now)
            self.sessions.moves.begin(now)
        self._remove(self.name, "it is this node by now")
        if self.sessions is not None:
            self.copies = Copies(self.name, broker, journal, self.settings)
            self.copies.begin(self.tree, self.receivers, self._positions, self.sessions)

    def added(self, name: str, now: float) -> PeerSender:
        """The sender to a member of before the start, or of other nodes, which may be away."""
        sender = self.senders.get(name)
        if sender is None:
            sender = self._add(name, True, True, now)
            sender.moves_sessions = sender.knows_adoptions = self.sessions is not None
            sender.is_living = False
            self._given_up_at[name] = now + self.settings.outbox_age_max
        return sender

    def turn_ended(self, now: float) -> bool:
        """The output of clients is written, and the blocks to other nodes. True when there is more output."""
        is_more = self.copies is not None and self.copies.turn_ended(now)
        for member in list(self._held_back.values()):
            self._member_there(member, now)
        if self.sessions is not None and self.sessions.active:
            is_more = self.sessions.turn_ended(now) or is_more
        if self.promises is None:
            return is_more
        if self._unheard_until != NEVER and self._has_heard(now):
            self._unheard_until = NEVER
            self.broker.has_heard()
            is_more = True
        return self.promises.turn_ended(now) or is_more

    def _has_heard(self, now: float) -> bool:
        """Return whether the interest of all members is known, since this start, or was waited for long enough."""
        is_known = self._knows_others() and self.receivers.know_interest(self.receivers.by_name)
        return is_known or now >= self._heard_by()

    def _knows_others(self) -> bool:
        """Workers of this node, which may have lost their stores with it, do not count where there are others to join."""
        names = self.receivers.by_name.keys()
        return bool(names - self.siblings.keys() if self._joins_others else names)

    def _heard_by(self) -> float:
        """Return how long it is waited for."""
        # Others let a new store in when the sessions of its node's former one are adopted.
        identity = self.broker.identity
        is_new = identity.starts == 1 or bool(identity.formerly)
        return self._unheard_until + (ADOPTED_SECONDS_MAX if is_new and self._knows_others() else 0.0)

    @property
    def positions_forgotten(self) -> int:
        return self._positions.forgotten

    # --- membership ---

    def member_events(self, events: Iterable[Event], now: float) -> None:
        """Return what Serf tells."""
        for event in events:
            if isinstance(event, (MemberJoin, MemberUpdate)):
                self._member_there(event.member, now)
            elif isinstance(event, MemberFailed):
                self._is_away(event.member.name, now)
            elif isinstance(event, MemberLeave) and self._may_return(event):
                self._has_left(event.member.name, now)
            elif isinstance(event, (MemberLeave, MemberReap)):
                self._remove(event.member.name, "it left")
                if event.member.name in self.ending and self.sessions is not None:
                    self.sessions.siblings.pop(event.member.name, None)  # nobody waits for it any more
                if isinstance(event, MemberReap):
                    self.counters.pop(event.member.name, None)
                    self._sessions.pop(event.member.name, None)
                    self.tls_members.pop(event.member.name, None)

    def _has_left(self, name: str, now: float) -> None:
        sender = self.senders[name]
        sender.stop("it left")
        receiver = self.receivers.by_name.get(name)
        if receiver is not None:
            receiver.end(now)
        if sender.is_living:  # otherwise it is away since it failed
            self._is_away(name, now)

    def _is_away(self, name: str, now: float) -> None:
        sender = self.senders.get(name)
        if sender is not None:
            self._given_up_at[name] = now + self.settings.outbox_age_max
            sender.is_living = False
            self.tree.group_copies.is_away(sender, now)
            self._members_changed()

    def _members_changed(self) -> None:
        """Others live than before: their clocks are those that count."""
        living = {name: None for name, sender in self.senders.items() if sender.is_living}
        self.versions.cluster.set_members(living)
        if self.copies is not None:
            self.copies.members_changed(self.broker.now)

    def _may_return(self, event: MemberLeave) -> bool:
        """Return whether the member, which left, has durable sessions that are promised what is published meanwhile: a program
        that is updated leaves, too, maybe after it was taken for failed, and a worker in `ending` whose node stops before."""
        member = event.member
        sender = self.senders.get(member.name)
        is_over = event.is_forced or member.tags.get(TAG_DRAINING) == DRAINING_OVER
        if is_over or sender is None or not member.tags.get(TAG_STORE):
            return False
        return self.sessions is None or member.name not in self.ending or self.sessions.answers.has_for(sender)

    def forget(self, name: str) -> bool:
        """Give up what the store keeps for a node that has not been a member since the start. False where there is nothing."""
        is_kept = name in self.senders and not self.senders[name].addr
        if is_kept:
            self._remove(name, "it was forced to leave")
        return is_kept

    def left(self) -> None:
        """This node has left the federation: it serves its own clients only, until `joined`."""
        self.has_left = True
        for name in list(self.senders):
            self._remove(name, "this node left")

    def stopped(self) -> None:
        """The process ends. What the store keeps for other nodes stays there."""
        if self._journal is None:
            self.left()
            return
        self.has_left = True
        if self.copies is not None:
            self.copies.replication.stop(self.broker.now)
        for sender in self.senders.values():
            sender.stop("this node stops")
        for receiver in self.receivers.by_name.values():
            receiver.end(self.broker.now)
        self.receivers.by_name.clear()

    def joined(self, members: Iterable[Member], now: float) -> None:
        """This node is in the federation again, with these members."""
        self.has_left = False
        for member in members:
            # Also one that is said to be leaving: it may object, and that is no event.
            self._member_there(member, now)

    def _member_there(self, member: Member, now: float) -> None:
        name = member.name
        if name == self.name or self.has_left or member.status not in (MemberStatus.ALIVE, MemberStatus.LEAVING):
            return
        path = self.siblings.get(name, "")
        if path and self.sessions is not None:
            self.sessions.siblings[name] = path
        reach = Reach(path) if path else reach_of(member.tags, self.settings.tls is not None, self.settings.require_tls)
        if reach.bad_address:
            self._events.append(BadAddress(name, reach.bad_address))
        if reach.fault:
            self._events.append(NoWay(name, reach.fault))
        if reach.is_tls or path:
            self.tls_members[name] = None
        else:
            self.tls_members.pop(name, None)
        if not reach.addr:
            # Without a fault it is a member of the gossip only, such as a serf agent.
            self._remove(name, reach.fault or "it takes no event streams")
            return
        extensions = member.tags.get(TAG_EXTENSIONS, "").split(",") if self.settings.batch else []
        extended = EXTENSION_FIELDS in extensions
        is_direct = EXTENSION_DIRECT in extensions
        moves_sessions = self.sessions is not None and EXTENSION_SESSIONS in extensions
        sender = self.senders.get(name)
        store_id = member.tags.get(TAG_STORE, "")[:STORE_ID_CHARS_MAX]
        if sender is not None and self.copies is not None and self.copies.holds_back(sender, store_id, now):
            self._held_back[name] = member
            if sender.is_living:
                sender.stop("it has another store by now")
                self._is_away(name, now)
            return
        self._held_back.pop(name, None)
        self._given_up_at.pop(name, None)
        is_back = sender is None or not sender.is_living
        if sender is None:
            sender = self._add(name, extended, is_direct, now)
        elif name not in self.receivers.by_name:  # it was given up
            sender.outbox.bytes_max = self.settings.outbox_bytes_max
            self._add_receiver(name, extended, now)
        sender.set_extended(extended, is_direct, EXTENSION_STAMPS in extensions, moves_sessions)
        self.tree.group_copies.process_told(sender, member.tags.get(TAG_PROCESS, "") if extended else "", now)
        if self.sessions is not None and sender.peer_store_id not in ("", store_id):
            self.sessions.moves.store_replaced(name)
        sender.peer_store_id = self.receivers.expected[name] = store_id
        sender.copies_told(member.tags, extensions if moves_sessions else [], bool(path))
        sender.is_living = True
        if is_back:
            sender.living_since = now
        if self.sessions is not None:
            self.sessions.peer_known(name, sender, now)
        if self.drain is not None:
            self.drain.member_told(name, member.tags)
        self.receivers.by_name[name].extended = extended
        sender.choice.is_tls = reach.is_tls
        sender.choice.is_go_only = reach.is_go_only
        sender.connect(reach.addr, now)
        self._members_changed()

    def _add(self, name: str, extended: bool, is_direct: bool, now: float) -> PeerSender:
        counters = self.counters.get(name)
        if counters is None:
            counters = self.counters[name] = StreamCounters()
        settings = self.settings
        drops_oldest = settings.outbox_policy == "drop_oldest"
        outbox = Outbox(
            settings.outbox_bytes_max,
            settings.outbox_age_max,
            drops_oldest,
            counters,
            name,
            self._journal,
            self._serials,
        )
        store_id = self.broker.identity.store_id
        sender = PeerSender(
            name, extended, self._state, self.outlets, outbox, self._rng, store_id, self.promises, self._told
        )
        sender.is_direct = is_direct
        if self.sessions is not None and not self.senders:
            self.sessions.homes.meets_others()
        self.senders[name] = sender
        self.tree.add_node(sender)
        self._add_receiver(name, extended, now)
        return sender

    def _add_receiver(self, name: str, extended: bool, now: float) -> None:
        counters = self.counters[name]
        receiver = PeerReceiver(name, self.tree, self.broker.router, counters, self.versions, now, self._positions)
        # It may have given up less than this node did: what it sent and this node did before is not done again.
        session_id, next_event_id = self._sessions.pop(name, ("", 0))
        receiver.begin_anew(session_id, next_event_id)
        receiver.extended = extended
        receiver.sessions = self._heard
        self.receivers.by_name[name] = receiver

    def _remove(self, name: str, reason: str) -> None:
        """It is no member any more."""
        if name in self.senders:
            self._give_up(name, reason)
            del self.senders[name]
            self.receivers.expected.pop(name, None)
            if self.drain is not None:
                self.drain.member_removed(name)
            self._members_changed()
            self.tree.remove_node(name)

    def _give_up(self, name: str, reason: str) -> None:
        """Drop what waits for the member. Its interest stays: what is published until its return is dropped and counted."""
        self._given_up_at.pop(name, None)
        sender = self.senders[name]
        sender.stop(reason)
        self.tree.group_copies.given_up(sender, self.broker.now)
        sender.forget()
        sender.outbox.bytes_max = 0
        if self.sessions is not None:
            self.sessions.peer_removed(name, self.broker.now)
        receiver = self.receivers.by_name.pop(name, None)
        if receiver is not None:  # the process does not end
            receiver.end(self.broker.now)
            self._sessions[name] = receiver.session_done()

    # --- time and events ---

    def next_timeout(self, gathers: bool = True) -> float:
        """Return when to call handle_timeout; NEVER for not at all. Not of the broker. gathers: for blocks that do, too."""
        at = 0.0 if self.outlets.ready else NEVER
        for sender in self.senders.values():
            at = min(at, sender.next_timeout(), sender.gathered_at() if gathers else NEVER)
        for receiver in self.receivers.by_name.values():
            at = min(at, receiver.next_timeout())
        at = min(at, self.tree.group_copies.again_at, min(self._given_up_at.values(), default=NEVER))
        if self.sessions is not None:
            at = min(at, self.sessions.next_timeout())
        if self.drain is not None:
            at = min(at, self.drain.next_timeout())
        if self.copies is not None:
            at = min(at, self.copies.next_timeout())
        if self.promises is not None:
            at = min(at, self.promises.next_timeout(), self._heard_by())
        return at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. Senders that may have blocks now stand in `outlets`."""
        for name in [name for name, at in self._given_up_at.items() if at <= now]:
            reason = f"it was away for more than {self.settings.outbox_age_max:g} s"
            if self.senders[name].addr:
                self._give_up(name, reason)
            else:  # it has not been a member since the start
                self._remove(name, reason)
        if self.sessions is not None:
            self.sessions.handle_timeout(now)
        if self.drain is not None:
            self.drain.handle_timeout(now)
        if self.copies is not None:
            self.copies.handle_timeout(now)
        self.tree.group_copies.handle_timeout(now)
        if self.promises is not None:
            self.promises.handle_timeout(now)
        for sender in self.senders.values():
            if min(sender.next_timeout(), sender.gathered_at()) <= now:
                sender.handle_timeout(now)
                sender.want_attention()
        for name, receiver in self.receivers.by_name.items():
            receiver.handle_timeout(now)
            if receiver.take_missing(now) and self.senders[name].state is State.STREAMING:
                self._events.append(SendsNothing(name, MISSING_SECONDS_MAX))

    def twin(self) -> str:
        """Return the name of a living node with a copy of this one's store, or "": of the two the greater name has to go."""
        sender = self.senders.get(self.receivers.twin)
        return sender.name if sender is not None and sender.is_living else ""

    def take_events(self) -> list[BadAddress | NoWay | SendsNothing]:
        """Return what should be logged."""
        events, self._events = self._events, []
        return events
