"""The federation tree: which other nodes want which topic filters.

It tells the router which nodes want a topic, has it forget its routes when that changes, and tells every sender which
filters are subscribed here.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.wire import STRING_BYTES_MAX, check_utf8
from broker.errors import MqttError
from broker.hooks import NO_GROUPS, Forwarder, Peer, RemoteGroup, RemoteRoute
from broker.message import Message
from broker.routing.group_copy import GroupCopy
from broker.routing.interest import members_note, members_of
from broker.routing.names import check_topic_filter, full_filter, has_wildcard
from broker.routing.router import Router
from broker.routing.strategy import hash_of
from broker.routing.trie import Trie
from federation.stream.counters import SkipReason
from federation.stream.group_copies import GroupCopies
from federation.stream.interest_digest import InterestDigest
from federation.stream.sender import PeerSender
from federation.stream.stored_interest import StoredInterest

FILTERS_MAX: Final = 1_000_000  # of one node; the tree refuses and counts further ones

Interest = tuple[bytes, bytes]
"""(share_name, topic_filter); share_name b"" when not shared."""


class RemoteEntry:
    """The federation tree's value for one topic filter: nodes with ordinary subscribers, and shared groups. There are many
    of them, most with a single node: lists, and none at all for groups, take half of the memory of dicts.

    notes   by the name of a node: which of its links want the filter (federation/links/bridging/routes.py); None for none
    """

    __slots__ = ("groups", "notes", "peers")

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.groups: dict[bytes, RemoteGroup] | None = None
        self.notes: dict[str, bytes] | None = None


class FederationTree(Forwarder):
    """Add a node before its interest. Nodes and filters keep the order in which they came. `name`: of this node.

    members      the senders to all nodes that are added, by name
    filters_max  of one node
    local_digest of the interest of this node
    stored       keeps the interest in the store, None without one
    group_copies  those whose receivers have gone
    """

    def __init__(self, router: Router, filters_max: int = FILTERS_MAX, name: str = "") -> None:
        router.context.node_hash = hash_of(name.encode())
        self._router = router
        self._filters_max = filters_max
        self.stored: StoredInterest | None = None
        self.group_copies = GroupCopies(router)
        self._trie = Trie()
        self.members: dict[str, PeerSender] = {}
        self._peers: list[Peer] = []
        self._interest: dict[str, dict[Interest, bytes]] = {}  # with the note of each
        self._digests: dict[str, InterestDigest] = {}  # of these
        self.local_digest = InterestDigest()

    # --- the router's side ---

    def interest_added(self, share_name: bytes, topic_filter: bytes) -> None:
        self.local_digest.change(share_name, topic_filter, True)
        for sender in self.members.values():
            sender.interest_changed(share_name, topic_filter, True)

    def interest_removed(self, share_name: bytes, topic_filter: bytes) -> None:
        self.local_digest.change(share_name, topic_filter, False)
        for sender in self.members.values():
            sender.interest_changed(share_name, topic_filter, False)

    def note_changed(self, share_name: bytes, topic_filter: bytes) -> None:
        for sender in self.members.values():
            sender.note_changed(share_name, topic_filter)

    def local_note(self, share_name: bytes, topic_filter: bytes) -> bytes:
        """Return what the interest of this node in a filter says along: about links, or the number of members."""
        context = self._router.context
        if share_name:
            return members_note(context, self._router.tree, share_name, topic_filter)
        return context.interest_note(share_name, topic_filter)

    def remote_interest(self) -> list[tuple[str, bytes, bytes, bytes]]:
        found: list[tuple[str, bytes, bytes, bytes]] = []
        for name, known in self._interest.items():
            for (share_name, topic_filter), note in known.items():
                found.append((name, share_name, topic_filter, note))
        return found

    def route(self, topic: bytes) -> RemoteRoute | None:
        peers: dict[str, Peer] = {}
        notes: list[tuple[Peer, bytes]] = []
        groups: list[RemoteGroup] = []
        for value in self._trie.match(topic):
            assert isinstance(value, RemoteEntry)
            for peer in value.peers:
                peers[peer.name] = peer
            if value.groups is not None:
                groups.extend(value.groups.values())
            if value.notes is not None:
                for name, note in value.notes.items():
                    notes.append((self.members[name], note))
        if not peers and not groups:
            return None
        return RemoteRoute(list(peers.values()), groups, tuple(notes))

    def has_members(self, share_name: bytes, topic_filter: bytes) -> bool:
        entry = self._trie.get(topic_filter)
        return isinstance(entry, RemoteEntry) and entry.groups is not None and share_name in entry.groups

    def adopt(self, copy: GroupCopy, message: Message, now: float) -> bool:
        return self.group_copies.adopt(copy, message, now)

    def peers(self) -> list[Peer]:
        return self._peers

    # --- nodes ---

    def add_node(self, sender: PeerSender) -> None:
        assert sender.name not in self.members
        self.members[sender.name] = sender
        self._interest[sender.name] = {}
        self._digests[sender.name] = InterestDigest()
        self._peers = list(self.members.values())
        if self.stored is not None:
            self.stored.meets(sender.name)

    def remove_node(self, name: str) -> None:
        """Forget the node and its interest."""
        self.replace_interest(name, {})
        if self.stored is not None:
            self.stored.forget(name)
        del self._interest[name]
        del self._digests[name]
        del self.members[name]
        self._peers = list(self.members.values())

    def interest_of(self, name: str) -> list[Interest]:
        """Return what one node wants, in the order in which it came."""
        return list(self._interest[name])

    def tell(self, name: str, message: Message, now: float) -> None:
        """Send a message to one node, whatever it wants."""
        self.members[name].forward(message, NO_GROUPS, now)

    # --- interest of other nodes ---

    def add_interest(self, name: str, share_name: bytes, topic_filter: bytes, note: bytes = b"") -> bool:
        """False for a filter that is refused, and counted: it is not valid, or the node has `filters_max` already. For a
        filter that is there: other links may want it."""
        sender = self.members[name]
        known = self._interest[name]
        key = (share_name, topic_filter)
        if key in known:
            if share_name:
                self._tell_members(sender, key, note)
            elif known[key] != note:
                known[key] = note
                if self.stored is not None:
                    self.stored.set(name, key, note)
                self._change_note(name, topic_filter, note)
            return True
        try:
            check_interest(share_name, topic_filter)
        except MqttError:
            sender.counters.drop(SkipReason.FILTER, 1)
            return False
        if len(known) >= self._filters_max:
            sender.counters.drop(SkipReason.FILTERS_FULL, 1)
            return False
        kept = b"" if share_name else note
        known[key] = kept
        self._digests[name].change(share_name, topic_filter, True)
        if self.stored is not None:
            self.stored.set(name, key, kept)
        entry = self._put(sender, share_name, topic_filter)
        if share_name:
            self._tell_members(sender, key, note)
            note = b""
        elif note:
            _set_note(entry, name, note)
        self._forget(topic_filter)
        observer = self._router.context.interest_observer
        if observer is not None:
            observer.interest_added(name, share_name, topic_filter, note)
        return True

    def _tell_members(self, sender: PeerSender, key: Interest, note: bytes) -> None:
        """A node tells how many members of a group it has. The store does not keep that: the node tells it again."""
        entry = self._trie.get(key[1])
        assert isinstance(entry, RemoteEntry)
        assert entry.groups is not None
        entry.groups[key[0]].tell_members(sender, members_of(note))

    def _change_note(self, name: str, topic_filter: bytes, note: bytes) -> None:
        """Other links of a node want a filter than before."""
        entry = self._trie.get(topic_filter)
        assert isinstance(entry, RemoteEntry)
        _set_note(entry, name, note)
        self._forget(topic_filter)
        observer = self._router.context.interest_observer
        if observer is not None:
            observer.note_changed(name, topic_filter, note)

    def remove_interest(self, name: str, share_name: bytes, topic_filter: bytes) -> None:
        """A filter that the node does not have is no error: a full state may have removed it already."""
        known = self._interest[name]
        key = (share_name, topic_filter)
        if key not in known:
            return
        del known[key]
        self._digests[name].change(share_name, topic_filter, False)
        if self.stored is not None:
            self.stored.remove(name, key)
        self._take(self.members[name], share_name, topic_filter)
        self._forget(topic_filter)
        observer = self._router.context.interest_observer
        if observer is not None:
            observer.interest_removed(name, share_name, topic_filter)

    def replace_interest(self, name: str, wanted: dict[Interest, bytes]) -> None:
        """Remove what is not in `wanted`, then add what is missing, with its note. A filter that stays keeps its route
        throughout."""
        for share_name, topic_filter in list(self._interest[name]):
            if (share_name, topic_filter) not in wanted:
                self.remove_interest(name, share_name, topic_filter)
        for (share_name, topic_filter), note in wanted.items():  # also filters that had no room before
            self.add_interest(name, share_name, topic_filter, note)

    def digest_of(self, name: str) -> bytes:
        """The digest of what one node wants, as it is known here."""
        return self._digests[name].encode()

    def is_full(self, name: str) -> bool:
        return len(self._interest[name]) >= self._filters_max

    def _put(self, sender: PeerSender, share_name: bytes, topic_filter: bytes) -> RemoteEntry:
        value = self._trie.get(topic_filter)
        if value is None:
            entry = RemoteEntry()
            self._trie.set(topic_filter, entry)
        else:
            assert isinstance(value, RemoteEntry)
            entry = value
        if not share_name:
            entry.peers.append(sender)
            return entry
        if entry.groups is None:
            entry.groups = {}
        group = entry.groups.get(share_name)
        if group is None:
            entry.groups[share_name] = RemoteGroup(share_name, topic_filter, [sender])
        else:
            group.add(sender)
        return entry

    def _take(self, sender: PeerSender, share_name: bytes, topic_filter: bytes) -> None:
        entry = self._trie.get(topic_filter)
        assert isinstance(entry, RemoteEntry)
        if not share_name:
            entry.peers.remove(sender)
            _set_note(entry, sender.name, b"")
        else:
            assert entry.groups is not None
            group = entry.groups[share_name]
            group.remove(sender)
            if not group.peers:
                del entry.groups[share_name]
                if not entry.groups:
                    entry.groups = None
        if not entry.peers and entry.groups is None:
            self._trie.delete(topic_filter)

    def _forget(self, topic_filter: bytes) -> None:
        if has_wildcard(topic_filter):
            self._router.forget_routes()
        else:
            self._router.forget_topic(topic_filter)


def _set_note(entry: RemoteEntry, name: str, note: bytes) -> None:
    if note:
        if entry.notes is None:
            entry.notes = {}
        entry.notes[name] = note
    elif entry.notes is not None:
        entry.notes.pop(name, None)
        if not entry.notes:
            entry.notes = None


def check_interest(share_name: bytes, topic_filter: bytes) -> None:
    """Raise MqttError for what no client could subscribe to."""
    if not share_name:
        check_topic_filter(topic_filter)
        return
    check_utf8(share_name)
    if b"/" in share_name or len(share_name) > STRING_BYTES_MAX:
        raise MqttError(0x8F, "share name with a slash [MQTT-4.8.2-2]")
    check_topic_filter(full_filter(share_name, topic_filter))
