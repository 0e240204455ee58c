"""Which subscriptions of a filter are of links, as other nodes and plugin `links` are told.

The value `link_wants` of a filter:

    b""                           clients want it, no link does
    b"1" HEADER… or b"0" HEADER…  links want it, with b"1" clients, too; each HEADER is b"\\n" and a header of SUBSCRIBE
                                  (broker/link_header.py)
    b"1n" …, b"0n" …              one of the links relays to further domains: messages need numbers

A shared group counts as clients.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.context import Context
from broker.link_header import WANTS_MAX, LinkFacts, encode_want
from broker.routing.link_routes import is_relayed
from broker.routing.subscription import FilterEntry, Subscription
from broker.routing.trie import Trie

CLIENTS_ONLY: Final = b""
LINKS: Final = b"0"
LINKS_AND_CLIENTS: Final = b"1"
NUMBERS: Final = b"n"
LINK_WANTS_BYTES_MAX: Final = 32_768  # further headers of one filter are left out


def note_added(context: Context, tree: Trie, subscription: Subscription, is_first: bool) -> None:
    """A subscription was added to the tree. Tell the other nodes and the observer if that changes what they know."""
    share_name, topic_filter = subscription.share_name, subscription.topic_filter
    is_changed = _take_in(context, tree, subscription)
    if is_first:
        context.forwarder.interest_added(share_name, topic_filter)
        observer = context.interest_observer
        if observer is not None:
            observer.interest_added("", share_name, topic_filter, link_wants(tree, share_name, topic_filter))
    elif is_changed:
        _tell(context, tree, topic_filter)


def note_removed(context: Context, tree: Trie, subscription: Subscription, is_last: bool) -> None:
    """A subscription was removed from the tree."""
    share_name, topic_filter = subscription.share_name, subscription.topic_filter
    is_changed = _take_out(context, tree, subscription)
    if is_last:
        context.forwarder.interest_removed(share_name, topic_filter)
        if context.interest_observer is not None:
            context.interest_observer.interest_removed("", share_name, topic_filter)
    elif is_changed:
        _tell(context, tree, topic_filter)


def note_changed(context: Context, tree: Trie, subscription: Subscription) -> None:
    """A subscription in the tree has other `wants`, or its session is one of another link."""
    topic_filter = subscription.topic_filter
    before = link_wants(tree, b"", topic_filter)
    _take_out(context, tree, subscription)
    _take_in(context, tree, subscription)
    if link_wants(tree, b"", topic_filter) != before:
        _tell(context, tree, topic_filter)


def note_link(
    context: Context, tree: Trie, subscriptions: list[Subscription], before: LinkFacts | None, link: LinkFacts | None
) -> None:
    """The session of these subscriptions is one of another link than before, or of none."""
    if before is link or (
        before is not None
        and link is not None
        and before.domain == link.domain
        and before.max_hops == link.max_hops
        and before.relays == link.relays
        and (before.gate is None) == (link.gate is None)
    ):
        return
    for subscription in subscriptions:
        note_changed(context, tree, subscription)


def link_wants(tree: Trie, share_name: bytes, topic_filter: bytes) -> bytes:
    """Which links want a filter of this node."""
    entry = cast("FilterEntry | None", tree.get(topic_filter))
    return CLIENTS_ONLY if entry is None or share_name else entry.link_wants


def parse_link_wants(value: bytes) -> tuple[bool, list[bytes]]:
    """(whether clients want the filter, headers of links) of a `link_wants`."""
    headers = value.split(b"\n")
    return not headers[0].startswith(LINKS), headers[1:]


def needs_numbers(value: bytes) -> bool:
    """Whether one of the links of a `link_wants` relays messages to further domains."""
    return value[1:2] == NUMBERS


def _tell(context: Context, tree: Trie, topic_filter: bytes) -> None:
    context.forwarder.link_wants_changed(topic_filter)
    if context.interest_observer is not None:
        context.interest_observer.link_wants_changed("", topic_filter, link_wants(tree, b"", topic_filter))


def _take_in(context: Context, tree: Trie, subscription: Subscription) -> bool:
    """Count a subscription that is in the tree. True when that changes the `link_wants` of its filter."""
    is_link = subscription.session.link is not None
    if is_link:
        context.has_seen_links = True
    if subscription.share_name or not context.has_seen_links:
        return False
    entry = cast(FilterEntry, tree.get(subscription.topic_filter))
    if is_link:
        if entry.links is None:
            entry.links = {}
        entry.links[subscription.session] = subscription
    return _renew(entry)


def _take_out(context: Context, tree: Trie, subscription: Subscription) -> bool:
    """The reverse of `_take_in`, also for a subscription that is in the tree no more."""
    if subscription.share_name or not context.has_seen_links:
        return False
    entry = cast("FilterEntry | None", tree.get(subscription.topic_filter))
    if entry is None or entry.links is None:
        return False
    entry.links.pop(subscription.session, None)
    is_changed = _renew(entry)
    if not entry.links:
        entry.links = None
    return is_changed


def _renew(entry: FilterEntry) -> bool:
    """Make the `link_wants` of a filter anew. True when it is another one."""
    links = entry.links
    before = entry.link_wants
    if not links:
        entry.link_wants = CLIENTS_ONLY
        return before != CLIENTS_ONLY
    headers: dict[bytes, None] = {}
    relays = False
    for subscription in links.values():
        link = subscription.session.link
        relays = relays or is_relayed(subscription.wants) or (link is not None and link.relays)
        if link is not None and link.gate is not None:
            continue  # a link of this node that pushes: it takes what is here, and asks for nothing from elsewhere
        if subscription.wants:
            for header in subscription.wants:
                headers[header] = None
        elif link is not None:
            headers[encode_want((link.domain,), link.max_hops)] = None
    value = LINKS if len(links) == len(entry.subscriptions) else LINKS_AND_CLIENTS
    if relays:
        value += NUMBERS
    for count, header in enumerate(sorted(headers)):
        if count == WANTS_MAX or len(value) + len(header) >= LINK_WANTS_BYTES_MAX:
            break
        value += b"\n" + header
    entry.link_wants = value
    return value != before
