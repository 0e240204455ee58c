"""Tags: a member's meta as a map from string to string (wire-gossip 7.1)."""

from __future__ import annotations

from typing import Final

from federation.gossip.messages import META_BYTES_MAX
from federation.gossip.msgpack_fields import as_fields, as_text, decode, encode

TAGS_MAGIC: Final = 0xFF


def encode_tags(tags: dict[str, str]) -> bytes:
    """The meta of a member with these tags. ValueError when it is longer than META_BYTES_MAX."""
    meta = b"\xff" + encode(tags)
    if len(meta) > META_BYTES_MAX:
        raise ValueError(f"the tags need {len(meta)} bytes; at most {META_BYTES_MAX} are allowed")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """The tags of a meta. Without the magic byte it is the value of the tag `role`, as in old releases. WireError: invalid."""
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
