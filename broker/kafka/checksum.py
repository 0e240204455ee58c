"""CRC-32C, with which Kafka checks its batches."""

# not compiled: the library has no types where a wheel is built
from __future__ import annotations

import google_crc32c


def crc32c(start: bytes, rest: bytes) -> int:
    """Of both, one behind the other."""
    found: int = google_crc32c.extend(google_crc32c.value(start), rest)
    return found
