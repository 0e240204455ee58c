"""Tags: a member's meta as a map from string to string (section 7.1)."""

from __future__ import annotations

from typing import Final

from federation.gossip.messages import META_BYTES_MAX
from federation.gossip.msgpack_fields import as_fields, as_text, decode, encode

TAGS_MAGIC: Final = 0xFF


def encode_tags(tags: dict[str, str]) -> bytes:
    """ValueError when they do not fit into the 512 bytes of a member's meta."""
    meta = b"\xff" + encode(tags)
    if len(meta) > META_BYTES_MAX:
        raise ValueError(f"the tags need {len(meta)} bytes, a member has room for {META_BYTES_MAX}")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """Meta without the magic byte is the value of the tag `role`, as in old releases. WireError for anything else wrong."""
    tags: dict[str, str] = {}
    if not meta or meta[0] != TAGS_MAGIC:
        if meta:
            tags["role"] = as_text(meta, b"role")
        return tags
    value = decode(meta[1:])
    if value is None:
        return tags
    for key, item in as_fields(value).items():
        tags[as_text(key, b"tag")] = as_text(item, key)
    return tags
