"""Headers of federated queues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.job_header import (
    NO_LIMIT,
    NO_QUEUE,
    encode_job,
    encode_limit,
    encode_offer,
    offer_of,
    parse_limit,
    queue_of,
    quoted,
    sent_of,
    unquoted,
    visits_of,
)
from broker.link_header import LinkHeaderError, canonical, extended, parse_header

JOBS = b"$share/workers/jobs/#"


@given(st.text(min_size=1, max_size=60))
def test_names_of_queues_come_back(name: str) -> None:
    full = b"$share/g/" + name.encode("utf-8", "replace")
    assert unquoted(quoted(full)) == full
    assert not set(quoted(full)) & set(b" =,")


def test_a_job_has_its_queue_its_visits_and_a_number() -> None:
    link = extended(encode_job(quoted(JOBS), 3, b"n1~00000001", 42), b"berlin")
    assert canonical(link) == link
    assert (unquoted(queue_of(link)), visits_of(link)) == (JOBS, 3)
    header = parse_header(link)
    assert (header.path, header.node, header.sequence) == ((b"berlin",), b"n1~00000001", 42)


@pytest.mark.parametrize("count", [0, 7, NO_QUEUE])
def test_an_offer_says_how_many(count: int) -> None:
    link = extended(encode_offer(quoted(JOBS), count, 9), b"berlin")
    assert (offer_of(link), sent_of(link)) == (count, 9)
    assert unquoted(queue_of(link)) == JOBS
    assert parse_header(link).path == (b"berlin",)


def test_headers_of_other_kinds_have_no_limit_and_no_queue() -> None:
    assert parse_limit(encode_limit(17)) == 17
    assert parse_limit(b"1 hops=2 path=oslo") == NO_LIMIT
    assert (queue_of(b"1 path=oslo"), visits_of(b""), queue_of(b"")) == (b"", 0, b"")


@pytest.mark.parametrize("link", [b"1 limit=x", b"1 limit=-1", b"1 limit=99999999999999999999", b"1 limit=\xff"])
def test_fields_that_are_no_numbers(link: bytes) -> None:
    with pytest.raises(LinkHeaderError, match="field limit is"):
        parse_limit(link)
