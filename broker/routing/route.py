"""The route of a topic: the sessions, shared groups and nodes that get its messages."""

from __future__ import annotations

from broker.hooks import Peer, RemoteGroup
from broker.routing.shared import SharedGroup
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription


class Receiver:
    """One session that gets a topic's messages, with the merged options of its matching subscriptions."""

    __slots__ = ("identifiers", "more_identifiers", "no_local", "qos", "retain_as_published", "session")

    def __init__(self, subscription: Subscription) -> None:
        self.more_identifiers: list[int] | None = None  # while the route is made; growing a tuple costs quadratic time
        self.session: Subscriber = subscription.session
        self.qos = subscription.qos
        self.no_local = subscription.no_local
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: tuple[int, ...] = (subscription.identifier,) if subscription.identifier else ()

    def merge(self, subscription: Subscription) -> None:
        """Add an overlapping subscription: one copy with the highest QoS and all identifiers [MQTT-3.3.4-2]."""
        self.qos = max(self.qos, subscription.qos)
        self.no_local = self.no_local and subscription.no_local
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if subscription.identifier:
            if self.more_identifiers is None:
                self.more_identifiers = list(self.identifiers)
            self.more_identifiers.append(subscription.identifier)


class GroupRoute:
    """One shared group that matches.

    local   its members on this node, None without any
    remote  the other nodes with members, None without any
    """

    __slots__ = ("local", "remote", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.local: SharedGroup | None = None
        self.remote: RemoteGroup | None = None


class Route:
    """The receivers of one topic's messages. `whole_runs`: every receiver can get a run of QoS 0 messages unchanged."""

    __slots__ = ("groups", "peers", "receivers", "topic", "whole_runs")

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.receivers: list[Receiver] = []
        self.groups: list[GroupRoute] = []
        self.peers: list[Peer] = []
        self.whole_runs = True
