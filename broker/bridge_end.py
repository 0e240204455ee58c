"""The other end of a connection to another broker: the base class of what a connection and its session know of it."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from broker.codec.packets import Subscribe, Unsubscribe
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR
from broker.config.settings_mqtt import MqttSettings
from broker.message import Message, Publication
from broker.origin import Origin
from broker.routing.retained import TopicMessages
from broker.routing.shared import SharedGroup

NOT_HANDLED: Final = -1  # what a filter asks for is an ordinary subscription
NOTHING_ALONG: Final[tuple[bytes, ...]] = ()


class Arrival:
    """The meaning of a PUBLISH from another broker.

    refusal      the reason for its drop, "" for none
    reason_code  of the answer to one that is dropped
    passed       domains that the best copy before has passed, 0 for the first copy
    group        the message is for one member of the group, and for no other subscriber; None for a message by its topic
    """

    __slots__ = ("group", "passed", "reason_code", "refusal")

    def __init__(
        self,
        refusal: str = "",
        passed: int = 0,
        group: SharedGroup | None = None,
        reason_code: int = IMPLEMENTATION_SPECIFIC_ERROR,
    ) -> None:
        self.refusal = refusal
        self.reason_code = reason_code
        self.passed = passed
        self.group = group


@mypyc_attr(allow_interpreted_subclasses=True)
class BridgeEnd:
    """name     of the domain at the other end
    origin   of its messages that bring none along
    is_own   the connection is one of this node, which has connected to the other broker
    is_node  the other end is another node of the cluster
    """

    __slots__ = ("is_node", "is_own", "name", "origin")

    def __init__(self, name: str, origin: Origin, is_own: bool, is_node: bool) -> None:
        self.name = name
        self.origin = origin
        self.is_own = is_own
        self.is_node = is_node

    # --- the session

    def session_expiry_max(self, settings: MqttSettings) -> float:
        """Longest Session Expiry Interval, in seconds."""
        raise AssertionError("a subclass implements this")

    def limits(self, settings: MqttSettings) -> tuple[int, int, int, float]:
        """Most messages of the queue, most bytes, most messages in flight, longest seconds in the queue (0 or less: no
        limit)."""
        raise AssertionError("a subclass implements this")

    def subscriptions_max(self, settings: MqttSettings) -> int:
        raise AssertionError("a subclass implements this")

    def encode(self) -> bytes:
        """Return what the store keeps of it with the session."""
        raise AssertionError("a subclass implements this")

    def check_taker(self, is_same_user: bool, domain: str) -> None:
        """Another client asks for the session. `domain`: the one to which its role is bound, "" for none. Raises MqttError."""
        raise AssertionError("a subclass implements this")

    def release(self) -> None:
        """Let the next client take up the session, whoever its user is."""
        raise AssertionError("a subclass implements this")

    # --- messages from the other end

    def receive(self, sent: Publication, is_resent: bool) -> Arrival:
        """The meaning of a PUBLISH, or of a run of them: it sets the origin, which is taken out of the properties."""
        raise AssertionError("a subclass implements this")

    def published(self, sent: Publication, arrival: Arrival) -> None:
        """Return what was received is published."""
        raise AssertionError("a subclass implements this")

    def count_refused(self, reason: str, count: int) -> None:
        """Messages of the other end were not published."""

    # --- messages to the other end

    def refuses(self, origin: Origin) -> bool:
        """Return whether a message of this origin does not go to the other end."""
        raise AssertionError("a subclass implements this")

    def carried(self, message: Message) -> bytes:
        """The origin of a message that leaves to the other end, as an encoded User Property; b"" for none."""
        raise AssertionError("a subclass implements this")

    def group_of(self, message: Message) -> SharedGroup | None:
        """The shared group on this node from whose queue the message has gone to the other end; None for any other one."""
        raise AssertionError("a subclass implements this")

    def rejected(self, client_id: str, packet_id: int, now: float) -> None:
        """The other end has refused a message with QoS 1 of the session."""
        raise AssertionError("a subclass implements this")

    # --- subscriptions

    def deletions(self) -> TopicMessages | None:
        """Deletions of retained messages that a subscription brings, None for none."""
        raise AssertionError("a subclass implements this")

    def along(self, packet: Subscribe) -> tuple[bytes, ...]:
        """Return what a SUBSCRIBE brings along for its filters. Raises ProtocolViolation."""
        raise AssertionError("a subclass implements this")

    def subscribe(self, client_id: str, full: bytes, along: tuple[bytes, ...]) -> int:
        """A filter of a SUBSCRIBE. Returns its reason code; NOT_HANDLED for an ordinary subscription."""
        raise AssertionError("a subclass implements this")

    def subscribed(self, full: bytes) -> None:
        """A filter was subscribed to."""
        raise AssertionError("a subclass implements this")

    def unsubscribes(self, packet: Unsubscribe, full_filters: list[bytes]) -> list[bytes]:
        """Those of the session's filters that an UNSUBSCRIBE ends besides its own. Raises ProtocolViolation."""
        raise AssertionError("a subclass implements this")

    def unsubscribe(self, client_id: str, full: bytes) -> bool:
        """A filter of an UNSUBSCRIBE. Returns whether it was no ordinary subscription, and has ended."""
        raise AssertionError("a subclass implements this")
