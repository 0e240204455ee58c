"""Messages and links: which of them a domain gets, which headers they get and had on another node, which copies are new."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import Publish
from broker.codec.runs import Run
from broker.context import Context
from broker.counters import Counters
from broker.hooks import Peer
from broker.link_header import LinkFacts
from broker.message import NEVER, Message
from broker.origin import NAME, NO_DOMAIN, Origin, carried_origin, split_properties
from broker.publisher import Publisher
from broker.routing.duplicates import NEW, SEEN
from broker.routing.route import Route

AHEAD_MAX: Final = 60_000  # milliseconds that the clock of another node may be ahead


def is_relayed(wants: tuple[bytes, ...]) -> bool:
    """Whether one of the headers of a SUBSCRIBE has a path of two domains and more: the first one wants the messages, the last
    one relays them."""
    return any(b"," in want.rpartition(b" path=")[2] for want in wants)


def deliver_to_links(
    route: Route, message: Message, publisher: Publisher | None, now: float, counters: Counters, hops_before: int = NEW
) -> None:
    """Deliver to the link sessions on this node. `hops_before`: links that a copy before has passed, NEW for none. Domains of
    ours look at each copy by themselves; a broker of another kind gets this one only where that one went too far."""
    origin = message.origin
    for receiver in route.links:
        session = receiver.session
        facts = session.link
        if receiver.no_local and session.client_id == message.client_id:
            continue
        if facts is not None and origin is not None:
            if hops_before and facts.domain == NO_DOMAIN and hops_before < facts.max_hops:
                continue
            if is_skipped(facts, origin, 1, counters):
                continue
        qos = min(receiver.qos, message.qos)
        retain = message.retain and receiver.retain_as_published
        session.deliver(message, qos, retain, receiver.identifiers, publisher, now)


def deliver_shorter(
    context: Context, route: Route, message: Message, hops_before: int, publisher: Publisher | None, now: float
) -> None:
    """Deliver a copy that has passed fewer links than `hops_before` to links. Where the message is held as retained, links that
    subscribe later get this copy."""
    held = context.retained.get(message.topic) if message.retain else None
    origin = message.origin
    if held is not None and held.origin is not None and held.origin.node and origin is not None:
        other = held.origin
        if (origin.node, origin.sequence, origin.path[:1]) == (other.node, other.sequence, other.path[:1]):
            context.retained.put(message.copy())
    deliver_to_links(route, message, publisher, now, context.counters, hops_before)


def deliver_run_to_links(route: Route, run: Run, publisher: Publisher | None, now: float, counters: Counters) -> None:
    """As `deliver_to_links`, for a run. It stays one where its messages need no header."""
    origin = run.origin
    for receiver in route.links:
        session = receiver.session
        facts = session.link
        if receiver.no_local and session.client_id == run.client_id:
            continue
        if facts is not None and origin is not None and is_skipped(facts, origin, run.count, counters):
            continue
        if origin is not None or route.is_numbered or receiver.identifiers or (facts is not None and facts.is_explicit):
            for message in run.messages():
                session.deliver(message, 0, False, receiver.identifiers, publisher, now)
        else:
            session.deliver_run(run, publisher, now)


def is_skipped(facts: LinkFacts, origin: Origin, count: int, counters: Counters) -> bool:
    """Whether `count` messages of this origin do not go to a domain, which is counted."""
    if facts.refuses_path(origin):
        counters.link_path_skipped += count
        return True
    if facts.refuses_hops(origin):
        counters.link_hops_skipped += count
        return True
    return False


def complete_header(context: Context, route: Route, message: Message, now: float) -> None:
    """Give a message that is published on this node what its header needs. One that is out of date is not retained."""
    if route.has_links:
        give_number(context, route, message)
    if message.retain:
        message.retain = stays_retained(context, route, message, now)


def give_number(context: Context, route: Route, message: Message) -> None:
    """Give a message its number, where copies of it may come to one domain."""
    origin = message.origin
    if (route.is_numbered or message.qos == 2) and (origin is None or not origin.node):
        node, sequence = context.next_number()
        message.origin = (origin or Origin()).numbered(node, sequence)


def stays_retained(context: Context, route: Route, message: Message, now: float) -> bool:
    """Note when a retained message was published, where domains are linked. What a client publishes here is newer than what is
    here, whatever the clocks say. False for a message of another node that has waited while a newer one came, or the topic's
    was deleted. A time that is far from coming is now."""
    if context.domain == NO_DOMAIN and not route.has_links:
        return True
    held = context.retained.get(message.topic)
    if held is None or held.expires_at <= now:
        newest = context.deletions.time_of(message.topic)
    else:
        newest = 0 if held.origin is None else held.origin.published_at_ms
    origin = message.origin or Origin()
    at = origin.published_at_ms
    milliseconds = int((now + context.wall_offset) * 1000)
    if at == 0:
        at = max(milliseconds, newest + 1)
        message.origin = origin.timed(at)
    elif at > milliseconds + AHEAD_MAX:
        at = milliseconds
        message.origin = origin.timed(at)
    elif at < newest:
        return False
    if not message.payload and message.origin is not None:
        context.deletions.note(message.topic, message.origin)
    return True


def is_bare_for(peer: Peer, route: Route, message: Message) -> bool:
    """Whether another node gets the message without its header: none of its links wants it, nor can a copy come there."""
    return (
        peer not in route.link_peers
        and not message.retain
        and not (peer.names_groups and _may_come_again(message.origin))
    )


def _may_come_again(origin: Origin | None) -> bool:
    return origin is not None and origin.may_come_again()


def judge_event(context: Context, origin: Origin | None) -> int:
    """As `DuplicateWindow.judge`, for a message that another node of this domain has published."""
    if origin is None or not origin.may_come_again():
        return NEW
    hops_before = context.duplicates.judge(origin, False)
    if hops_before != SEEN:
        context.duplicates.note(origin, hops_before, False)
    return hops_before


def strip_headers(message: Message, counters: Counters) -> None:
    """Take headers out of a message of the API, which is no link."""
    if message.properties and NAME in message.properties:
        message.properties, found = split_properties(message.properties)
        counters.link_headers_stripped += len(found)


def message_of_node(publish: Publish, now: float) -> Message:
    """The message of a PUBLISH of another node. Its origin is the last of the properties."""
    origin = None
    if publish.properties and NAME in publish.properties:
        publish.properties, headers = split_properties(publish.properties)
        origin = carried_origin(headers)
    expiry = publish.message_expiry_interval
    expires_at = now + expiry if expiry >= 0 else NEVER
    return Message(
        publish.topic, publish.payload, publish.qos, publish.retain, publish.properties, expires_at, "", origin
    )
