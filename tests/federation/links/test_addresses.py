"""The address of the next try of a link, and when its session counts as lost."""

from __future__ import annotations

from federation.definitions.uri import parse_uri
from federation.links.addresses import Addresses
from federation.links.client import EXPIRY_NEVER

URIS = tuple(parse_uri(f"mqtt://{name}.example.com") for name in ("a", "b", "c"))


def test_each_address_has_its_turn_without_a_session() -> None:
    addresses = Addresses(URIS, "seed")
    tried = []
    for _ in range(len(URIS)):
        tried.append(addresses.current)
        assert not addresses.next(0.0)
    assert set(tried) == set(URIS)
    assert addresses.current == tried[0]


def test_the_order_differs_between_links_and_not_between_processes() -> None:
    firsts = {Addresses(URIS, f"link {number}").current for number in range(50)}
    assert firsts == set(URIS)
    assert Addresses(URIS, "one").current == Addresses(URIS, "one").current


def test_a_link_goes_back_to_its_session_until_that_expires() -> None:
    addresses = Addresses(URIS, "seed")
    first = addresses.current
    addresses.accepted(False)
    addresses.lost(100, now=10.0)
    assert not addresses.next(109.0)
    assert addresses.current == first
    assert addresses.next(110.0)
    assert addresses.current != first
    assert addresses.sessions_lost == 1
    assert not addresses.has_session()


def test_other_keys_of_an_upstream_leave_a_link_where_its_session_is() -> None:
    before = Addresses(URIS, "seed")
    before.next(0.0)
    before.accepted(False)
    before.lost(100, now=10.0)
    addresses = Addresses(tuple(parse_uri(f"mqtt://u:p@{uri.host}?heartbeat=5") for uri in URIS), "seed")
    addresses.follow(before)
    assert (addresses.current.host, addresses.current.username) == (before.current.host, "u")
    assert addresses.has_session()
    assert not addresses.next(109.0)
    assert addresses.next(110.0)
    others = Addresses((parse_uri("mqtt://other.example.com"),), "seed")
    others.follow(before)
    assert not others.has_session()


def test_a_session_without_an_end_is_never_given_up() -> None:
    addresses = Addresses(URIS, "seed")
    first = addresses.current
    addresses.accepted(False)
    addresses.lost(EXPIRY_NEVER, now=10.0)
    assert not addresses.next(1e9)
    assert addresses.current == first


def test_a_session_that_the_upstream_has_no_more_is_lost() -> None:
    addresses = Addresses(URIS, "seed")
    addresses.accepted(False)
    assert addresses.sessions_lost == 0
    addresses.lost(100, now=0.0)
    addresses.accepted(True)
    assert addresses.sessions_lost == 0
    addresses.accepted(False)
    assert addresses.sessions_lost == 1
    addresses.forget_session()
    addresses.accepted(False)
    assert addresses.sessions_lost == 1
