"""The stream of msgpack objects of the RPC: requests are read, responses and records are written (wire-gossip 11.1).

The new specification of msgpack is written, with str8 and bin; both are read. Times, which no message of this protocol has, are
skipped in fields that are unknown: as raw bytes, and as the extension -1.
"""

from __future__ import annotations

from typing import Final

import msgpack  # type: ignore[import-untyped]

from federation.gossip.errors import WireError

REQUEST_BYTES_MAX: Final = 64 << 10
"""Bytes of one unfinished request; the client that exceeds it is disconnected."""
FEED_BYTES: Final = REQUEST_BYTES_MAX // 4
"""Bytes to read at once."""
REQUEST_ELEMENTS_MAX: Final = 256
"""Elements of one array or map of a request. The library reserves room for as many as an array claims."""


def encode(value: object) -> bytes:
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data


class ObjectReader:
    """Takes bytes and gives whole objects, with strings and binary as bytes."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(
            raw=True,
            strict_map_key=False,
            max_buffer_size=REQUEST_BYTES_MAX,
            max_array_len=REQUEST_ELEMENTS_MAX,
            max_map_len=REQUEST_ELEMENTS_MAX,
        )

    def feed(self, data: bytes) -> None:
        """Add at most FEED_BYTES bytes. Raises WireError when more are unfinished."""
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            raise WireError(f"a request has more than {REQUEST_BYTES_MAX} bytes") from None

    def next(self) -> tuple[bool, object]:
        """(True, the next object), or (False, None) when more bytes are needed. Raises WireError."""
        try:
            value: object = self._unpacker.unpack()
        except msgpack.OutOfData:
            return False, None
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"a request is not msgpack: {type(error).__name__}") from None
        return True, value
