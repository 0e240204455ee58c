"""Which messages with headers come in over a link."""

from __future__ import annotations

import pytest

from broker.counters import DROP_LINK_DUPLICATE, DROP_LINK_HOPS
from broker.link_header import parse_header
from federation.links.duplicates import DuplicateWindow
from federation.links.incoming import IncomingGate


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"1 path=berlin", ""),
        (b"1 path=rome,berlin", ""),
        (b"1 path=oslo,rome,berlin", DROP_LINK_HOPS),
    ],
)
def test_max_hops_bounds_the_path(header: bytes, reason: str) -> None:
    gate = IncomingGate(2, DuplicateWindow())
    assert gate.refuses(parse_header(header)) == reason


def test_the_second_copy_of_a_message_is_refused_on_every_link() -> None:
    window = DuplicateWindow()
    first, second = IncomingGate(2, window), IncomingGate(2, window)
    assert first.refuses(parse_header(b"1 node=n~1 seq=4 path=root,berlin")) == ""
    assert second.refuses(parse_header(b"1 node=n~1 seq=4 path=root,rome")) == DROP_LINK_DUPLICATE
    assert second.refuses(parse_header(b"1 node=n~1 seq=5 path=root,rome")) == ""
    assert second.refuses(parse_header(b"1 node=n~2 seq=4 path=root,rome")) == ""


def test_refused_messages_are_counted_by_reason() -> None:
    gate = IncomingGate(2, DuplicateWindow())
    gate.count_refused("publish_not_authorized", 3)
    gate.count_refused(DROP_LINK_HOPS, 1)
    gate.count_refused("publish_not_authorized", 1)
    assert gate.dropped == {"publish_not_authorized": 4, DROP_LINK_HOPS: 1}


def test_a_message_that_is_refused_does_not_count_as_seen() -> None:
    gate = IncomingGate(2, DuplicateWindow())
    assert gate.refuses(parse_header(b"1 node=n~1 seq=4 path=root,rome,berlin")) == DROP_LINK_HOPS
    assert gate.refuses(parse_header(b"1 node=n~1 seq=4 path=root,berlin")) == ""
