"""The operations on files that the event log uses. Tests put faults in here."""

# not a core: reads and writes files
from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Final

from broker.server.private_file import sync_folder

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
PARTIAL_SUFFIX: Final = ".partial"
PARTS_MAX: Final = os.sysconf("SC_IOV_MAX")  # that the system takes in one call
UNREADABLE: Final = {getattr(errno, name, -1) for name in ("EIO", "ENODATA", "EBADMSG", "EUCLEAN")}
NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}
COPY_BYTES: Final = 2**20
FREE_BYTES_MIN: Final = 2**20  # of the disk that a copy leaves: the start that makes it writes some small files


def is_unreadable(error: OSError) -> bool:
    """Return whether the disk has lost the bytes: a sector, or what a checksum of the file system does not fit."""
    return error.errno in UNREADABLE


class Files:
    """Every method raises OSError."""

    _write_synced = getattr(os, "RWF_DSYNC", 0)  # Linux: a write and its fdatasync in one call; 0 where there is none

    def create(self, path: Path, data: bytes) -> int:
        """Make a file that is on disk, under its name, with this content when the call returns. Returns its descriptor.

        A file with this name is replaced; a crash leaves the old one or the new one.
        """
        partial = path.with_name(path.name + PARTIAL_SUFFIX)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            self.write(descriptor, [data], 0, True)
            os.fsync(descriptor)
            os.rename(partial, path)
            self.sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def replace(self, path: Path, data: bytes) -> None:
        """As `create`, closed."""
        os.close(self.create(path, data))

    def open(self, path: Path) -> int:
        """Open for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
        """Write all parts; with `synced` they are on disk when the call returns."""
        flags = self._write_synced if synced else 0
        if len(parts) > PARTS_MAX:
            parts = [b"".join(parts)]
        left = sum(map(len, parts))
        try:
            written = os.pwritev(descriptor, parts, position, flags)
        except OSError as error:
            if not flags or error.errno != errno.EOPNOTSUPP:
                raise
            # The system that runs this process lacks what Python was built for: an emulator, or a kernel before 4.7.
            self._write_synced = flags = 0
            written = os.pwritev(descriptor, parts, position, flags)
        if written < left:  # a signal, or the end of the space, which the next call reports
            data = b"".join(parts)
            while written < left:
                written += os.pwritev(descriptor, [memoryview(data)[written:]], position + written, flags)
        if synced and not flags:
            os.fdatasync(descriptor)

    def sync(self, path: Path) -> None:
        """The content of the file is on disk when the call returns."""
        descriptor = self.open(path)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut the file; on disk when the call returns."""
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Names of the folder are on disk when the call returns."""
        sync_folder(folder)

    def free_bytes(self, folder: Path) -> int:
        """Return what the disk of a folder still takes."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def uncache(self, path: Path) -> None:
        """Give the memory of the page cache for this file back. What was not on disk is, when the call returns."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def stands(self, descriptor: int, path: Path) -> bool:
        """Return whether this open file still has this name: nobody removed or replaced it."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(found, os.fstat(descriptor))

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""
        path.unlink(missing_ok=True)

    def move(self, path: Path, folder: Path) -> Path:
        """Move a file into a folder, which is made, beside others of its name; on disk when the call returns. Returns its
        new path."""
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        moved = _new_name(folder, path.name)
        path.rename(moved)
        self.sync_folder(folder)
        self.sync_folder(path.parent)
        return moved

    def copy_end(self, path: Path, position: int, folder: Path) -> Path | None:
        """Copy what the disk gives of a file from a position on into a folder, which is made; on disk when the call returns.
        Returns the path of the copy; None where there is no room for it."""
        if self.free_bytes(path.parent) - (path.stat().st_size - position) < FREE_BYTES_MIN:
            return None
        name = f"{path.name}.from-{position}"
        partial = folder / (name + PARTIAL_SUFFIX)
        try:
            folder.mkdir(FOLDER_MODE, exist_ok=True)
            self._copy(path, position, partial)
            copied = _new_name(folder, name)
            partial.rename(copied)
            self.sync_folder(folder)
            self.sync_folder(path.parent)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise  # the next try takes the same partial file
            self.remove(partial)
            return None
        return copied

    def _copy(self, path: Path, position: int, target: Path) -> None:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            with path.open("rb", buffering=0) as source:
                source.seek(position)
                size = 0
                while data := _readable(source):
                    self.write(descriptor, [data], size, False)
                    size += len(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _readable(source: FileIO) -> bytes:
    """The next bytes of a file; none at its end, or where the disk does not give them."""
    try:
        return source.read(COPY_BYTES)
    except OSError as error:
        if is_unreadable(error):
            return b""
        raise


def _new_name(folder: Path, name: str) -> Path:
    """Of a file in a folder, beside others of its name."""
    found = folder / name
    number = 1
    while found.exists():
        number += 1
        found = folder / f"{name}.{number}"
    return found
