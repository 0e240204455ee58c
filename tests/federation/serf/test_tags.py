"""Tags of a member."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.errors import WireError
from federation.serf.tags import decode_tags, encode_tags


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=5))
def test_tags_come_back(tags: dict[str, str]) -> None:
    assert decode_tags(encode_tags(tags)) == tags


def test_known_tags() -> None:
    assert encode_tags({"fed_addr": "127.0.0.1:8901"}) == b"\xff\x81\xa8fed_addr\xae127.0.0.1:8901"
    assert encode_tags({}) == b"\xff\x80"
    assert decode_tags(b"web") == {"role": "web"}
    assert decode_tags(b"") == decode_tags(b"\xff\xc0") == {}


@given(st.binary(max_size=40))
def test_tag_garbage(data: bytes) -> None:
    try:
        decode_tags(b"\xff" + data)
    except WireError:
        pass
