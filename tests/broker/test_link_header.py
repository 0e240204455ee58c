"""The header of links: written, read, extended, refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import encode_publish_properties
from broker.link_header import (
    NO_DOMAIN,
    PATH_MAX,
    PROPERTY_HEAD,
    SEQUENCE_MAX,
    LinkFacts,
    LinkHeaderError,
    LinkWelcome,
    canonical,
    check_domain,
    encode_connect,
    encode_header,
    encode_want,
    encode_welcome,
    extended,
    hops,
    is_sequenced,
    may_come_again,
    numbered,
    origin_node,
    parse_connect,
    parse_header,
    parse_want,
    parse_welcome,
    property_of,
    split_properties,
    time_of,
    timed,
)

DOMAINS = st.from_regex(rb"\A[A-Za-z0-9][A-Za-z0-9._@:~%+-]{0,20}\Z")
PATHS = st.lists(DOMAINS, max_size=PATH_MAX, unique=True).map(tuple)
NODES = st.one_of(
    st.just(b""), st.builds(origin_node, st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 2**32 - 1))
)


@given(PATHS, NODES, st.integers(0, SEQUENCE_MAX))
def test_a_header_is_read_as_it_was_written(path: tuple[bytes, ...], node: bytes, sequence: int) -> None:
    link = encode_header(path, node, sequence)
    header = parse_header(link)
    assert (header.path, header.node, header.sequence) == (path, node, sequence if node else 0)
    assert canonical(link) == link
    assert hops(link) == len(path)
    assert is_sequenced(link) == (node != b"")


@given(PATHS, NODES.filter(bool), st.integers(1, SEQUENCE_MAX), st.integers(1, SEQUENCE_MAX))
def test_numbers_and_times_are_added_to_a_header(path: tuple[bytes, ...], node: bytes, first: int, second: int) -> None:
    for link in (encode_header(path), b"1 new=field path=" + b",".join(path)):
        found = numbered(timed(link, first), node, 7)
        assert canonical(found) == found
        header = parse_header(found)
        assert (header.path, header.node, header.sequence) == (path, node, 7)
        assert (time_of(found), time_of(link)) == (first, 0)
        assert timed(found, second) == found.replace(b"time=%d " % first, b"time=%d " % second)
        assert may_come_again(found) == (path != ())
        assert not may_come_again(link)
    assert timed(b"", first) == b"1 time=%d path=" % first
    assert numbered(b"", node, 7) == encode_header((), node, 7)


@given(PATHS.filter(lambda path: len(path) < PATH_MAX), NODES, DOMAINS)
def test_a_header_is_extended_by_the_domain_that_the_message_leaves(
    path: tuple[bytes, ...], node: bytes, domain: bytes
) -> None:
    link = encode_header(path, node, 7)
    assert extended(link, domain) == encode_header((*path, domain), node, 7)
    assert extended(b"", domain) == encode_header((domain,))


@given(PATHS, DOMAINS)
def test_a_message_is_refused_for_the_domains_of_its_path_and_for_no_other(
    path: tuple[bytes, ...], domain: bytes
) -> None:
    facts = LinkFacts(domain, 3)
    link = encode_header(path)
    assert facts.refuses_path(link) == (domain in path)
    assert facts.refuses_hops(link) == (len(path) >= 3)
    assert not facts.refuses_path(b"")
    assert not facts.refuses_hops(b"")
    assert not LinkFacts(NO_DOMAIN, 3).refuses_path(encode_header((NO_DOMAIN,)))


@given(st.binary(max_size=60))
def test_a_header_of_any_bytes_is_read_or_refused(value: bytes) -> None:
    for read in (parse_header, parse_connect, parse_welcome, parse_want):
        for text in (value, b"1 " + value, b"1 path=" + value, b"1 domain=" + value, b"1 hops=1 path=a" + value):
            with contextlib.suppress(LinkHeaderError):
                read(text)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (b"", "does not begin with its version"),
        (b"path=a", "does not begin with its version"),
        (b"0 path=a", "does not begin with its version"),
        (b"-1 path=a", "does not begin with its version"),
        (b"99999 path=a", "does not begin with its version"),
        (b"1", "has no path"),
        (b"1 node=n~0 seq=1", "has no path"),
        (b"1 path", "is not KEY=TEXT"),
        (b"1  path=a", "is not KEY=TEXT"),
        (b"1 path=a path=b", "is twice in one header"),
        (b"1 path=a,,b", "domain name ''"),
        (b"1 path=a,a", "is twice in one path"),
        (b"1 path=.a", "domain name '.a'"),
        (b"1 path=a\0", "domain name"),
        (b"1 path=\xc3\xa4", "domain name"),
        (b"1 path=" + b"a" * 65, "1 to 64 letters"),
        (b"1 path=" + b",".join(b"d%d" % i for i in range(65)), "path of 65 domains, at most 64"),
        (b"1 x=" + b"y" * 9000, "at most 8192"),
        (b"1 node=n~0 path=a", "only one of node and seq"),
        (b"1 seq=1 path=a", "only one of node and seq"),
        (b"1 node=n seq=-1 path=a", "may be 0 to 9223372036854775807"),
        (b"1 node=n seq=9223372036854775808 path=a", "may be 0 to 9223372036854775807"),
        (b"1 node=n seq=1_0 path=a", "may be 0 to"),
        (b"1 node=n,m seq=1 path=a", "no name of a node"),
        (b"1 time=x path=a", "may be 1 to"),
        (b"1 time=0 path=a", "may be 1 to"),
    ],
)
def test_faulty_headers_of_messages_are_refused(value: bytes, part: str) -> None:
    with pytest.raises(LinkHeaderError) as caught:
        parse_header(value)
    assert part in caught.value.text


@pytest.mark.parametrize("value", [b"1 domain=", b"1 domain=a,b", b"1 max-hops=0", b"1 relays=2", b"1 max-hops=x"])
def test_faulty_headers_of_connect_are_refused(value: bytes) -> None:
    with pytest.raises(LinkHeaderError):
        parse_connect(value)


@pytest.mark.parametrize("value", [b"1", b"1 path=", b"1 path=a hops=0", b"1 path=a,a hops=1"])
def test_faulty_headers_of_subscribe_are_refused(value: bytes) -> None:
    with pytest.raises(LinkHeaderError):
        parse_want(value)


@pytest.mark.parametrize("name", [b"", b"-", b"a b", b"a,b", b"a=b", b"a/b", b"\xff", b"x" * 65])
def test_names_that_no_domain_may_have_are_refused(name: bytes) -> None:
    with pytest.raises(LinkHeaderError, match="domain name"):
        check_domain(name)


def test_the_headers_of_a_later_version_are_read() -> None:
    header = parse_header(b"2 path=a,b colour=blue node=n~00000001 seq=5")
    assert (header.path, header.node, header.sequence) == ((b"a", b"b"), b"n~00000001", 5)
    assert canonical(b"2 path=a,b colour=blue") == b"2 colour=blue path=a,b"
    facts = parse_connect(b"2 domain=berlin max-hops=3 relays=1 colour=blue")
    assert (facts.domain, facts.max_hops, facts.relays, facts.version) == (b"berlin", 3, True, 1)
    want = parse_want(b"2 path=a,b hops=2 colour=blue")
    assert (want.path, want.hops) == ((b"a", b"b"), 2)
    assert parse_welcome(b"2 domain=rome colour=blue").version == 1


def test_the_headers_of_connect_connack_and_subscribe_are_read_as_they_were_written() -> None:
    facts = parse_connect(encode_connect(b"berlin", 4, True, epoch=1_763_840_000_123))
    assert (facts.domain, facts.max_hops, facts.relays, facts.epoch) == (b"berlin", 4, True, 1_763_840_000_123)
    assert parse_connect(encode_connect(b"berlin", 4, True)).epoch == 0
    assert facts.header == b"1 path=berlin"
    welcome = parse_welcome(encode_welcome(LinkWelcome(NO_DOMAIN, 1, "", 1000, 0)))
    assert (welcome.domain, welcome.refused, welcome.queue_messages, welcome.queue_bytes) == (NO_DOMAIN, "", 1000, 0)
    assert parse_welcome(encode_welcome(LinkWelcome(b"x", 1, "role", 1, 1))).refused == "role"
    want = parse_want(encode_want((b"a", b"b"), 2))
    assert (want.path, want.hops) == ((b"a", b"b"), 2)


PAIRS = st.lists(st.tuples(st.sampled_from(["k", "gmqttd-link", "gmqttd-linkx", "gmqttd-lin"]), st.text(max_size=20)))


@given(PAIRS, st.sampled_from([None, 0, 1]), st.sampled_from([None, "text/plain"]), st.sampled_from([None, b"1\x26\0"]))
def test_properties_are_split_into_headers_and_others(
    pairs: list[tuple[str, str]], payload_format: int | None, content_type: str | None, correlation: bytes | None
) -> None:
    pairs = [(key, text.replace("\0", "")) for key, text in pairs]

    def encode(some: list[tuple[str, str]]) -> bytes:
        return encode_publish_properties(payload_format, content_type, b"r/t", correlation, some)

    others, headers = split_properties(encode(pairs))
    assert others == encode([pair for pair in pairs if pair[0] != "gmqttd-link"])
    assert headers == [text.encode() for key, text in pairs if key == "gmqttd-link"]


def test_a_header_as_a_property_is_found_again() -> None:
    assert property_of(b"1 path=a").startswith(PROPERTY_HEAD)
    assert split_properties(property_of(b"1 path=a")) == (b"", [b"1 path=a"])
