"""CONNECT of both connections of a link, and what the upstream grants less than it was asked for."""

from __future__ import annotations

from typing import Final

from broker.codec import properties as props
from broker.codec.packets import MQTT_5, Connect, Properties
from broker.link_header import NAME, LinkWelcome, encode_connect, parse_welcome
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import AckMode, Direction, InterestMode, Upstream
from federation.definitions.uri import LinkUri
from federation.links.client import EXPIRY_NEVER, Accepted

KEEP_ALIVE_SECONDS: Final = 30  # unless the URI has heartbeat
NAME_TEXT: Final = NAME.decode()
LOST_IN_311: Final = (
    "the upstream has MQTT 3.1.1: user properties, expiry and RETAIN of live messages do not cross the link, and it does "
    "not say how long it keeps the session"
)


def qos_of(upstream: Upstream) -> int:
    """The highest QoS of messages that cross the link: QoS 2 becomes QoS 1."""
    return 0 if upstream.ack_mode is AckMode.NO_ACK else 1


def expiry_of(upstream: Upstream) -> int:
    """Session Expiry Interval."""
    return EXPIRY_NEVER if upstream.expires is None else int(upstream.expires)


def upstream_connect(
    upstream: Upstream, uri: LinkUri, client_id: str, version: int, packet_bytes_max: int, domain: bytes, epoch: int
) -> Connect:
    """CONNECT to the upstream. The session is resumed, whoever of this domain had it. The header says to an upstream of ours
    what this domain is, and which epoch the node has as the owner of the link."""
    # What keeps everything may keep it for domains behind this one: then its messages have numbers.
    relays = upstream.interest is InterestMode.ALL
    header = encode_connect(
        domain, upstream.max_hops, relays, -1.0 if upstream.message_ttl is None else upstream.message_ttl, epoch
    )
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
    return f"link:{plan.upstream.name}:{plan.link_id}"


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
    link. Raises LinkHeaderError."""
    for name, value in accepted.user_properties:
        if name == NAME_TEXT:
            return parse_welcome(value.encode())
    return None


def notes_on(upstream: Upstream, version: int, accepted: Accepted, welcome: LinkWelcome | None) -> tuple[str, ...]:
    """What the upstream grants less than asked, as sentences."""
    if version != MQTT_5:
        return (LOST_IN_311,)
    notes: list[str] = []
    asked = expiry_of(upstream)
    if 0 <= accepted.session_expiry < asked:
        wanted = "for ever" if asked == EXPIRY_NEVER else f"for {asked} s"
        notes.append(f"the upstream keeps the session for {accepted.session_expiry} s, not {wanted}")
    if accepted.maximum_qos < qos_of(upstream):
        notes.append("the upstream has QoS 0 only: messages are lost with a connection")
    if not accepted.retain_available:
        notes.append("the upstream has no retained messages")
    if not accepted.wildcard_available:
        notes.append("the upstream takes no filters with wildcards")
    if welcome is not None and welcome.refused:
        notes.append(
            "the account at the upstream has no role `link`: it is served as an ordinary client, without headers"
        )
    if upstream.message_ttl is not None and (welcome is None or welcome.refused):
        notes.append("message-ttl has no effect: this upstream cannot be asked for it")
    if upstream.trust_user_id:
        notes.append("trust-user-id has no effect: MQTT does not say who has published a message")
    return tuple(notes)
