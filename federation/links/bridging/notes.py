"""Notes that the interest in a filter carries to other nodes and to the plugin `links`: which links want it.

    b""                           clients want it, no link does
    b"1" HEADER… or b"0" HEADER…  links want it, with b"1" clients, too; each HEADER is b"\\n" and a header of SUBSCRIBE
                                  (federation/links/bridging/headers.py)
    b"1n" …, b"0n" …              one of the links relays to further domains: messages need numbers

A shared group counts as clients.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final, cast

from broker.routing.subscriber import Subscriber
from broker.routing.subscription import FilterEntry, Subscription
from federation.links.bridging.ends import LinkEnd
from federation.links.bridging.headers import WANTS_MAX, encode_want

CLIENTS_ONLY: Final = b""
LINKS: Final = b"0"
LINKS_AND_CLIENTS: Final = b"1"
NUMBERS: Final = b"n"
NOTE_BYTES_MAX: Final = 32_768  # further headers of one filter are left out


class Notes:
    """Those of one node."""

    def __init__(self) -> None:
        self._links: dict[bytes, dict[Subscriber, Subscription]] = {}  # subscriptions of links, by filter
        self._notes: dict[bytes, bytes] = {}  # by filter, of those that links want

    def of(self, topic_filter: bytes) -> bytes:
        return self._notes.get(topic_filter, CLIENTS_ONLY)

    def subscribed(self, entry: FilterEntry, subscription: Subscription) -> bool:
        """A subscription was added, or changed. True when the note of its filter is another one."""
        links = self._links.get(entry.topic_filter)
        if subscription.session.bridge_end is not None:
            if links is None:
                links = self._links[entry.topic_filter] = {}
            links[subscription.session] = subscription
        elif links is not None:
            links.pop(subscription.session, None)
        return links is not None and self._renew(entry.topic_filter, links, len(entry.subscriptions))

    def unsubscribed(self, entry: FilterEntry | None, subscription: Subscription) -> bool:
        """The reverse of `subscribed`; None for a filter without any subscription."""
        links = self._links.get(subscription.topic_filter)
        if links is None:
            return False
        links.pop(subscription.session, None)
        count = 0 if entry is None else len(entry.subscriptions)
        return self._renew(subscription.topic_filter, links, count)

    def _renew(self, topic_filter: bytes, links: dict[Subscriber, Subscription], count: int) -> bool:
        """Make the note of a filter with so many subscriptions anew. True when it is another one."""
        before = self._notes.pop(topic_filter, CLIENTS_ONLY)
        if not links:
            del self._links[topic_filter]
            return before != CLIENTS_ONLY
        note = encode_note(list(links.values()), count > len(links))
        self._notes[topic_filter] = note
        return note != before


def encode_note(subscriptions: list[Subscription], has_clients: bool) -> bytes:
    """The note of a filter to which links have subscribed."""
    headers: dict[bytes, None] = {}
    relays = False
    for subscription in subscriptions:
        end = cast(LinkEnd, subscription.session.bridge_end)
        relays = relays or end.relays or is_relayed(subscription.along)
        if end.is_own:
            continue  # a link of this node that pushes: it takes what is here, and asks for nothing from elsewhere
        for header in subscription.along or (encode_want((end.domain,), end.max_hops),):
            headers[header] = None
    note = LINKS_AND_CLIENTS if has_clients else LINKS
    if relays:
        note += NUMBERS
    for count, header in enumerate(sorted(headers)):
        if count == WANTS_MAX or len(note) + len(header) >= NOTE_BYTES_MAX:
            break
        note += b"\n" + header
    return note


def parse_note(note: bytes) -> tuple[bool, list[bytes]]:
    """(whether clients want the filter, headers of links) of a note."""
    headers = note.split(b"\n")
    return not headers[0].startswith(LINKS), headers[1:]


def needs_numbers(note: bytes) -> bool:
    """Return whether one of the links of a note relays messages to further domains."""
    return note[1:2] == NUMBERS


def is_relayed(wants: tuple[bytes, ...]) -> bool:
    """Return whether one of the headers of a SUBSCRIBE has a path of two domains and more: the first one wants the
    messages, the last one relays them."""
    return True in [b"," in want.rpartition(b" path=")[2] for want in wants]
