"""The id of a log over a restart, and the offset of its next record.

Readers remember an offset beside the log id. No offset that a reader may have seen is given out again under the same id. The
log knows how far offsets were given out: from its last stop, from the begin of its newest segment, from holds, and from the
mark. What is missing before that is a gap, and the id stays. Where there may have been more, the log gets another id, which
names the one before (broker/event_log/lineage.py).

The mark up to which the log is known to be on disk is a small file of its own. It is written after each sync and is not
synced itself: after a crash of the machine it may tell less than is true, never more. Readers get records once the mark tells
of them.

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
from broker.event_log.lineage import Lineage, Parent

STATE_VERSION: Final = 3
FORMER_VERSIONS: Final = (1, 2)  # had no numbers; the first one had `gaps` in place of `parents`
MARK_FILE: Final = "synced"
_ID_AT: Final = 12


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The contents of log.json.

    sync         mode of the run that wrote it
    boot_id      of the machine then; "" where it cannot be told
    clean        the run stopped gracefully; `next_offset` is that of the stop
    next_offset  no record was given this offset, or a later one, before the file was written
    last_segment first offset of the newest segment
    parents      former ids
    number       of the id (broker/event_log/lineage.py)
    """

    log_id: str
    node: str
    sync: str
    boot_id: str
    clean: bool = False
    next_offset: int = 0
    last_segment: int = 0
    parents: tuple[Parent, ...] = ()
    number: int = 0

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.log_id, self.parents, self.number)


def encode_identity(identity: LogIdentity) -> bytes:
    return json.dumps({"version": STATE_VERSION, **asdict(identity)}, indent=1).encode()


def decode_identity(data: bytes) -> LogIdentity | None:
    """None for a file that is damaged, or of another version."""
    try:
        content = json.loads(data)
        version = content.pop("version")
        if version not in (*FORMER_VERSIONS, STATE_VERSION):
            return None
        content.pop("gaps", None)
        known = content.pop("parents", ())
        if version in FORMER_VERSIONS:
            known = [(log_id, end_offset, number) for number, (log_id, end_offset) in enumerate(known)]
            content["number"] = len(known)
        parents = tuple(Parent(str(log_id), int(end_offset), int(number)) for log_id, end_offset, number in known)
        identity = LogIdentity(**content, parents=parents)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    texts = (identity.log_id, identity.node, identity.sync, identity.boot_id)
    numbers = (identity.next_offset, identity.last_segment, identity.number)
    is_sound = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
    return identity if is_sound and isinstance(identity.clean, bool) else None


def gaps_between(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """(first, end) of the offsets that are missing between segments in order."""
    return [
        (one.end_offset, other.first_offset)
        for one, other in pairwise(segments)
        if one.end_offset != other.first_offset
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """A start finds this in the folder.

    segments    the sound ones, in order, after torn bytes were left out
    end_offset  of all segments, as far as they are whole
    is_torn     the newest segment had bytes of a write that was not finished
    is_damaged  the newest segment is to be set aside
    read_to     the highest offset of a hold: a reader has read what is before
    synced_to   what is before was on disk; None without a mark
    """

    segments: Sequence[Segment]
    end_offset: int
    is_torn: bool = False
    is_damaged: bool = False
    read_to: int = 0
    synced_to: int | None = 0


def may_be_unwritten(identity: LogIdentity, boot_id: str) -> bool:
    """Return whether the machine ended, perhaps before it wrote what was not synced."""
    return not identity.clean and (not boot_id or identity.boot_id != boot_id)


def go_on(before: LogIdentity, found: Found, boot_id: str) -> tuple[int, str]:
    """(offset of the next record, why more than that may have been read; "" where it cannot have been)."""
    known = max(found.read_to, found.synced_to or 0, before.next_offset, before.last_segment)
    next_offset = max(found.end_offset, known)
    restarted = may_be_unwritten(before, boot_id)
    if before.clean:
        return next_offset, ""
    if before.sync == "none":
        if restarted:
            return next_offset, "the machine was restarted without a stop of this node, with sync none"
    elif found.synced_to is None:
        return next_offset, f"the file {MARK_FILE} is missing or damaged"
    elif not restarted:
        return next_offset, ""  # the mark tells of all that could be read
    newest = found.segments[-1].first_offset if found.segments else -1
    if found.is_damaged:
        return next_offset, "the newest segment is damaged"
    if newest < before.last_segment:
        return next_offset, f"the segment of offset {before.last_segment} is missing"
    if found.is_torn:
        return next_offset, f"the last write was not finished, with sync {before.sync}"
    if found.end_offset < known:
        return next_offset, f"the log ends at offset {found.end_offset}, and had records up to {known}"
    return next_offset, ""


def encode_mark(log_id: str, next_offset: int) -> bytes:
    content = next_offset.to_bytes(8, "little") + log_id.encode()
    return zlib.crc32(content).to_bytes(4, "little") + content


def decode_mark(data: bytes, log_id: str) -> int | None:
    """The next offset of a mark of this log; None for a damaged file, or that of another log."""
    next_offset = int.from_bytes(data[4:_ID_AT], "little")
    return next_offset if len(data) >= _ID_AT and data == encode_mark(log_id, next_offset) else None
