"""Origins of messages as text."""

from __future__ import annotations

from broker.origin import Origin, decode_origin


def origin(text: bytes) -> Origin | None:
    return decode_origin(text) if text else None


def text_of(found: Origin | None) -> bytes:
    return b"" if found is None else found.encode()
