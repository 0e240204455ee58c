"""A committed offset, as a retained message has it."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

OFFSETS: Final = "$kafka/offsets/"
OFFSETS_MAX: Final = 10_000
"""That one node keeps for different partitions and groups. Policy: the oldest one of a group without members makes room; where
all groups have members a further one is refused. Of those of other nodes as many are heard."""
METADATA_BYTES_MAX: Final = 4_096  # of a committed offset, as Kafka allows
COMMITTED_BYTES_MAX: Final = 6 * METADATA_BYTES_MAX + 256  # of it in JSON, which writes a byte as six at most


class Committed(NamedTuple):
    """epoch  leader epoch that the consumer knew, -1 for none"""

    offset: int
    epoch: int
    metadata: str


def decode_committed(data: bytes) -> Committed | None:
    """None for bytes that are no committed offset: somebody else may write to the same place."""
    if len(data) > COMMITTED_BYTES_MAX:
        return None
    try:
        content = json.loads(data.decode())  # bytes might be UTF-16, too
        offset, epoch, metadata = content["offset"], content["epoch"], content["metadata"]
        if not (isinstance(offset, int) and isinstance(epoch, int) and -1 <= epoch < 2**31 and -1 <= offset < 2**63):
            return None
        if len(metadata.encode()) > METADATA_BYTES_MAX:
            return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Committed(offset, epoch, metadata)
