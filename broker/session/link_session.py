"""Clients that are links of other domains, and headers of links in the packets of all clients (broker/link_header.py).

A client is a link when its CONNECT has the header and its account has the role `link`; without connect deciders no role is
needed. Headers of other clients are taken out of what they publish, and counted.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.broker import Broker
from broker.codec import properties as props
from broker.codec.packets import Connect, Properties, Subscribe, Unsubscribe
from broker.codec.reason_codes import (
    CLIENT_IDENTIFIER_NOT_VALID,
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    SUCCESS,
)
from broker.config.settings_mqtt import MqttSettings
from broker.counters import (
    DROP_GROUP_GONE,
    DROP_LINK_DUPLICATE,
    DROP_LINK_HEADER,
    DROP_LINK_HOPS,
    DROP_LINK_PATH,
    DROP_LINK_RETAINED,
    DROP_LINK_TOPIC,
)
from broker.errors import MqttError, ProtocolViolation
from broker.job_header import NO_LIMIT, parse_limit, queue_of
from broker.link_header import (
    FENCED,
    WANTS_MAX,
    LinkFacts,
    LinkWelcome,
    canonical_want,
    encode_welcome,
    parse_connect,
    parse_only_asked,
    parse_want,
    received,
)
from broker.message import Message, Publication
from broker.origin import NAME, NO_DOMAIN, HeaderError, Origin, split_properties
from broker.routing.deletions import LATE
from broker.routing.duplicates import NEW, SEEN
from broker.routing.route import Route
from broker.session.output import Output
from broker.session.session import Session

NAME_TEXT: Final = NAME.decode()
NO_ROLE: Final = "role"  # why a client is no link, in CONNACK


def headers_of(properties: Properties) -> list[bytes]:
    """The headers of a packet other than PUBLISH."""
    return [text.encode() for key, text in props.get_user_properties(properties) if key == NAME_TEXT]


def claimed_link(broker: Broker, packet: Connect, is_node: bool) -> LinkFacts | None:
    """What CONNECT says of the domain that it comes from; None for an ordinary client. Raises MqttError. The header of a will
    is taken out. `is_node`: it comes from another node of the cluster."""
    will = packet.will
    if will is not None and NAME in will.properties:
        will.properties, found = split_properties(will.properties)
        broker.counters.link_headers_stripped += len(found)
    headers = headers_of(packet.properties)
    if not headers:
        if is_node:
            raise MqttError(NOT_AUTHORIZED, "this address is for the other nodes of the cluster")
        return None
    if len(headers) > 1:
        raise ProtocolViolation(f"CONNECT has {len(headers)} user properties {NAME_TEXT}, may have one")
    try:
        facts = parse_connect(headers[0])
    except HeaderError as error:
        raise ProtocolViolation(f"user property {NAME_TEXT} of CONNECT: {error.text}") from None
    facts.is_node = is_node
    if is_node and facts.domain != broker.domain:
        raise MqttError(
            IMPLEMENTATION_SPECIFIC_ERROR,
            f"a node of this cluster has the domain {facts.domain.decode()}, this one {broker.domain.decode()}: "
            "`plugins.links.domain` is the same on all nodes of a cluster",
        )
    if not is_node and facts.domain != NO_DOMAIN and facts.domain == broker.domain:
        raise MqttError(
            IMPLEMENTATION_SPECIFIC_ERROR,
            f"the link comes from a domain of the name {facts.domain.decode()}, which is the name of this one: "
            "give one of the two another `plugins.links.domain`",
        )
    return facts


def session_expiry_max(settings: MqttSettings, facts: LinkFacts | None) -> float:
    """Longest Session Expiry Interval of a client, in seconds."""
    return settings.session_expiry if facts is None else settings.link_session_expiry


def check_epoch(broker: Broker, client_id: str, facts: LinkFacts) -> None:
    """Two nodes of a domain may both believe to run one link. While the one with the higher epoch is connected, the other one
    does not take its session over. Raises MqttError."""
    session = broker.sessions.get(client_id)
    if session is None or session.connection is None:
        return
    present = session.connection.link
    if present is not None and present.domain == facts.domain and 0 < facts.epoch < present.epoch:
        raise MqttError(
            IMPLEMENTATION_SPECIFIC_ERROR,
            f"{FENCED}: another node of {facts.domain.decode()} holds the session with epoch {present.epoch}",
        )


def check_taker(broker: Broker, client_id: str, username: str, link_domain: str, now: float) -> None:
    """A session that a link has made is its queue: only the same user resumes or ends it, or an account of its domain
    (`link_domain`). `release_session` lets another user do so. Raises MqttError."""
    session = broker.sessions.get(client_id)
    if session is None or session.link is None or (session.connection is None and session.deadline() <= now):
        return
    facts = session.link
    if session.username == username or facts.is_released or link_domain.encode() == facts.domain:
        return
    raise MqttError(CLIENT_IDENTIFIER_NOT_VALID, "the session belongs to a link of another user")


def release_session(session: Session) -> bool:
    """Let the next client take up the session of a link, whoever its user is. False for the session of no link."""
    if session.link is None:
        return False
    session.link.is_released = True
    return True


def begin_link(
    broker: Broker, connection: Output, client_id: str, facts: LinkFacts, has_role: bool, answer: Properties
) -> bool:
    """CONNECT is accepted: the client is a link from now on, if its account may be one. CONNACK says so. Raises MqttError."""
    settings = broker.settings
    if has_role:
        check_epoch(broker, client_id, facts)
        connection.link = facts
        connection.aliases = None  # a run has no topic alias yet, and would be sent one by one
        welcome = LinkWelcome(
            broker.domain,
            facts.version,
            "",
            settings.link_max_queued_messages,
            settings.link_max_queued_bytes,
            broker.lending is not None,
        )
    else:
        broker.counters.links_refused += 1
        welcome = LinkWelcome(NO_DOMAIN, facts.version, NO_ROLE, -1, -1)
    answer[props.USER_PROPERTY] = [(NAME_TEXT, encode_welcome(welcome).decode())]
    return has_role


def admit_publish(broker: Broker, connection: Output, sent: Publication, is_resent: bool) -> tuple[int, str, int]:
    """What a PUBLISH means that comes over a link, or has a header. Sets its origin. Returns (reason code of the answer, why it
    is dropped or "", links that the best copy of it before has passed: NEW for none)."""
    facts = connection.link
    if facts is None:
        sent.properties, headers = split_properties(sent.properties)
        broker.counters.link_headers_stripped += len(headers)
        return SUCCESS, "", NEW
    drop_reason = ""
    hops_before = NEW
    if sent.retain and facts.gate is not None and not broker.settings.retain_available:
        drop_reason = DROP_LINK_RETAINED  # no SUBSCRIBE of MQTT 3.1.1 asks for messages without it
    else:
        drop_reason = take_header(broker, facts, sent)
    if not drop_reason and sent.origin is not None:
        hops_before = broker.duplicates.judge(sent.origin, is_resent)
        if hops_before == SEEN:
            drop_reason = DROP_LINK_DUPLICATE
            if facts.jobs is not None:  # refused jobs go back to the upstream's queue. This one is here
                return SUCCESS, drop_reason, SEEN
    if not drop_reason and facts.jobs is None and not facts.takes(sent.topic):
        drop_reason = DROP_LINK_TOPIC
    return IMPLEMENTATION_SPECIFIC_ERROR, drop_reason, hops_before


def take_header(broker: Broker, facts: LinkFacts, sent: Publication) -> str:
    """Set the origin of a message by its header, which is taken out of its properties. Returns why it is dropped or ""."""
    sent.origin = facts.origin
    if not sent.properties or NAME not in sent.properties:
        return ""
    sent.properties, headers = split_properties(sent.properties)
    if not headers:
        return ""
    try:
        sent.origin = origin = received(headers, facts.domain, facts.addresses[0] if facts.addresses else b"")
    except HeaderError:
        return DROP_LINK_HEADER
    if facts.jobs is None and queue_of(origin):
        return DROP_LINK_HEADER
    if broker.domain != NO_DOMAIN and broker.domain in origin.path and not facts.is_node:
        return DROP_LINK_PATH
    if facts.gate is not None and len(origin.path) > facts.gate.max_hops:
        return DROP_LINK_HOPS
    if origin.others is not None and LATE in origin.others and not is_outdated(broker, sent.topic, origin):
        return DROP_LINK_DUPLICATE
    return ""


def route_from_link(
    broker: Broker, connection: Output, route: Route, sent: Publication, hops_before: int, now: float
) -> tuple[int, str]:
    """Route what came over a link. A job goes to its group on this node, and to no other subscriber. Returns (reason code, why
    it is dropped or "")."""
    facts = connection.link
    if facts is not None and facts.jobs is not None:
        lending = broker.lending
        full = facts.jobs.get(queue_of(sent.origin))
        group = None if lending is None or full is None else lending.group_of(full)
        if group is None or not isinstance(sent, Message) or not broker.router.hand_over(group, sent, now):
            return IMPLEMENTATION_SPECIFIC_ERROR, DROP_GROUP_GONE
        reason_code = SUCCESS
    elif hops_before == NEW or not isinstance(sent, Message):
        reason_code = broker.router.route(route, sent, connection, now)
    else:
        reason_code = broker.router.route_copy(route, sent, hops_before, connection, now)
    if sent.origin is not None:
        broker.duplicates.note(sent.origin, hops_before, True)
    return reason_code, ""


def is_outdated(broker: Broker, topic: bytes, deletion: Origin) -> bool:
    """Whether the retained message of a topic is older than its deletion elsewhere."""
    held = broker.retained.get(topic)
    return held is not None and (held.origin is None or held.origin.published_at_ms < deletion.published_at_ms)


def count_refused(connection: Output, reason: str, count: int) -> None:
    """Messages of a connection were not published: a link of this node counts them."""
    facts = connection.link
    if facts is not None and facts.gate is not None:
        facts.gate.count_refused(reason, count)


def limit_of(session: Session, packet: Subscribe) -> int:
    """How many jobs a SUBSCRIBE of a queue link asks for; NO_LIMIT for any other one. Raises ProtocolViolation."""
    if session.link is not None:
        for header in headers_of(packet.properties):
            try:
                limit = parse_limit(header)
            except HeaderError as error:
                raise ProtocolViolation(f"user property {NAME_TEXT} of SUBSCRIBE: {error.text}") from None
            if limit != NO_LIMIT:
                return limit
    return NO_LIMIT


def not_asked(session: Session, packet: Unsubscribe) -> list[bytes]:
    """The filters that an UNSUBSCRIBE of a link ends besides its own: those that the link has not asked for on this connection.
    Raises ProtocolViolation."""
    facts = session.link
    if facts is None:
        return []
    for header in headers_of(packet.properties):
        try:
            if parse_only_asked(header):
                return [full for full in session.subscriptions if full not in facts.asked]
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of UNSUBSCRIBE: {error.text}") from None
    return []


def wants_of(session: Session, packet: Subscribe) -> tuple[bytes, ...]:
    """Who wants the filters of a SUBSCRIBE, for a link session. Raises ProtocolViolation."""
    facts = session.link
    if facts is None:
        return ()
    headers = headers_of(packet.properties)
    if len(headers) > WANTS_MAX:
        raise ProtocolViolation(f"SUBSCRIBE has {len(headers)} user properties {NAME_TEXT}, at most {WANTS_MAX}")
    wants: list[bytes] = []
    for header in headers:
        try:
            want = parse_want(header)
        except HeaderError as error:
            raise ProtocolViolation(f"user property {NAME_TEXT} of SUBSCRIBE: {error.text}") from None
        if facts.domain not in (want.path[-1], NO_DOMAIN):
            raise ProtocolViolation(
                f"user property {NAME_TEXT} of SUBSCRIBE: the path ends with {want.path[-1].decode()}, "
                f"must end with the domain of the link, {facts.domain.decode()}"
            )
        wants.append(canonical_want(header))
    return tuple(sorted(wants))
