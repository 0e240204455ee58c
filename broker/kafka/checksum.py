"""CRC-32C, with which Kafka checks its batches."""

# not compiled: the library has no types where a wheel is built
from __future__ import annotations

import google_crc32c


def crc32c(data: bytes) -> int:
    found: int = google_crc32c.value(data)
    return found
