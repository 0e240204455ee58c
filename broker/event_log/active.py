"""The newest segment, to which blocks are written. Everything here runs in the writer's thread."""

# not a core: reads and writes files
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.event_log.block import Block, BlockHeader, EncodedBlock, read_header
from broker.event_log.files import Files
from broker.event_log.identity import MARK_FILE, encode_mark
from broker.event_log.index import Segment, encode_index
from broker.event_log.segment import SegmentHeader, index_name, segment_name

LOCK_FILE: Final = "lock"


class FolderTaken(OSError):
    """The folder of the log is not the one that this process has locked."""


@dataclass(frozen=True, slots=True)
class Written:
    """One block that readers may have.

    new_segment  the block is the first of a segment that begins with its offset; the size of that segment's header, else 0
    """

    header: BlockHeader
    new_segment: int


@dataclass(frozen=True, slots=True)
class Failure:
    """`blocks` are not written; nothing of them is in the log."""

    error: Exception
    blocks: list[Block]


class ActiveSegment:
    """next_offset  of the next record
    size         bytes of the segment that are whole blocks
    lock         descriptor of the folder's lock
    """

    def __init__(self, folder: Path, files: Files, node: str, segment_bytes: int, syncs: bool) -> None:
        self.next_offset = 0
        self.size = 0
        self.lock = -1
        self._folder = folder
        self._files = files
        self._node = node
        self._segment_bytes = segment_bytes
        self._syncs = syncs
        self._descriptor = -1
        self._path = folder  # of the segment
        self._taken = ""  # what somebody else did to the files; nothing is written then
        self._mark = -1
        self._is_empty = True
        self._is_torn = False  # a write has failed, and may have left a part behind `size`

    def open(self, segment: Segment) -> None:
        """Go on in a segment of an earlier run. Raises OSError."""
        self._path = self._folder / segment_name(segment.first_offset)
        self._descriptor = self._files.open(self._path)
        self.next_offset = segment.end_offset
        self.size = segment.size
        self._is_empty = segment.end_offset == segment.first_offset

    def begin(self, log_id: str, next_offset: int) -> int:
        """Begin a segment, after what a failed write left in the present one was cut. Returns the size of its header. Raises
        OSError."""
        self._check_folder()
        if self._is_torn:
            self._files.truncate(self._descriptor, self.size)
            self._is_torn = False
        header = SegmentHeader(next_offset, UUID(log_id).bytes, self._node).encode()
        path = self._folder / segment_name(next_offset)
        descriptor = self._files.create(path, header)
        self.close()
        self._path = path
        self._taken = ""
        self._descriptor = descriptor
        self.next_offset = next_offset
        self.size = len(header)
        self._is_empty = True
        return self.size

    def begin_next(self, log_id: str) -> int:
        """Begin a segment behind the last record, unless the present one has none. Returns the size of its header, or 0.
        Raises OSError."""
        return 0 if self._is_empty else self.begin(log_id, self.next_offset)

    def look(self) -> str:
        """Return what somebody else did to the folder, or to the segment; "" for nothing. No write succeeds afterwards, until
        another segment is begun. Raises OSError."""
        try:
            if not self._files.stands(self._descriptor, self._path):
                self._taken = f"{self._path} was removed, or another file took its place"
            elif os.fstat(self._descriptor).st_size < self.size:
                self._taken = f"{self._path} was cut"
            elif self._mark >= 0 and not self._files.stands(self._mark, self._folder / MARK_FILE):
                os.close(self._mark)
                self._mark = -1
            self._check_folder()  # last: a segment that is gone since may have gone with it
        except FolderTaken as error:
            self._taken = str(error)
        return self._taken

    def _check_folder(self) -> None:
        """Raises FolderTaken."""
        if not self._files.stands(self.lock, self._folder / LOCK_FILE):
            raise FolderTaken(
                f"the folder {self._folder} was removed, or another one took its place: restart the node to begin a log there"
            )

    def close(self) -> None:
        for descriptor in (self._descriptor, self._mark):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._mark = -1

    def write(self, log_id: str, waiting: list[Block]) -> tuple[list[Written], Failure | None]:
        """Write blocks. Returns the blocks that are written and, unless these are all, why not, of whatever kind the error
        is: no record is lost by it."""
        offset = self.next_offset
        size = 0
        blocks: list[Block] = []
        parts: list[tuple[bytes, bytes]] = []
        written: list[Written] = []
        try:
            if self._taken:
                raise OSError(self._taken)
            for block in waiting:
                records = block.records
                start, heap = block.take_parts(offset, size)
                blocks.append(EncodedBlock(records, start, heap))
                parts.append((start, heap))
                offset += records
                size += len(start) + len(heap)
            self._write_blocks(log_id, parts, written)
        except Exception as error:
            self._is_torn = True
            return written, Failure(error, blocks[len(written) :] + waiting[len(blocks) :])
        return written, None

    def _write_blocks(self, log_id: str, blocks: list[tuple[bytes, bytes]], written: list[Written]) -> None:
        """Write blocks, as many at once as a segment takes. `written` gets those that are written."""
        while len(written) < len(blocks):
            headers: list[BlockHeader] = []
            parts: list[bytes] = []
            size = self.size
            new_segment = 0
            for start, heap in blocks[len(written) :]:
                header = read_header(start)
                assert header is not None
                if size + header.size > self._segment_bytes and (headers or not self._is_empty):
                    if headers:
                        break
                    new_segment = self.begin(log_id, self.next_offset)
                    size = self.size
                headers.append(header)
                parts += (start, heap)
                size += header.size
            self._files.write(self._descriptor, parts, self.size, self._syncs)
            self._is_empty = False
            self.size = size
            self.next_offset = headers[-1].end_offset
            written += [Written(header, 0 if index else new_segment) for index, header in enumerate(headers)]
            if self._syncs:
                self._write_mark(log_id)

    def _write_mark(self, log_id: str) -> None:
        try:
            if self._mark < 0:
                self._mark = self._open_mark(log_id)
            self._files.write(self._mark, [encode_mark(log_id, self.next_offset)], 0, False)
        except OSError:  # one that tells less is right too
            return

    def _open_mark(self, log_id: str) -> int:
        path = self._folder / MARK_FILE
        try:
            return self._files.open(path)
        except FileNotFoundError:
            return self._files.create(path, encode_mark(log_id, self.next_offset))

    def seal(self, segment: Segment) -> None:
        """Write the index file of a segment that is complete. Raises OSError."""
        self._files.replace(self._folder / index_name(segment.first_offset), encode_index(segment))

    def uncache(self, segment: Segment) -> None:
        """Take a segment out of the page cache. Raises OSError."""
        self._files.uncache(self._folder / segment_name(segment.first_offset))

    def remove(self, segments: list[Segment]) -> None:
        """Remove files of segments. Raises OSError."""
        for segment in segments:
            self._files.remove(self._folder / segment_name(segment.first_offset))
            self._files.remove(self._folder / index_name(segment.first_offset))
