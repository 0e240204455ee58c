"""The files of staged rows: blocks (broker/event_log/staged_block.py) one behind the other. Called in one thread.

Blocks are checked when they come, or when a file of an earlier process is used.
"""

# not a core: reads and writes files
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.event_log.block import HEADER_BYTES, BlockHeader, is_whole, read_header
from broker.event_log.files import FOLDER_MODE, Files
from broker.event_log.records import BlockFault
from broker.event_log.staged_block import RowFault, RowLimits, StagedBlock, check_large

STAGED_FILES_MAX: Final = 10_000  # one for each partition and attempt
FREE_BYTES_MIN: Final = 64 * 2**20  # of the disk that rows leave for the log


class StagingFault(Exception):
    """A call that does not fit what is staged."""


class StagingFull(StagingFault):
    """As much is staged, or runs, as may be."""


class RefusedRow(Exception):
    """A row that cannot be published. `row` counts from 0 in its file; the text names the field."""

    def __init__(self, row: int, fault: RowFault) -> None:
        super().__init__(str(fault))
        self.row = row


@dataclass(slots=True)
class StagedFile:
    """rows, whole  number and bytes of the rows in whole blocks that were checked
    size         bytes of the file; behind `whole` there is a part of a block
    is_read      `rows` and `whole` are known
    """

    rows: int = 0
    whole: int = 0
    size: int = 0
    is_read: bool = True


class StagedFiles:
    """The files below `folder`, by their path. Every method raises OSError where the disk does not do its part.

    bytes      of all files
    bytes_max  the most of them
    limits     what rows may be now
    """

    def __init__(self, folder: Path, files: Files, bytes_max: int, limits: Callable[[], RowLimits]) -> None:
        self.bytes = 0
        self._folder = folder
        self._files = files
        self._bytes_max = bytes_max
        self._limits = limits
        self._staged: dict[Path, StagedFile] = {}

    def add(self, path: Path) -> None:
        """A file of an earlier process. It is read when it is used."""
        size = path.stat().st_size
        self._staged[path] = StagedFile(size=size, is_read=False)
        self.bytes += size

    def forget(self, folder: Path) -> None:
        """The files of a folder are removed."""
        for path in [path for path in self._staged if path.parent == folder]:
            self.bytes -= self._staged.pop(path).size

    def sync(self, path: Path) -> None:
        """Put a file on disk. Raises StagingFault where the disk fails; the file is removed then: the system may take what it
        did not write for written, and a further call would find nothing wrong."""
        try:
            self._files.sync(path)
        except OSError as error:
            self.bytes -= self._staged.pop(path).size
            self._files.remove(path)
            raise StagingFault(
                f"{path} could not be written to disk ({error.strerror}); stage the batch again"
            ) from error

    def rows(self, path: Path, query: str) -> int:
        """Number of rows in whole blocks."""
        staged = self._read(path, query)
        return 0 if staged is None else staged.rows

    def stage(self, path: Path, query: str, position: int, blocks: bytes) -> tuple[int, int]:
        """Write whole blocks, or a part of one that is larger than a request, at this position of the file.

        Returns (number of rows in whole blocks, bytes of the file). Bytes that the file has already change nothing. Raises
        RefusedRow, BlockFault, StagingFault; nothing of the call is kept then.
        """
        staged = self._read(path, query) or StagedFile()
        end = position + len(blocks)
        if end <= staged.whole:
            return staged.rows, staged.size
        if not staged.whole <= position <= staged.size:
            raise StagingFault(
                f"position is {position}, but {staged.size} bytes of this partition and attempt are staged; go on there"
            )
        whole, rows = self._check(query, path, staged, position, blocks)
        self._check_room(end - staged.size)
        if path not in self._staged:
            if len(self._staged) >= STAGED_FILES_MAX:
                raise StagingFull(f"{STAGED_FILES_MAX} partitions are staged already; commit or abort batches")
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            os.close(self._files.create(path, b""))
            self._staged[path] = staged
        self._write(path, position, blocks)
        self.bytes += end - staged.size
        staged.size = end
        if not rows and end == whole:
            self._finish_large(query, path, staged)
        elif rows:
            staged.whole = whole
            staged.rows += rows
        return staged.rows, staged.size

    def _check(self, query: str, path: Path, staged: StagedFile, position: int, blocks: bytes) -> tuple[int, int]:
        """(Where the last block ends, number of rows in whole blocks of these bytes; 0 for a part of a block). Raises
        BlockFault, RefusedRow."""
        if position > staged.whole:
            header = self._header_at(path, staged.whole)
            if header is None or position + len(blocks) > staged.whole + header.size:
                raise BlockFault("the parts of a block have more bytes than it")
            return staged.whole + header.size, 0
        at = rows = 0
        while at < len(blocks):
            header = read_header(blocks, at)
            if header is None:
                raise BlockFault(f"byte {at} of blocks begins no block")
            if at == 0 and header.size > len(blocks):
                try:
                    check_large(query, blocks, header, self._limits())
                except RowFault as fault:
                    raise RefusedRow(staged.rows + fault.row, fault) from None
                return position + header.size, 0
            self._check_block(query, blocks, at, header, staged.rows + rows)
            at += header.size
            rows += header.records
        return position + at, rows

    def _check_block(self, query: str, data: bytes, at: int, header: BlockHeader, row: int) -> None:
        """Raise BlockFault, or RefusedRow for a row of this block, the first of which is `row`."""
        if not is_whole(data, at, header):
            raise BlockFault(f"the block at byte {at} is not whole, or has not its checksum")
        try:
            StagedBlock(data, at, header).check(query, self._limits())
        except RowFault as fault:
            raise RefusedRow(row + fault.row, fault) from None

    def _check_room(self, growth: int) -> None:
        """Raise StagingFull when so many bytes more are too many."""
        if self.bytes + growth > self._bytes_max:
            raise StagingFull(
                f"{self.bytes} bytes of rows are staged, and {growth} more would be above "
                f"plugins.event_log.staged_bytes, {self._bytes_max}; commit or abort batches, stage smaller ones, or raise it"
            )
        free = self._files.free_bytes(self._folder)
        if free - growth < FREE_BYTES_MIN:
            raise StagingFull(
                f"the disk of {self._folder} has {free} bytes left, of which rows that are staged leave {FREE_BYTES_MIN} "
                "for the log; make room on it"
            )

    def _write(self, path: Path, position: int, blocks: bytes) -> None:
        descriptor = self._files.open(path)
        try:
            self._files.write(descriptor, [blocks], position, False)
        finally:
            os.close(descriptor)

    def _finish_large(self, query: str, path: Path, staged: StagedFile) -> None:
        """The last part of a block has come."""
        (data, header) = next(_blocks(path, staged.whole), (b"", None))
        try:
            if header is None:
                raise BlockFault("the parts of a block have not its checksum")
            self._check_block(query, data, 0, header, staged.rows)
        except (BlockFault, RefusedRow):
            self.bytes -= staged.size - staged.whole
            staged.size = staged.whole
            raise
        staged.rows += header.records
        staged.whole = staged.size

    def _read(self, path: Path, query: str) -> StagedFile | None:
        """The staged file, after its blocks were read if an earlier process wrote them."""
        staged = self._staged.get(path)
        if staged is None or staged.is_read:
            return staged
        staged.rows = staged.whole = 0  # the reading before may have ended in the middle
        for data, header in _blocks(path, 0):
            try:
                self._check_block(query, data, 0, header, staged.rows)
            except (BlockFault, RefusedRow):
                break  # it was not answered that it is staged
            staged.rows += header.records
            staged.whole += header.size
        staged.is_read = True
        return staged

    def _header_at(self, path: Path, at: int) -> BlockHeader | None:
        with path.open("rb") as file:
            file.seek(at)
            return read_header(file.read(HEADER_BYTES))

    def blocks(self, path: Path, rows: int) -> Iterator[StagedBlock]:
        """The first `rows` rows of a file, in order. Raises StagingFault for a file that is damaged."""
        left = rows
        if rows:
            for data, header in _blocks(path, 0):
                if header.records > left:
                    break
                left -= header.records
                yield StagedBlock(data, 0, header)
                if not left:
                    break
        if left:
            raise StagingFault(f"{path} is damaged behind its row {rows - left}")


def _blocks(path: Path, at: int) -> Iterator[tuple[bytes, BlockHeader]]:
    """The whole blocks of a file from byte `at` on, up to the first that is not whole."""
    with path.open("rb") as file:
        while True:
            file.seek(at)
            header = read_header(file.read(HEADER_BYTES))
            if header is None:
                return
            file.seek(at)
            data = file.read(header.size)
            if not is_whole(data, 0, header):
                return
            yield data, header
            at += header.size
