from __future__ import annotations

import pytest

from broker.link_header import NO_DOMAIN, encode_header
from federation.links.duplicates import DuplicateWindow
from federation.links.incoming import Refusal, accepts

OWN = b"paris"
UPSTREAM = b"berlin"


def test_a_message_without_a_header_comes_from_the_upstream() -> None:
    assert accepts([], UPSTREAM, OWN, 1, None) == (encode_header((UPSTREAM,)), None)
    assert accepts([], NO_DOMAIN, OWN, 1, None) == (encode_header((NO_DOMAIN,)), None)


@pytest.mark.parametrize(
    ("headers", "refusal"),
    [
        ([b"1 path=berlin"], None),
        ([b"1 path=rome,berlin"], None),
        ([b"1 path=oslo,rome,berlin"], Refusal.HOPS),
        ([b"1 path=paris,berlin"], Refusal.PATH),
        ([b"1 path=paris,rome,oslo,berlin"], Refusal.PATH),
        ([b"1 path=rome"], Refusal.HEADER),  # forged: the upstream has not passed it on
        ([b"1 path=berlin,rome"], Refusal.HEADER),
        ([b"1 path="], Refusal.HEADER),
        ([b"1 path=rome,rome,berlin"], Refusal.HEADER),
        ([b"nonsense"], Refusal.HEADER),
        ([b"1 path=berlin", b"1 path=berlin"], Refusal.HEADER),
    ],
)
def test_headers_of_an_upstream_of_this_kind(headers: list[bytes], refusal: Refusal | None) -> None:
    link, found = accepts(headers, UPSTREAM, OWN, 2, DuplicateWindow())
    assert found is refusal
    assert link == (headers[0] if refusal is None else b"")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"1 path=berlin", b"1 path=berlin,-"),
        (b"1 path=berlin,-", b"1 path=berlin,-"),
        (b"1 node=n~1 seq=4 path=berlin", b"1 node=n~1 seq=4 path=berlin,-"),
        (b"1 path=paris", Refusal.PATH),
        (b"1 path=berlin,rome", Refusal.HOPS),
    ],
)
def test_headers_that_a_broker_of_another_kind_lets_through(header: bytes, expected: bytes | Refusal) -> None:
    link, refusal = accepts([header], NO_DOMAIN, OWN, 2, None)
    assert (refusal or link) == expected


def test_the_second_copy_of_a_message_is_refused() -> None:
    window = DuplicateWindow()
    assert accepts([b"1 node=n~1 seq=4 path=root,berlin"], UPSTREAM, OWN, 2, window)[1] is None
    assert accepts([b"1 node=n~1 seq=4 path=root,rome"], b"rome", OWN, 2, window)[1] is Refusal.DUPLICATE
    assert accepts([b"1 node=n~1 seq=5 path=root,rome"], b"rome", OWN, 2, window)[1] is None
    assert accepts([b"1 node=n~2 seq=4 path=root,rome"], b"rome", OWN, 2, window)[1] is None


def test_a_message_that_is_refused_does_not_count_as_seen() -> None:
    window = DuplicateWindow()
    assert accepts([b"1 node=n~1 seq=4 path=root,rome,berlin"], UPSTREAM, OWN, 2, window)[1] is Refusal.HOPS
    assert accepts([b"1 node=n~1 seq=4 path=root,berlin"], UPSTREAM, OWN, 2, window)[1] is None
