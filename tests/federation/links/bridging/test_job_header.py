"""Headers of federated queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.origin import HeaderError, Origin, decode_origin
from federation.links.bridging.headers import (
    NO_LIMIT,
    NO_QUEUE,
    encode_limit,
    job,
    offer,
    offer_of,
    parse_limit,
    queue_of,
    quoted,
    unquoted,
    visits_of,
)

JOBS = b"$share/workers/jobs/#"


@given(st.text(min_size=1, max_size=60))
def test_names_of_queues_come_back(name: str) -> None:
    full = b"$share/g/" + name.encode("utf-8", "replace")
    assert unquoted(quoted(full)) == full
    assert not set(quoted(full)) & set(b" =,")


def test_a_job_has_its_queue_its_visits_and_a_number() -> None:
    link = job(quoted(JOBS), 3, b"n1~00000001", 42).passed(b"berlin").encode()
    assert link == b"1 queue=%s visits=3 node=n1~00000001 seq=42 path=berlin" % quoted(JOBS)
    header = decode_origin(link)
    assert (unquoted(queue_of(header)), visits_of(header)) == (JOBS, 3)
    assert (header.path, header.node, header.sequence) == ((b"berlin",), b"n1~00000001", 42)


@pytest.mark.parametrize("count", [0, 7, NO_QUEUE])
def test_an_offer_says_how_many(count: int) -> None:
    found = decode_origin(offer(quoted(JOBS), count, 9).passed(b"berlin").encode())
    assert offer_of(found) == (count, 9)
    assert unquoted(queue_of(found)) == JOBS
    assert found.path == (b"berlin",)


def test_headers_of_other_kinds_have_no_limit_and_no_queue() -> None:
    assert parse_limit(encode_limit(17)) == 17
    assert parse_limit(b"1 hops=2 path=oslo") == NO_LIMIT
    assert (queue_of(Origin((b"oslo",))), visits_of(None), queue_of(None)) == (b"", 0, b"")


@pytest.mark.parametrize("link", [b"1 limit=x", b"1 limit=-1", b"1 limit=99999999999999999999", b"1 limit=\xff"])
def test_fields_that_are_no_numbers(link: bytes) -> None:
    with pytest.raises(HeaderError, match="field limit is"):
        parse_limit(link)
