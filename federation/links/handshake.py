"""CONNECT of both connections of a link, what CONNACK grants or refuses, and what it grants less than asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple

from broker.codec import properties as props
from broker.codec.packets import MQTT_5, ConnAck, Connect, Properties
from broker.codec.reason_codes import (
    BAD_USER_NAME_OR_PASSWORD,
    CLIENT_IDENTIFIER_NOT_VALID,
    NOT_AUTHORIZED,
    SESSION_TAKEN_OVER,
    UNSUPPORTED_PROTOCOL_VERSION,
    reason_name,
)
from broker.errors import ProtocolViolation
from broker.routing.subscriber import OWN_PREFIX
from federation.definitions.policy import ApplyTo
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import AckMode, Direction, Upstream
from federation.definitions.uri import LinkUri
from federation.links.bridging.headers import FENCED, NAME_TEXT, LinkWelcome, encode_connect, parse_welcome

REASON_CHARS_MAX: Final = 200  # of the upstream's Reason String
SHOWN_BYTES_MAX: Final = 40  # of bytes that are no CONNACK
OTHER_PROTOCOLS: Final = (
    (b"HTTP/", "it speaks HTTP: the URI of MQTT over WebSocket begins with ws://"),
    (b"\x15\x03", "it speaks TLS: its URI begins with mqtts://"),
    (b"AMQP", "it speaks AMQP: MQTT has a port of its own"),
)
EXPIRY_NEVER: Final = 0xFFFFFFFF  # Session Expiry Interval [MQTT5 3.1.2.11.2]
KEEP_ALIVE_SECONDS: Final = 30  # unless the URI has heartbeat


# Of CONNACK and DISCONNECT: what passes by itself. All other refusals need somebody to change something.
_PASSING_CODES: Final = frozenset({0x80, 0x88, 0x89, 0x8B, 0x8D, 0x97, 0x98, 0x9F, 0xA0})
# The keys of an upstream that an operator looks at.
_KEYS: Final = {
    BAD_USER_NAME_OR_PASSWORD: "user name and password of `uri`",
    NOT_AUTHORIZED: "user name and password of `uri`, and the rights of that account at the upstream",
    CLIENT_IDENTIFIER_NOT_VALID: "`consumer-tag`",
    SESSION_TAKEN_OVER: "another node of this domain, or a cluster with the same `domain` or `consumer-tag`, has connected",
}


@dataclass(frozen=True, slots=True)
class Accepted:
    """CONNACK with Success: what the upstream grants [MQTT5 3.2.2.3].

    session_expiry       seconds; -1 where MQTT 3.1.1 does not say
    maximum_packet_size  bytes, 0 for no limit
    keep_alive           seconds, 0 for none
    user_properties      of an upstream of ours, among others
    """

    session_present: bool
    session_expiry: int = -1
    receive_maximum: int = 65_535
    maximum_qos: int = 2
    maximum_packet_size: int = 0
    retain_available: bool = True
    wildcard_available: bool = True
    keep_alive: int = 0
    user_properties: tuple[tuple[str, str], ...] = ()


class End(Enum):
    """The reason why a connection ended.

    REFUSED    CONNACK or DISCONNECT with a reason that another try will hardly change
    TAKEN      another client has taken the session over (0x8E), or holds it with a higher epoch
    VERSION    the upstream does not have this protocol version
    LOST       the network, silence, or a reason that passes
    FAULT      what came is not the protocol
    FULL       there is no room for a message now, here or at the upstream
    """

    REFUSED = "refused"
    TAKEN = "taken over"
    VERSION = "protocol version"
    LOST = "lost"
    FAULT = "fault"
    FULL = "full"


def _end_of(code: int, reason: str | None) -> End:
    if code == SESSION_TAKEN_OVER or (reason or "").startswith(FENCED):
        return End.TAKEN
    if code == UNSUPPORTED_PROTOCOL_VERSION:
        return End.VERSION
    return End.LOST if code in _PASSING_CODES or code < 0x80 else End.REFUSED


class Ended(NamedTuple):
    end: End
    reason: str


def ended_by(event: str, code: int, properties: Properties) -> Ended:
    """The end of a connection by a reason code: its name, what the upstream says about it, shortened, and what to look at."""
    reason = props.get_str(properties, props.REASON_STRING)
    text = f"{event}: {reason_name(code)}" + (f" ({reason[:REASON_CHARS_MAX]})" if reason else "")
    return Ended(_end_of(code, reason), f"{text}: {_KEYS[code]}" if code in _KEYS else text)


def read_connack(connack: ConnAck, version: int, connect: Connect) -> Accepted | Ended:
    """Read the answer to CONNECT. `version` is that of the answer."""
    properties = connack.properties
    if connack.reason_code:
        return ended_by("CONNECT is refused", connack.reason_code, properties)
    if version != connect.protocol_version:
        return Ended(End.VERSION, "CONNACK of MQTT 3.1.1 to a CONNECT of MQTT 5")
    if version != MQTT_5:
        return Accepted(connack.session_present, keep_alive=connect.keep_alive)
    wanted = props.get_int(connect.properties, props.SESSION_EXPIRY_INTERVAL, 0)
    return Accepted(
        connack.session_present,
        props.get_int(properties, props.SESSION_EXPIRY_INTERVAL, wanted),
        props.get_int(properties, props.RECEIVE_MAXIMUM, 65_535),
        props.get_int(properties, props.MAXIMUM_QOS, 2),
        props.get_int(properties, props.MAXIMUM_PACKET_SIZE, 0),
        props.get_int(properties, props.RETAIN_AVAILABLE, 1) == 1,
        props.get_int(properties, props.WILDCARD_SUBSCRIPTION_AVAILABLE, 1) == 1,
        props.get_int(properties, props.SERVER_KEEP_ALIVE, connect.keep_alive),
        tuple(props.get_user_properties(properties)),
    )


def no_connack(data: bytes) -> ProtocolViolation:
    """`data` is what the upstream has answered instead: other protocols are known by their first bytes."""
    text = ascii(data[:SHOWN_BYTES_MAX].decode("latin-1"))[1:-1].replace('"', '\\"')
    rest = "…" if len(data) > SHOWN_BYTES_MAX else ""
    hint = next((f"; {hint}" for begin, hint in OTHER_PROTOCOLS if data.startswith(begin)), "")
    return ProtocolViolation(f'the answer to CONNECT is no CONNACK: "{text}{rest}"{hint}')


def qos_of(upstream: Upstream) -> int:
    """The highest QoS of messages that cross the link: QoS 2 becomes QoS 1."""
    return 0 if upstream.ack_mode is AckMode.NO_ACK else 1


def expiry_of(upstream: Upstream) -> int:
    """Session Expiry Interval in whole seconds, at least 1: with 0 the session would end with each connection."""
    return EXPIRY_NEVER if upstream.expires is None else ceil(upstream.expires)


def addresses_of(upstream: Upstream, current: LinkUri) -> tuple[bytes, ...]:
    """Digests of the addresses of an upstream, the current one first: messages carry them to other domains."""
    uris = (current, *[uri for uri in upstream.uris if uri != current])
    texts = [f"{uri.host.lower()}:{uri.port}" for uri in uris]
    return tuple(blake2b(text.encode(), digest_size=4).hexdigest().encode() for text in texts)


def header_of(upstream: Upstream, domain: bytes, relays: bool, epoch: int) -> bytes:
    """Return what CONNECT says to an upstream of ours: what this domain is, whether messages may go on to others, and
    which epoch the node has as the owner of the link."""
    message_ttl = -1.0 if upstream.message_ttl is None else upstream.message_ttl
    return encode_connect(domain, upstream.max_hops, relays, message_ttl, epoch)


def upstream_connect(
    upstream: Upstream, uri: LinkUri, client_id: str, version: int, packet_bytes_max: int, header: bytes
) -> Connect:
    """CONNECT to the upstream. The session is resumed, whoever of this domain had it."""
    properties: Properties = {}
    if version == MQTT_5:
        properties = {
            props.SESSION_EXPIRY_INTERVAL: expiry_of(upstream),
            props.RECEIVE_MAXIMUM: upstream.prefetch_count,
            props.MAXIMUM_PACKET_SIZE: packet_bytes_max,
            props.USER_PROPERTY: [(NAME_TEXT, header.decode())],
        }
    heartbeat = uri.heartbeat
    return Connect(
        client_id,
        version,
        False,
        KEEP_ALIVE_SECONDS if heartbeat is None else heartbeat,
        uri.username,
        None if uri.password is None else uri.password.encode(),
        None,
        properties,
    )


def client_id_of(plan: LinkPlan, domain: bytes, node: str) -> str:
    """Client identifier of a link at the upstream. Each node of a cluster has links for queues of its own."""
    upstream = plan.upstream
    parts = ["federation-link", domain.decode(), upstream.name, plan.link_id, plan.key]
    found = upstream.consumer_tag or "-".join(filter(None, parts))
    return f"{found}-{node}" if node and plan.kind == ApplyTo.QUEUES.value else found


def local_client_id(plan: LinkPlan) -> str:
    """Client id of a link at its own node."""
    return f"{OWN_PREFIX}{plan.upstream.name}:{plan.link_id}"


def local_connect(plan: LinkPlan, version: int, accepted: Accepted) -> Connect:
    """CONNECT to the local broker, within the limits of the upstream. Only a link that pushes has a session that lasts."""
    upstream = plan.upstream
    is_out = upstream.direction is Direction.OUT
    properties: Properties = {}
    if version == MQTT_5:
        properties[props.RECEIVE_MAXIMUM] = min(upstream.prefetch_count, accepted.receive_maximum)
        if accepted.maximum_packet_size:
            properties[props.MAXIMUM_PACKET_SIZE] = accepted.maximum_packet_size
        if is_out:
            properties[props.SESSION_EXPIRY_INTERVAL] = expiry_of(upstream)
    return Connect(
        local_client_id(plan), version, not is_out, 0, upstream.local_username or None, None, None, properties
    )


def welcome_of(accepted: Accepted) -> LinkWelcome | None:
    """Return what an upstream of ours says of itself; None for a broker of another kind, and for one that takes this
    client for no link. Raises HeaderError."""
    for name, value in accepted.user_properties:
        if name == NAME_TEXT:
            return parse_welcome(value.encode())
    return None


LOST_IN_311: Final = (
    "the upstream has MQTT 3.1.1: user properties, expiry and RETAIN of live messages do not cross the link, and it does "
    "not say how long it keeps the session"
)
UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))


class Note(NamedTuple):
    """`is_warning`: less than the definition of the upstream asks for, or than every link expects."""

    text: str
    is_warning: bool = True


def notes_on(upstream: Upstream, version: int, accepted: Accepted, welcome: LinkWelcome | None) -> tuple[Note, ...]:
    """Return what the upstream grants less than asked. `version` is that of the protocol; `welcome` is None for a
    broker of another kind."""
    if version != MQTT_5:
        return (Note(LOST_IN_311),)
    notes: list[Note] = []
    is_out = upstream.direction is Direction.OUT
    asked = expiry_of(upstream)
    if 0 <= accepted.session_expiry < asked and not is_out:
        granted = f"for a link that is away, messages wait at the upstream for at most {span(accepted.session_expiry)}"
        if asked == EXPIRY_NEVER:
            notes.append(Note(f"{granted}; without `expires` the link has asked for ever", False))
        else:
            notes.append(Note(f"{granted}; `expires` asks for {span(asked)}"))
    if accepted.maximum_qos < qos_of(upstream):
        notes.append(Note("the upstream has QoS 0 only: messages are lost with a connection"))
    if is_out and accepted.receive_maximum < upstream.prefetch_count:
        text = f"the upstream takes {accepted.receive_maximum} messages without acknowledgement at a time"
        notes.append(Note(f"{text}; `prefetch-count` allows {upstream.prefetch_count}", False))
    if not accepted.retain_available:
        notes.append(Note("the upstream has no retained messages"))
    if not accepted.wildcard_available and not is_out:
        notes.append(Note("the upstream takes no filters with wildcards"))
    if welcome is not None and welcome.refused:
        text = "the account at the upstream has no role `link`: it is served as an ordinary client, without headers"
        notes.append(Note(text))
    if upstream.message_ttl is not None and not is_out and (welcome is None or welcome.refused):
        notes.append(Note("message-ttl has no effect: this upstream cannot be asked for it"))
    return tuple(notes)


def refusals(refused: Mapping[bytes, int]) -> tuple[Note, ...]:
    """Return what is said of filters that the upstream refuses: their reason codes by filter."""
    if not refused:
        return ()
    topic_filter, code = next(iter(refused.items()))
    what = "the filter" if len(refused) == 1 else f"{len(refused)} filters, such as"
    return (Note(f"the upstream refuses {what} {topic_filter.decode()}: {reason_name(code)}"),)


def span(seconds: int) -> str:
    """Seconds for people: whole days, hours or minutes where there are two or more of them."""
    for unit, name in UNITS:
        if seconds >= 2 * unit and seconds % unit == 0:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
