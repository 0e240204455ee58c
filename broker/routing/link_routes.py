"""Messages on their way to link sessions: which of them a domain gets, and which headers they had on another node."""

from __future__ import annotations

from broker.codec.packets import Publish
from broker.codec.runs import Run
from broker.counters import Counters
from broker.link_header import NAME, LinkFacts, forwarded, path_text, split_properties
from broker.message import Message
from broker.publisher import Publisher
from broker.routing.route import Route


def is_relayed(wants: tuple[bytes, ...]) -> bool:
    """Whether one of the headers of a SUBSCRIBE has a path of two domains and more: the first one wants the messages, the last
    one relays them."""
    return any(b"," in path_text(want) for want in wants)


def deliver_to_links(
    route: Route, message: Message, publisher: Publisher | None, now: float, counters: Counters
) -> None:
    """Deliver to the link sessions on this node."""
    link = message.link
    for receiver in route.links:
        session = receiver.session
        facts = session.link
        if receiver.no_local and session.client_id == message.client_id:
            continue
        if facts is not None and link and is_skipped(facts, link, 1, counters):
            continue
        qos = min(receiver.qos, message.qos)
        retain = message.retain and receiver.retain_as_published
        session.deliver(message, qos, retain, receiver.identifiers, publisher, now)


def deliver_run_to_links(route: Route, run: Run, publisher: Publisher | None, now: float, counters: Counters) -> None:
    """As `deliver_to_links`, for a run. It stays one where its messages need no header."""
    link = run.link
    for receiver in route.links:
        session = receiver.session
        facts = session.link
        if receiver.no_local and session.client_id == run.client_id:
            continue
        if facts is not None and link and is_skipped(facts, link, run.count, counters):
            continue
        if link or route.is_numbered or receiver.identifiers or (facts is not None and facts.is_explicit):
            for message in run.messages():
                session.deliver(message, 0, False, receiver.identifiers, publisher, now)
        else:
            session.deliver_run(run, publisher, now)


def is_skipped(facts: LinkFacts, link: bytes, count: int, counters: Counters) -> bool:
    """Whether `count` messages with this header do not go to a domain, which is counted."""
    if facts.refuses_path(link):
        counters.link_path_skipped += count
        return True
    if facts.refuses_hops(link):
        counters.link_hops_skipped += count
        return True
    return False


def strip_headers(message: Message, counters: Counters) -> None:
    """Take headers out of a message of the API, which is no link."""
    if message.properties and NAME in message.properties:
        message.properties, found = split_properties(message.properties)
        counters.link_headers_stripped += len(found)


def take_header_of_node(publish: Publish) -> bytes:
    """Take the header out of the properties of a message of another node."""
    if not publish.properties or NAME not in publish.properties:
        return b""
    publish.properties, headers = split_properties(publish.properties)
    return forwarded(headers)
