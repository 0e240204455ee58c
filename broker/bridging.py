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
    """The further receivers of a route: sessions with a BridgeEnd, and nodes that have such sessions. `publisher` as in
    Router."""

    def begin(self, sent: Publication) -> None:
        """A message or a run is published on this node."""
        raise AssertionError("a subclass implements this")

    def deliver(self, sent: Publication, publisher: Publisher | None, now: float) -> None:
        """Deliver to the sessions on this node."""
        raise AssertionError("a subclass implements this")

    def splits(self, peer: Peer, run: Run) -> bool:
        """Return whether another node gets a run as single messages."""
        raise AssertionError("a subclass implements this")


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
        """The BridgeEnd of a session that the store has kept (BridgeEnd.encode). Raises HeaderError."""
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

    def stays_retained(self, bridge: Bridge | None, message: Message, now: float) -> bool:
        """Return whether a retained message is newer than what is retained here."""
        raise AssertionError("a subclass implements this")

    def again(
        self, bridge: Bridge | None, message: Message, arrival: Arrival, publisher: Publisher | None, now: float
    ) -> None:
        """Publish a further copy of a message, which has passed fewer domains."""
        raise AssertionError("a subclass implements this")

    def is_copy(self, bridge: Bridge | None, message: Message, publisher: Publisher | None, now: float) -> bool:
        """Return whether a message of another node came here before. Further receivers may get it."""
        raise AssertionError("a subclass implements this")

    def sent_to(self, peer: Peer, bridge: Bridge | None, message: Message) -> Message:
        """A message as another node gets it: without its origin, where nobody there needs that."""
        raise AssertionError("a subclass implements this")
