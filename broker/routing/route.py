"""What a topic resolves to: everyone who gets its messages."""

from __future__ import annotations

from broker.hooks import Peer, RemoteGroup
from broker.routing.shared import SharedGroup
from broker.routing.subscriber import Subscriber
from broker.routing.subscription import Subscription


class Receiver:
    """One session that gets a topic's messages, with what its matching subscriptions say together."""

    __slots__ = ("identifiers", "more_identifiers", "no_local", "qos", "retain_as_published", "session")

    def __init__(self, subscription: Subscription) -> None:
        self.more_identifiers: list[int] | None = None  # while the route is made: a tuple grows at the square
        self.session: Subscriber = subscription.session
        self.qos = subscription.qos
        self.no_local = subscription.no_local
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: tuple[int, ...] = (subscription.identifier,) if subscription.identifier else ()

    def merge(self, subscription: Subscription) -> None:
        """Overlapping subscriptions, one copy: the highest QoS and all identifiers [MQTT-3.3.4-2]."""
        self.qos = max(self.qos, subscription.qos)
        self.no_local = self.no_local and subscription.no_local
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if subscription.identifier:
            if self.more_identifiers is None:
                self.more_identifiers = list(self.identifiers)
            self.more_identifiers.append(subscription.identifier)


class GroupRoute:
    """One shared group that matches: its members here (None: no members here) and the nodes that have others."""

    __slots__ = ("local", "remote", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.local: SharedGroup | None = None
        self.remote: RemoteGroup | None = None


class Route:
    """Everyone who gets the messages of one topic. `whole_runs`: each receiver gets a run of QoS 0 messages as it is."""

    __slots__ = ("groups", "peers", "receivers", "topic", "whole_runs")

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.receivers: list[Receiver] = []
        self.groups: list[GroupRoute] = []
        self.peers: list[Peer] = []
        self.whole_runs = True
