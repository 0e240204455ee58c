"""The route of a topic: the sessions, shared groups and nodes that get its messages."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.bridging import Bridge
from broker.hooks import Peer, RemoteGroup
from broker.routing.group_copy import GroupCopy
from broker.routing.names import is_reserved
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription

GROUP_SIZE: Final = 3  # receivers that a group counts for in the cache of routes: it takes some 190 bytes


class Receiver:
    """One session that gets a topic's messages, with the merged options of its matching subscriptions.

    no_local  one of them has No Local
    own       the merged options for messages of the session's own client, if some have No Local and some not: of those without
    """

    __slots__ = ("identifiers", "more_identifiers", "no_local", "own", "qos", "retain_as_published", "session")

    def __init__(self, subscription: Subscription) -> None:
        self.more_identifiers: list[int] | None = None  # while the route is made; growing a tuple costs quadratic time
        self.session: Subscriber = subscription.session
        self.qos = subscription.qos
        self.no_local = subscription.no_local
        self.own: Receiver | None = None
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: tuple[int, ...] = (subscription.identifier,) if subscription.identifier else ()

    def merge(self, subscription: Subscription) -> None:
        """Add an overlapping subscription: one copy with the highest QoS and all identifiers [MQTT-3.3.4-2]. One with No Local
        does not match what its client publishes itself [MQTT-3.8.3-3]."""
        if subscription.no_local and not self.no_local:
            self.own = self._before(subscription)
            self.no_local = True
        elif self.no_local and not subscription.no_local:
            if self.own is None:
                self.own = Receiver(subscription)
            else:
                self.own.merge(subscription)
        self.qos = max(self.qos, subscription.qos)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if subscription.identifier:
            if self.more_identifiers is None:
                self.more_identifiers = list(self.identifiers)
            self.more_identifiers.append(subscription.identifier)

    def _before(self, subscription: Subscription) -> Receiver:
        """The receiver without this subscription, which is the first one with No Local."""
        own = Receiver(subscription)
        own.no_local = False
        own.qos = self.qos
        own.retain_as_published = self.retain_as_published
        own.identifiers = tuple(self.more_identifiers or self.identifiers)
        return own

    def end_merge(self) -> None:
        """All subscriptions were added."""
        if self.more_identifiers is not None:
            self.identifiers = tuple(self.more_identifiers)
            self.more_identifiers = None
        if self.own is not None:
            self.own.end_merge()

    def size(self) -> int:
        """Return what it takes in the cache of routes."""
        return 1 + len(self.identifiers) + (0 if self.own is None else self.own.size())


class GroupRoute:
    """One shared group that matches.

    local    its members on this node, None without any that may read the topic
    skipped  those of them that may not, None for none
    remote   the other nodes with members, None without any
    copy     of each message for which this node chooses
    """

    __slots__ = ("copy", "local", "remote", "share_name", "skipped", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.copy = GroupCopy(share_name, topic_filter)
        self.local: SharedGroup | None = None
        self.skipped: dict[GroupMember, None] | None = None
        self.remote: RemoteGroup | None = None


class Route:
    """The receivers of one topic's messages: those that may read it.

    receivers    ordinary clients
    bridge       the receivers that are other brokers, None for none
    whole_runs   every receiver can get a run of QoS 0 messages unchanged
    is_passed_on  only other nodes get the messages, and a run of QoS 1 as well
    is_reserved  clients never publish to the topic: `$SYS/#`
    is_judged    not every client may publish to the topic
    is_kept      the route may be cached: no authorizer failed
    size         of its lists, in receivers: these, their identifiers, groups (GROUP_SIZE), members that they skip, nodes
    """

    __slots__ = (
        "bridge",
        "groups",
        "is_judged",
        "is_kept",
        "is_passed_on",
        "is_reserved",
        "peers",
        "receivers",
        "size",
        "topic",
        "whole_runs",
    )

    def __init__(self, topic: bytes, is_authorized: bool) -> None:
        self.topic = topic
        self.receivers: list[Receiver] = []
        self.groups: list[GroupRoute] = []
        self.peers: list[Peer] = []
        self.bridge: Bridge | None = None
        self.whole_runs = True
        self.is_passed_on = False
        self.is_reserved = is_reserved(topic)
        self.is_judged = is_authorized or self.is_reserved
        self.is_kept = True
        self.size = 0

    def is_empty(self) -> bool:
        """Return whether nobody gets messages of the topic."""
        return not (self.receivers or self.groups or self.peers) and self.bridge is None

    def group_of(self, copy: GroupCopy) -> GroupRoute | None:
        """Return the group of a copy, None where it has no members any more."""
        for group in self.groups:
            if copy.is_of(group.share_name, group.topic_filter):
                return group
        return None
