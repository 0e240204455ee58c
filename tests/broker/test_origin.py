"""The origin of a message: written, read, extended, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.properties import encode_publish_properties
from broker.origin import (
    NUMBER_MAX,
    PATH_MAX,
    PROPERTY_HEAD,
    HeaderError,
    Origin,
    check_domain,
    decode_origin,
    property_of,
    split_properties,
)
from federation.links.bridging.headers import (
    origin_node,
)

DOMAINS = st.from_regex(rb"\A[A-Za-z0-9][A-Za-z0-9._@:~%+-]{0,20}\Z")
PATHS = st.lists(DOMAINS, max_size=PATH_MAX, unique=True).map(tuple)
NODES = st.one_of(
    st.just(b""), st.builds(origin_node, st.text(st.characters(codec="utf-8"), max_size=40), st.integers(0, 2**32 - 1))
)


@pytest.mark.thorough
@given(PATHS, NODES, st.integers(0, NUMBER_MAX), st.integers(0, NUMBER_MAX))
def test_an_origin_is_read_as_it_was_written(path: tuple[bytes, ...], node: bytes, sequence: int, time: int) -> None:
    text = Origin(path, node, sequence, time, {b"new": b"field"}).encode()
    found = decode_origin(text)
    assert (found.path, found.node, found.sequence) == (path, node, sequence if node else 0)
    assert (found.published_at_ms, found.others) == (time, {b"new": b"field"})
    assert found.encode() == text
    assert found.may_come_again() == (path != () and node != b"")


@pytest.mark.thorough
@given(PATHS, NODES.filter(bool), st.integers(1, NUMBER_MAX), st.integers(1, NUMBER_MAX))
def test_numbers_and_times_are_added_to_an_origin(
    path: tuple[bytes, ...], node: bytes, first: int, second: int
) -> None:
    for text in (Origin(path).encode(), b"1 new=field path=" + b",".join(path)):
        before = decode_origin(text)
        found = before.timed(first).numbered(node, 7)
        assert (found.path, found.node, found.sequence, found.published_at_ms) == (path, node, 7, first)
        assert found.others == before.others
        assert found.timed(second).encode() == found.encode().replace(b"time=%d " % first, b"time=%d " % second)
        assert before.encode() == text
    assert Origin().timed(first).encode() == b"1 time=%d path=" % first
    assert Origin().numbered(node, 7).encode() == b"1 node=%s seq=7 path=" % node


@given(PATHS.filter(lambda path: len(path) < PATH_MAX), NODES, DOMAINS)
def test_an_origin_is_extended_by_the_domain_that_the_message_leaves(
    path: tuple[bytes, ...], node: bytes, domain: bytes
) -> None:
    found = Origin(path, node, 7, 9, {b"a": b"b"}).passed(domain)
    assert found.encode() == Origin((*path, domain), node, 7, 9, {b"a": b"b"}).encode()


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
    with pytest.raises(HeaderError) as caught:
        decode_origin(value)
    assert part in caught.value.text


@pytest.mark.parametrize("name", [b"", b"-", b"a b", b"a,b", b"a=b", b"a/b", b"\xff", b"x" * 65])
def test_names_that_no_domain_may_have_are_refused(name: bytes) -> None:
    with pytest.raises(HeaderError, match="domain name"):
        check_domain(name)


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
