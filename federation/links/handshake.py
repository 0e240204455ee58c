"""CONNECT of both connections of a link, and what an upstream of ours says in CONNACK."""

from __future__ import annotations

from hashlib import blake2b
from math import ceil
from typing import Final

from broker.codec import properties as props
from broker.codec.packets import MQTT_5, Connect, Properties
from broker.link_header import LinkWelcome, encode_connect, parse_welcome
from broker.origin import NAME
from broker.routing.subscriber import LINK_PREFIX
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import AckMode, Direction, Upstream
from federation.definitions.uri import LinkUri
from federation.links.client import EXPIRY_NEVER, Accepted

KEEP_ALIVE_SECONDS: Final = 30  # unless the URI has heartbeat
NAME_TEXT: Final = NAME.decode()


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
    """What CONNECT says to an upstream of ours: what this domain is, whether messages may go on to others, and which epoch the
    node has as the owner of the link."""
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


def local_client_id(plan: LinkPlan) -> str:
    """Client id of a link at its own node."""
    return f"{LINK_PREFIX}{plan.upstream.name}:{plan.link_id}"


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
    """What an upstream of ours says of itself; None for a broker of another kind, and for one that takes this client for no
    link. Raises HeaderError."""
    for name, value in accepted.user_properties:
        if name == NAME_TEXT:
            return parse_welcome(value.encode())
    return None
