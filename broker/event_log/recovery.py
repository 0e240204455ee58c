"""The start of a log: lock the folder, check the segments, cut a torn tail, set aside what is damaged, decide where to go on.

A segment is sound up to the first fault, and its records before that stay, whatever stands behind it: that may have the form
of anything, since clients write the payloads.
"""

# not a core: reads and writes files
from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from broker.event_log.active import LOCK_FILE
from broker.event_log.contents import SECOND_NS, Damaged
from broker.event_log.files import FILE_MODE, FOLDER_MODE, PARTIAL_SUFFIX, Files, is_unreadable
from broker.event_log.holds import UNKNOWN_GROUP, Hold, Holds, decode_holds
from broker.event_log.identity import (
    MARK_FILE,
    Found,
    LogIdentity,
    decode_identity,
    decode_mark,
    encode_identity,
    encode_mark,
    go_on,
    may_be_unwritten,
)
from broker.event_log.index import Segment, decode_index, encode_index
from broker.event_log.lineage import Lineage, clock_number
from broker.event_log.segment import Scan, SegmentHeader, Verdict, index_name, offset_of_name, segment_name

IDENTITY_FILE: Final = "log.json"
HOLDS_FILE: Final = "holds.json"
DAMAGED_FOLDER: Final = "damaged"
BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
READ_BYTES: Final = 2**20


class FolderInUse(Exception):
    """Another process uses the folder."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """identity   of the log from now on; its `next_offset` is that of the next record
    segments   the sound ones, in order
    is_open    the last segment goes on; otherwise a new one is to begin
    damaged    segments, and ends of segments, that were set aside by this start
    torn_bytes bytes of an unfinished write that were cut
    lost       why the log id is another one; "" when it stays, or for a log that begins
    """

    identity: LogIdentity
    segments: list[Segment]
    is_open: bool
    holds: Holds
    damaged: list[Damaged]
    torn_bytes: int
    lost: str


def boot_id() -> str:
    """Of the machine's last start; "" where it cannot be told."""
    try:
        return BOOT_ID_FILE.read_text("ascii").strip()
    except OSError:
        return ""


def lock_folder(folder: Path, files: Files) -> int:
    """Make the folder if its parent exists, and lock it for this process. Returns the descriptor of the lock. Raises
    OSError, FolderInUse."""
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    files.sync_folder(folder.parent)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FolderInUse from None
    return descriptor


def recover(folder: Path, files: Files, node: str, sync: str, wall_ns: int) -> Recovered:
    """Bring the folder into order. The lock is held. `wall_ns`: Unix time. Raises OSError."""
    boot = boot_id()
    before = decode_identity(_read(folder / IDENTITY_FILE))
    trusts_indexes = before is not None and not (before.sync == "none" and may_be_unwritten(before, boot))
    offsets: list[int] = []
    for path in folder.iterdir():
        if path.name.endswith(PARTIAL_SUFFIX):
            files.remove(path)
            continue
        offset = offset_of_name(path.name)
        if offset is not None:
            offsets.append(offset)
    segments: list[Segment] = []
    faults: dict[
        int, str
    ] = {}  # first offset of a segment that is damaged, perhaps behind sound records -> what is wrong
    headers: list[SegmentHeader] = []  # of the segments with something sound that were scanned
    end_offset = time_ns = torn_bytes = 0
    newest = max(offsets, default=-1)
    for offset in sorted(offsets):
        segment = _sealed_segment(folder, offset) if trusts_indexes else None
        fault = ""
        if segment is None:
            verdict, scan, size = _scan(folder / segment_name(offset), offset, time_ns)
            segment = scan.segment
            if verdict is Verdict.TORN and offset == newest:
                torn_bytes = size - segment.size
            elif verdict is not Verdict.WHOLE:
                fault = scan.fault
            if scan.header is not None and (not fault or segment.end_offset > offset):
                headers.append(scan.header)
        is_sound = not fault or segment.end_offset > offset
        if offset < end_offset:
            is_sound = False
            fault = fault or f"offset {offset} is in the segment before, which ends at {end_offset}"
        end_offset = max(end_offset, segment.end_offset)
        time_ns = max(time_ns, segment.last_time_ns)
        if fault:
            faults[offset] = fault
        if is_sound:
            segments.append(segment)
    lost = f"{IDENTITY_FILE} is missing or damaged" if before is None and offsets else ""
    if before is None and headers:
        before = _identity_of(headers)
    next_offset = end_offset
    number = clock_number(max(wall_ns, time_ns + SECOND_NS))  # higher than that of the id that the newest record got
    lineage = Lineage(str(uuid4()), (), number)
    holds = Holds()
    if before is not None and before.node != node:
        lost = f"the log is of node {before.node}"
    elif before is not None:
        holds = _read_holds(folder / HOLDS_FILE, before.lineage, segments[0].first_offset if segments else 0)
        synced_to = decode_mark(_read(folder / MARK_FILE), before.log_id)
        found = Found(segments, end_offset, torn_bytes > 0, newest in faults, holds.highest(), synced_to)
        next_offset, fault = go_on(before, found, boot)
        lost = lost or fault
        lineage = before.lineage
        if lost:
            lineage = lineage.child(str(uuid4()), next_offset, number)
            holds.lower_to(next_offset)
    last_segment = segments[-1].first_offset if segments else 0
    identity = LogIdentity(
        lineage.log_id, node, sync, boot, False, next_offset, last_segment, lineage.parents, lineage.number
    )
    if faults or lost:  # first: a crash must not forget how far offsets were given out
        save_identity(folder, files, identity)
    sound = {segment.first_offset: segment for segment in segments}
    damaged = [
        _set_end_aside(folder, files, sound[offset], fault)
        if offset in sound
        else set_aside(folder, files, offset, fault)
        for offset, fault in faults.items()
    ]
    if last_segment == newest and segments:
        _settle(files, folder / segment_name(newest), segments[-1].size)
    is_open = bool(segments) and not lost and last_segment == newest and segments[-1].end_offset == next_offset
    return Recovered(identity, segments, is_open, holds, damaged, torn_bytes, lost)


def _identity_of(headers: list[SegmentHeader]) -> LogIdentity:
    """Return what the segments tell of the log that they were begun for, in order: each id of a log begins with one."""
    lineage = Lineage(str(UUID(bytes=headers[0].log_id)))
    for header in headers:
        log_id = str(UUID(bytes=header.log_id))
        if log_id != lineage.log_id:
            lineage = lineage.child(log_id, header.first_offset)
    parents = tuple(parent._replace(number=0) for parent in lineage.parents)
    return LogIdentity(lineage.log_id, headers[-1].node, "none", "", parents=parents)


def save_identity(folder: Path, files: Files, identity: LogIdentity) -> None:
    files.replace(folder / IDENTITY_FILE, encode_identity(identity))


def save_mark(folder: Path, files: Files, log_id: str, next_offset: int) -> None:
    files.replace(folder / MARK_FILE, encode_mark(log_id, next_offset))


def clean_identity(identity: LogIdentity, next_offset: int) -> LogIdentity:
    """That of a log that stopped gracefully."""
    return replace(identity, clean=True, next_offset=next_offset)


def set_aside(folder: Path, files: Files, first_offset: int, fault: str) -> Damaged:
    """Move a damaged segment, where it has a file, out of the log. Raises OSError."""
    files.remove(folder / index_name(first_offset))
    path = folder / segment_name(first_offset)
    if not path.exists() and folder.exists():
        return Damaged("", first_offset, fault)
    moved = files.move(path, folder / DAMAGED_FOLDER)
    return Damaged(f"{DAMAGED_FOLDER}/{moved.name}", first_offset, fault)


def _set_end_aside(folder: Path, files: Files, segment: Segment, fault: str) -> Damaged:
    """Copy what stands behind the last sound block of a segment to the damaged ones, as far as the disk gives it and has room,
    and cut it. Raises OSError."""
    path = folder / segment_name(segment.first_offset)
    copied = files.copy_end(path, segment.size, folder / DAMAGED_FOLDER)
    _settle(files, path, segment.size)
    files.replace(folder / index_name(segment.first_offset), encode_index(segment))
    if copied is None:
        return Damaged("", segment.end_offset, f"{fault}; what follows was removed: the disk has no room for a copy")
    return Damaged(f"{DAMAGED_FOLDER}/{copied.name}", segment.end_offset, fault)


def _read(path: Path) -> bytes:
    """The bytes of a small file; none when it is not there, or when the disk does not give them."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        if is_unreadable(error):
            return b""
        raise


def _read_holds(path: Path, lineage: Lineage, first_offset: int) -> Holds:
    """The holds of a log, also where it has another id since they were written. A file that is damaged may have held anything:
    one hold is on all records."""
    data = _read(path)
    if not data and not path.exists():
        return Holds()
    found = decode_holds(data)
    if found is None:
        return Holds([Hold(UNKNOWN_GROUP, "", first_offset, path.stat().st_mtime_ns)])
    log_id, holds = found
    shared_end = lineage.shared_end(log_id)
    if shared_end is None:
        return Holds()
    holds.lower_to(shared_end)
    return holds


def _sealed_segment(folder: Path, offset: int) -> Segment | None:
    """Return what the index file says, where it fits the segment's file."""
    segment = decode_index(_read(folder / index_name(offset)))
    if segment is None or segment.first_offset != offset:
        return None
    return segment if (folder / segment_name(offset)).stat().st_size == segment.size else None


def _scan(path: Path, offset: int, time_ns: int) -> tuple[Verdict, Scan, int]:
    scan = Scan(offset, time_ns)
    size = 0
    try:
        with path.open("rb", buffering=0) as file:
            while data := file.read(max(READ_BYTES, scan.wanted)):
                size += len(data)
                scan.receive_data(data)
    except OSError as error:
        if not is_unreadable(error):
            raise
        scan.fault = f"it cannot be read behind byte {size}: {error.strerror}"
        return Verdict.DAMAGED, scan, size
    return scan.finish(), scan, size


def _settle(files: Files, path: Path, size: int) -> None:
    """Cut what is behind `size`. The rest is on disk afterwards: a process that was killed may have left it in memory."""
    descriptor = files.open(path)
    try:
        files.truncate(descriptor, size)
    finally:
        os.close(descriptor)
