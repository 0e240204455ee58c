"""The header of links: of CONNECT, CONNACK and SUBSCRIBE."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.origin import (
    NO_DOMAIN,
    PATH_MAX,
    HeaderError,
    Origin,
    decode_origin,
)
from broker_world import World
from federation.links.bridging.headers import (
    LinkWelcome,
    encode_connect,
    encode_interest,
    encode_welcome,
    origin_node,
    parse_connect,
    parse_interest,
    parse_welcome,
)
from link_ends import remote_end

BROKER = World().broker
DOMAINS = st.from_regex(rb"\A[A-Za-z0-9][A-Za-z0-9._@:~%+-]{0,20}\Z")
PATHS = st.lists(DOMAINS, max_size=PATH_MAX, unique=True).map(tuple)
NODES = st.one_of(
    st.just(b""), st.builds(origin_node, st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 2**32 - 1))
)


@given(PATHS, DOMAINS)
def test_a_message_is_refused_for_the_domains_of_its_path_and_for_no_other(
    path: tuple[bytes, ...], domain: bytes
) -> None:
    end = remote_end(BROKER, domain, 3)
    assert end.refuses_path(Origin(path)) == (domain in path)
    assert end.refuses_hops(Origin(path)) == (len(path) >= 3)
    assert not remote_end(BROKER, NO_DOMAIN, 3).refuses_path(Origin((NO_DOMAIN,)))


@given(st.binary(max_size=60))
def test_a_header_of_any_bytes_is_read_or_refused(value: bytes) -> None:
    for read in (decode_origin, parse_connect, parse_welcome, parse_interest):
        for text in (value, b"1 " + value, b"1 path=" + value, b"1 domain=" + value, b"1 hops=1 path=a" + value):
            with contextlib.suppress(HeaderError):
                read(text)


@pytest.mark.parametrize("value", [b"1 domain=", b"1 domain=a,b", b"1 max-hops=0", b"1 relays=2", b"1 max-hops=x"])
def test_faulty_headers_of_connect_are_refused(value: bytes) -> None:
    with pytest.raises(HeaderError):
        parse_connect(value)


@pytest.mark.parametrize("value", [b"1", b"1 path=", b"1 path=a hops=0", b"1 path=a,a hops=1"])
def test_faulty_headers_of_subscribe_are_refused(value: bytes) -> None:
    with pytest.raises(HeaderError):
        parse_interest(value)


def test_the_headers_of_a_later_version_are_read() -> None:
    header = decode_origin(b"2 path=a,b colour=blue node=n~00000001 seq=5")
    assert (header.path, header.node, header.sequence) == ((b"a", b"b"), b"n~00000001", 5)
    assert header.encode() == b"2 colour=blue node=n~00000001 seq=5 path=a,b"
    facts = parse_connect(b"2 domain=berlin max-hops=3 relays=1 colour=blue")
    assert (facts.domain, facts.max_hops, facts.relays, facts.version) == (b"berlin", 3, True, 1)
    want = parse_interest(b"2 path=a,b hops=2 colour=blue")
    assert (want.path, want.hops) == ((b"a", b"b"), 2)
    assert parse_welcome(b"2 domain=rome colour=blue").version == 1


def test_the_headers_of_connect_connack_and_subscribe_are_read_as_they_were_written() -> None:
    facts = parse_connect(encode_connect(b"berlin", 4, True, epoch=1_763_840_000_123))
    assert (facts.domain, facts.max_hops, facts.relays, facts.epoch) == (b"berlin", 4, True, 1_763_840_000_123)
    assert parse_connect(encode_connect(b"berlin", 4, True)).epoch == 0
    welcome = parse_welcome(encode_welcome(LinkWelcome(NO_DOMAIN, 1, "", 1000, 0)))
    assert (welcome.domain, welcome.refused, welcome.queue_messages, welcome.queue_bytes) == (NO_DOMAIN, "", 1000, 0)
    assert parse_welcome(encode_welcome(LinkWelcome(b"x", 1, "role", 1, 1))).refused == "role"
    want = parse_interest(encode_interest((b"a", b"b"), 2))
    assert (want.path, want.hops) == ((b"a", b"b"), 2)
