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
from federation.links.bridging.headers import INTERESTS_MAX, encode_interest

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

    def change(self, entry: FilterEntry | None, subscription: Subscription) -> bool:
        """As Bridging.interest_changed."""
        topic_filter, session = subscription.topic_filter, subscription.session
        links = self._links.get(topic_filter)
        if links is None and session.bridge_end is None:
            return False
        if links is None:
            links = self._links[topic_filter] = {}
        links.pop(session, None)
        if entry is not None and session in entry.subscriptions and session.bridge_end is not None:
            links[session] = subscription
        before = self._notes.pop(topic_filter, CLIENTS_ONLY)
        if entry is None or not links:
            del self._links[topic_filter]
            return before != CLIENTS_ONLY
        note = self._notes[topic_filter] = encode_note(list(links.values()), len(entry.subscriptions) > len(links))
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
        for header in subscription.along or (encode_interest((end.domain,), end.max_hops),):
            headers[header] = None
    note = LINKS_AND_CLIENTS if has_clients else LINKS
    if relays:
        note += NUMBERS
    for count, header in enumerate(sorted(headers)):
        if count == INTERESTS_MAX or len(note) + len(header) >= NOTE_BYTES_MAX:
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
