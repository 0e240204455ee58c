"""CONNECT of both connections of a link, what CONNACK grants, and what it grants less than asked."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple

from broker.codec import properties as props
from broker.codec.packets import MQTT_5, Connect, Properties
from broker.codec.reason_codes import reason_name
from broker.routing.subscriber import OWN_PREFIX
from federation.definitions.policy import ApplyTo
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import AckMode, Direction, Upstream
from federation.definitions.uri import LinkUri
from federation.links.bridging.headers import NAME_TEXT, LinkWelcome, encode_connect, parse_welcome
from federation.links.client import EXPIRY_NEVER, Accepted

KEEP_ALIVE_SECONDS: Final = 30  # unless the URI has heartbeat


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
