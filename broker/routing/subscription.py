"""Subscriptions, and the entries of the local tree (Trie) that hold them by filter."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import SubscribeFilter
from broker.feeds import Feed
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.strategy import hash_of
from broker.routing.subscriber import Subscriber
from broker.routing.trie import Trie


class Subscription(GroupMember):
    """One client's subscription to one filter.

    topic_filter  without $share/NAME/
    share_name    b"" for an ordinary subscription
    identifier    Subscription Identifier, 0 for none [MQTT5 3.8.2.1.2]
    along         what its SUBSCRIBE brought along, where the session has a BridgeEnd; () for nothing
    record        number of its record in the store, 0 for none
    feed          that a plugin has opened for it (broker/feeds.py), None for none
    position      where the next feed begins, b"" for none
    """

    __slots__ = (
        "along",
        "feed",
        "identifier",
        "no_local",
        "position",
        "qos",
        "record",
        "retain_as_published",
        "retain_handling",
        "session",
        "share_name",
        "topic_filter",
    )

    def __init__(
        self,
        session: Subscriber,
        share_name: bytes,
        topic_filter: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: int,
        identifier: int,
    ) -> None:
        super().__init__()
        self.session = session
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling
        self.identifier = identifier
        self.along: tuple[bytes, ...] = ()
        self.record = 0
        self.feed: Feed | None = None
        self.position = b""

    def take_options(self, request: SubscribeFilter, qos: int, identifier: int) -> None:
        """SUBSCRIBE came again."""
        self.qos = qos
        self.no_local = request.no_local
        self.retain_as_published = request.retain_as_published
        self.retain_handling = request.retain_handling
        self.identifier = identifier

    def current_position(self) -> bytes:
        """Return where its feed is, b"" for a subscription without one."""
        return self.position if self.feed is None else self.feed.position()

    def stop_feed(self) -> None:
        """Close the feed, if there is one. The position stays."""
        feed = self.feed
        if feed is not None:
            self.position = feed.position()
            self.feed = None
            feed.close()

    def is_available(self) -> bool:
        """As Subscriber.is_available."""
        return self.session.is_available()

    def is_away(self) -> bool:
        """As Subscriber.is_away."""
        return self.session.is_away()

    def set_aside(self, is_aside: bool) -> None:
        session = self.session
        if is_aside:
            if session.aside is None:
                session.aside = {}
            session.aside[self] = None
        elif session.aside is not None:
            session.aside.pop(self, None)

    def load(self) -> int:
        return self.session.load()

    def hash(self) -> int:
        return hash_of(self.session.client_id.encode())


class FilterEntry:
    """The local tree's value for one topic filter: ordinary subscribers and shared groups, in the order of SUBSCRIBE."""

    __slots__ = ("groups", "subscriptions", "topic_filter")

    def __init__(self, topic_filter: bytes) -> None:
        self.topic_filter = topic_filter
        self.subscriptions: dict[Subscriber, Subscription] = {}
        self.groups: dict[bytes, SharedGroup] | None = None  # share_name -> group; most filters have none


def add_subscription(tree: Trie, subscription: Subscription) -> bool:
    """Add to the tree. True for the first subscription of its filter and share name; the queue of a group is none."""
    topic_filter = subscription.topic_filter
    share_name = subscription.share_name
    value = tree.get(topic_filter)
    if value is None:
        entry = FilterEntry(topic_filter)
        tree.set(topic_filter, entry)
    else:
        assert isinstance(value, FilterEntry)
        entry = value
    if not share_name:
        first = not entry.subscriptions
        entry.subscriptions[subscription.session] = subscription
        return first
    if entry.groups is None:
        entry.groups = {}
    group = entry.groups.get(share_name)
    if group is None:
        group = entry.groups[share_name] = SharedGroup(share_name, topic_filter)
    if subscription.session.is_group_queue:
        group.queue = subscription
        subscription.session.add_queued_group(group)
        for member in group.members():
            assert isinstance(member, Subscription)
            member.session.add_queued_group(group)
        return False
    group.add(subscription)
    if group.queue is not None:
        subscription.session.add_queued_group(group)
    return len(group) == 1


def remove_subscription(tree: Trie, subscription: Subscription) -> bool:
    """Remove from the tree. True for the last subscription of its filter and share name."""
    entry = tree.get(subscription.topic_filter)
    assert isinstance(entry, FilterEntry)
    last = False
    if not subscription.share_name:
        entry.subscriptions.pop(subscription.session, None)
        last = not entry.subscriptions
    elif entry.groups is not None:
        group = entry.groups[subscription.share_name]
        if group.queue is subscription:
            group.queue = None
            subscription.session.remove_queued_group(group)
            for member in group.members():
                assert isinstance(member, Subscription)
                member.session.remove_queued_group(group)
        else:
            group.remove(subscription)
            subscription.session.remove_queued_group(group)
            last = len(group) == 0
        if len(group) == 0 and group.queue is None:
            del entry.groups[subscription.share_name]
            if not entry.groups:
                entry.groups = None
    if not entry.subscriptions and entry.groups is None:
        tree.delete(subscription.topic_filter)
    return last


def interest(tree: Trie) -> list[tuple[bytes, bytes]]:
    """(share_name, topic_filter) of all subscriptions, each once. A group that has a queue and no member is none."""
    found: list[tuple[bytes, bytes]] = []
    for topic_filter, value in tree.items():
        assert isinstance(value, FilterEntry)
        if value.subscriptions:
            found.append((b"", topic_filter))
        if value.groups is not None:
            found.extend([(share_name, topic_filter) for share_name, group in value.groups.items() if len(group)])
    return found
