"""The id of a log: when it stays over a restart, and when it has to change.

Readers remember an offset beside the log id. The id changes when anything that was or may have been read is gone, so that a
reader does not take a later record for one that it knows.

The mark up to which the log is known to be on disk is a small file of its own. It is written after each sync and is not
synced itself: after a crash of the machine it may tell less than is true, never more. A last write that is damaged though the
mark tells of it was whole once. What is behind the mark may not have been finished.

    CRC-32 of all that follows u32, next offset u64, log id as text; little endian
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from broker.event_log.index import Segment

STATE_VERSION: Final = 1
MARK_FILE: Final = "synced"
_ID_AT: Final = 12


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The contents of log.json.

    sync         mode of the run that wrote it
    boot_id      of the machine then; "" where it cannot be told
    clean        the run stopped gracefully; `next_offset` is that of the stop
    last_segment first offset of the newest segment
    gaps         (from, to) offsets that are known to be missing between segments
    """

    log_id: str
    node: str
    sync: str
    boot_id: str
    clean: bool = False
    next_offset: int = 0
    last_segment: int = 0
    gaps: tuple[tuple[int, int], ...] = ()


def encode_identity(identity: LogIdentity) -> bytes:
    return json.dumps({"version": STATE_VERSION, **asdict(identity)}, indent=1).encode()


def decode_identity(data: bytes) -> LogIdentity | None:
    """None for a file that is damaged, or of another version."""
    try:
        content = json.loads(data)
        if content.pop("version") != STATE_VERSION:
            return None
        gaps = tuple((int(first), int(end)) for first, end in content.pop("gaps"))
        identity = LogIdentity(**content, gaps=gaps)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    texts = (identity.log_id, identity.node, identity.sync, identity.boot_id)
    numbers = (identity.next_offset, identity.last_segment)
    is_sound = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
    return identity if is_sound and isinstance(identity.clean, bool) else None


def gaps_between(segments: Sequence[Segment]) -> tuple[tuple[int, int], ...]:
    """The offsets that are missing between segments in order."""
    return tuple(
        (one.end_offset, other.first_offset)
        for one, other in pairwise(segments)
        if one.end_offset != other.first_offset
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A start finds this in the folder.

    segments   the sound ones, in order, after torn bytes were left out
    is_torn    the newest one had bytes of a write that was not finished
    damaged    number of segments to set aside
    read_to    the highest offset of a hold: a reader has read what is before
    synced_to  what is before was on disk
    """

    segments: Sequence[Segment]
    is_torn: bool
    damaged: int
    read_to: int
    synced_to: int


def may_be_unwritten(identity: LogIdentity, boot_id: str) -> bool:
    """Return whether the machine ended, perhaps before it wrote what was not synced."""
    return not identity.clean and (not boot_id or identity.boot_id != boot_id)


def what_is_lost(identity: LogIdentity, found: Found, node: str, boot_id: str) -> str:
    """Return why the log id has to change; "" when it stays."""
    segments = found.segments
    end_offset = segments[-1].end_offset if segments else 0
    if identity.node != node:
        return f"the log is of node {identity.node}"
    if found.damaged:
        return f"{found.damaged} damaged segments were set aside"
    if not segments or segments[-1].first_offset < identity.last_segment:
        return f"the segment of offset {identity.last_segment} is missing"
    missing = set(gaps_between(segments)) - set(identity.gaps)
    if missing:
        first, end = min(missing)
        return f"the records of offsets {first} to {end - 1} are missing"
    if identity.clean and end_offset != identity.next_offset:
        return f"the log ends at offset {end_offset}, it was stopped at {identity.next_offset}"
    if end_offset < found.read_to:
        return f"the log ends at offset {end_offset}, and was read up to {found.read_to}"
    if end_offset < found.synced_to:
        return f"the log ends at offset {end_offset}, and was on disk up to {found.synced_to}"
    if identity.sync != "commit":
        if found.is_torn:
            return f"the last write was not finished, with sync {identity.sync}"
        if may_be_unwritten(identity, boot_id):
            return f"the machine was restarted without a stop of this node, with sync {identity.sync}"
    return ""


def encode_mark(log_id: str, next_offset: int) -> bytes:
    content = next_offset.to_bytes(8, "little") + log_id.encode()
    return zlib.crc32(content).to_bytes(4, "little") + content


def decode_mark(data: bytes, log_id: str) -> int:
    """The next offset of a mark of this log; 0 for a damaged file, or that of another log."""
    next_offset = int.from_bytes(data[4:_ID_AT], "little")
    return next_offset if len(data) >= _ID_AT and data == encode_mark(log_id, next_offset) else 0
