"""The seam between a broker and its connections to other brokers (`Context.bridging`; None without an implementation)."""

# compiled with mypyc
from __future__ import annotations

from mypy_extensions import mypyc_attr

from broker.bridge_end import Arrival, BridgeEnd
from broker.codec.packets import Connect, Properties
from broker.codec.runs import Run
from broker.hooks import Peer, RemoteRoute
from broker.listener_facts import ListenerFacts
from broker.message import Message, Publication
from broker.publisher import Publisher
from broker.routing.subscription import FilterEntry, Subscription


@mypyc_attr(allow_interpreted_subclasses=True)
class Bridge:
    """The further receivers of a route: sessions with a BridgeEnd, and nodes that have such sessions.

    peers        those nodes
    is_numbered  messages get a number: copies of one may come to one place
    """

    def __init__(self, peers: list[Peer], is_numbered: bool) -> None:
        self.peers = peers
        self.is_numbered = is_numbered

    def deliver(self, sent: Publication, publisher: Publisher | None, now: float) -> None:
        """Deliver to the sessions on this node. `publisher` as in Router."""
        raise AssertionError("a subclass implements this")

    def splits(self, peer: Peer, run: Run) -> bool:
        """Return whether another node gets a run as single messages, with their origins."""
        return (run.origin is not None or self.is_numbered) and peer in self.peers


@mypyc_attr(allow_interpreted_subclasses=True)
class Bridging:
    """Connections of a broker to others."""

    # --- clients

    def connect(self, packet: Connect, listener: ListenerFacts) -> BridgeEnd | None:
        """Return what a CONNECT says of its sender; None for an ordinary client. Raises MqttError."""
        raise AssertionError("a subclass implements this")

    def accepted(self, client_id: str, end: BridgeEnd, has_role: bool, answer: Properties) -> bool:
        """CONNECT is accepted: whether the client has the BridgeEnd from now on. CONNACK says so. Raises MqttError."""
        raise AssertionError("a subclass implements this")

    def restored(self, value: bytes) -> BridgeEnd:
        """The BridgeEnd of a session that the store has kept (BridgeEnd.kept). Raises HeaderError."""
        raise AssertionError("a subclass implements this")

    # --- interest

    def interest_changed(self, entry: FilterEntry | None, subscription: Subscription) -> bool:
        """A subscription was added, changed, or removed. `entry` is that of its filter, None without any subscription. True
        when `note` of the filter is another one."""
        raise AssertionError("a subclass implements this")

    def note(self, topic_filter: bytes) -> bytes:
        """Return what the interest in a filter says along to other nodes, b"" for nothing."""
        raise AssertionError("a subclass implements this")

    # --- messages

    def route(self, topic: bytes, subscriptions: list[Subscription], remote: RemoteRoute | None) -> Bridge | None:
        """The further receivers of a topic. `subscriptions` are those that match of sessions with a BridgeEnd."""
        raise AssertionError("a subclass implements this")

    def publish(self, bridge: Bridge | None, sent: Publication, now: float) -> None:
        """A message or a run is published on this node: complete its origin. A retained message that is older than what is
        retained here is retained no more."""
        raise AssertionError("a subclass implements this")

    def published(
        self,
        end: BridgeEnd,
        bridge: Bridge | None,
        sent: Publication,
        arrival: Arrival,
        publisher: Publisher | None,
        now: float,
    ) -> None:
        """Messages of the other end are published. A further copy, which has passed fewer domains, goes to those that
        need it only."""
        raise AssertionError("a subclass implements this")

    def receive(self, bridge: Bridge | None, message: Message, publisher: Publisher | None, now: float) -> bool:
        """Return whether a message of another node is new here. Further receivers may get a copy. A retained message that
        is older than what is retained here is retained no more."""
        raise AssertionError("a subclass implements this")


def needs_origin(peer: Peer, bridge: Bridge | None, message: Message) -> bool:
    """Return whether another node needs the origin of a message: its sessions with a BridgeEnd get the message, it is retained
    there, or a copy of it may come there."""
    if message.retain or (bridge is not None and peer in bridge.peers):
        return True
    return peer.names_groups and message.origin is not None and message.origin.may_come_again()
