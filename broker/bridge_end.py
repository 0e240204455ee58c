"""The other end of a connection to another broker: the base class of what a connection and its session know of it."""

# compiled with mypyc
from __future__ import annotations

from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from broker.codec.packets import Subscribe, Unsubscribe
from broker.codec.reason_codes import IMPLEMENTATION_SPECIFIC_ERROR
from broker.config.settings_mqtt import MqttSettings
from broker.message import Message, Publication
from broker.origin import Origin
from broker.routing.retained import TopicMessages
from broker.routing.shared import SharedGroup
from broker.slices import Work

NOTHING_ALONG: Final[tuple[bytes, ...]] = ()


class Limits(NamedTuple):
    """Of one session. `session_expiry` and `queue_seconds` are in seconds; `queue_seconds` of 0 or less is no limit."""

    session_expiry: float
    subscriptions: int
    queue_messages: int
    queue_bytes: int
    queue_seconds: float
    inflight: int


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
    """name         of the domain at the other end
    origin       of its messages that bring none along
    is_own       the connection is one of this node, which has connected to the other broker
    is_node      the other end is another node of the cluster
    is_released  any user may take up the session
    kept         what the store keeps of it with the session
    message_ttl  seconds that a message may wait for the other end, 0 or less for no limit
    takes_back   a message that is refused stays with the other end; else a refusal is the end of it
    deletions    deletions of retained messages that a subscription brings, None for none
    dropped      messages of the other end that were not published, by reason
    """

    def __init__(self, name: str, origin: Origin, is_own: bool, is_node: bool, kept: bytes, message_ttl: float) -> None:
        self.name = name
        self.origin = origin
        self.is_own = is_own
        self.is_node = is_node
        self.is_released = False
        self.kept = kept
        self.message_ttl = message_ttl
        self.takes_back = True
        self.deletions: TopicMessages | None = None
        self.dropped: dict[str, int] = {}

    # --- the session

    def subscribing(self, client_id: str, packet: Subscribe, identifier: int) -> Work:
        """The work of a SUBSCRIBE of the session, a Subscribing (session/control.py). Raises ProtocolViolation."""
        raise AssertionError("a subclass implements this")

    def unsubscribing(self, client_id: str, packet: Unsubscribe) -> Work:
        """The work of an UNSUBSCRIBE, a ClientUnsubscribing. Raises ProtocolViolation."""
        raise AssertionError("a subclass implements this")

    # --- messages from the other end

    def receive(self, sent: Publication, is_resent: bool) -> Arrival:
        """The meaning of a PUBLISH, or of a run of them: it sets the origin, which is taken out of the properties."""
        raise AssertionError("a subclass implements this")

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


def limits_of(settings: MqttSettings, end: BridgeEnd | None) -> Limits:
    """The limits of a session, None for that of an ordinary client."""
    if end is not None:
        return Limits(
            settings.link_session_expiry,
            settings.link_max_subscriptions,
            settings.link_max_queued_messages,
            settings.link_max_queued_bytes,
            end.message_ttl,
            settings.link_max_inflight,
        )
    return Limits(
        settings.session_expiry,
        settings.max_subscriptions_per_client,
        settings.max_queued_messages,
        settings.max_queued_bytes,
        settings.message_expiry,
        settings.max_inflight,
    )
