"""The mark up to which the log is known to be on disk, in a small file of its own.

It is written after each sync and is not synced itself: after a crash of the machine it may tell less than is true, never more.
A last write that is damaged though the mark tells of it was whole once. What is behind the mark may not have been finished.

    CRC-32 of all that follows u32, next offset u64, log id as text; little endian
"""

from __future__ import annotations

import zlib
from typing import Final

MARK_FILE: Final = "synced"
ID_AT: Final = 12


def encode_mark(log_id: str, next_offset: int) -> bytes:
    content = next_offset.to_bytes(8, "little") + log_id.encode()
    return zlib.crc32(content).to_bytes(4, "little") + content


def decode_mark(data: bytes, log_id: str) -> int:
    """The next offset of a mark of this log; 0 for a damaged file, or that of another log."""
    next_offset = int.from_bytes(data[4:ID_AT], "little")
    return next_offset if len(data) >= ID_AT and data == encode_mark(log_id, next_offset) else 0
