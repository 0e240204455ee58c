"""The seams of the broker: where other nodes, logs and stores are attached.

`Forwarder` and `Peer` are what the router knows of other nodes; their base classes are a node that stands alone. `Tap` sees
what is published. None of them knows how the other side works.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.codec.runs import Run
from broker.message import Message
from broker.publisher import Publisher

NO_GROUPS: Final[tuple[tuple[bytes, bytes], ...]] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """Another node, as the router sees it: something that takes messages. Calls never wait and never fail.

    name          the node's name (Serf name)
    names_groups  it understands which shared groups a message was chosen for. One that does not (a gmqttd) delivers
                  every message that it gets to all its groups that match.
    congested     its outbox is past the half of its bound: publishers should be slowed down
    reachable     a message to it would leave now; one that is not still gets what is for it alone, later
    """

    def __init__(self, name: str, names_groups: bool) -> None:
        self.name = name
        self.names_groups = names_groups
        self.congested = False
        self.reachable = True

    def forward(self, message: Message, groups: tuple[tuple[bytes, bytes], ...], now: float) -> None:
        """Queue one message; `groups` are the (share_name, topic_filter) for which this node was chosen."""
        raise AssertionError("a peer without an outbox")

    def forward_run(self, data: bytes, count: int, version: int, now: float) -> None:
        """Queue `count` contiguous PUBLISH packets of one topic: QoS 0, no RETAIN, no DUP, no properties.

        data is their bytes as received; version 4 (3.1 and 3.1.1 have the same PUBLISH) or 5.
        """
        raise AssertionError("a peer without an outbox")


class RemoteGroup:
    """The nodes that have members of one shared group. `last` is the index of the node that was chosen last."""

    __slots__ = ("last", "peers", "share_name", "topic_filter")

    def __init__(self, share_name: bytes, topic_filter: bytes, peers: list[Peer]) -> None:
        self.share_name = share_name
        self.topic_filter = topic_filter
        self.peers = peers
        self.last = 0


class RemoteRoute:
    """The other nodes with interest in one topic: by ordinary filters, and group by group."""

    __slots__ = ("groups", "peers")

    def __init__(self, peers: list[Peer], groups: list[RemoteGroup]) -> None:
        self.peers = peers
        self.groups = groups


@mypyc_attr(allow_interpreted_subclasses=True)
class Forwarder:
    """What carries interest and messages to other nodes. This base class is a node that stands alone.

    The router keeps what `route` answers in its cache: whoever changes the answer calls `Router.forget_routes`
    (or `Router.forget_topic` when only one topic without wildcards changed).
    """

    def interest_added(self, share_name: bytes, topic_filter: bytes) -> None:
        """The filter got its first local subscriber (share_name b"" when not shared)."""

    def interest_removed(self, share_name: bytes, topic_filter: bytes) -> None:
        """The filter lost its last local subscriber."""

    def route(self, topic: bytes) -> RemoteRoute | None:
        """The other nodes with interest in a topic name; None when there are none."""
        return None

    def peers(self) -> list[Peer]:
        """Every other node: each gets every retained message."""
        return []

    def retained_published(self, topic: bytes, now: float) -> None:
        """A retained message was published or deleted here, whether or not there are other nodes."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Tap:
    """Sees each message that is published on this node, once: by its clients, its API and wills, not by other nodes.

    It is called before the message is delivered. `message` and `run` are only lent: they may be changed afterwards.
    `publisher` is the client's connection (broker.session.output.Output: user name, address); None for the API and wills,
    whose client id the message has. A tap whose messages are kept only later begins a commit (broker/session/commits.py).
    """

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        """One message."""

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        """A run of QoS 0 messages of one topic."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientObserver:
    """Told of clients that come and go: `Broker.observer`. Calls never wait and never fail. Not called for a connection that
    ends before it sent anything.

    addr    HOST:PORT of the client
    reason  why the connection ended, as in the Reason String of the answer
    """

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        """CONNECT was accepted. version is 3, 4 or 5; keep_alive is in seconds, as the server watches it."""

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        """The connection of an accepted client ended."""

    def client_refused(self, client_id: str, addr: str, reason: str) -> None:
        """The connection ended before a CONNECT was accepted. client_id is empty where none could be read."""
