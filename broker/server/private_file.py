"""A file with secrets: read whole, replaced whole, with mode 0600."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOCK_SECONDS_MAX: Final = 10.0  # a process that holds the lock for longer does not keep the reloads of a node waiting
LOCK_PAUSE: Final = 0.02  # there is no lock with a time limit to wait for


def _lock(descriptor: int, folder: str) -> None:
    """Raises OSError when another process has the lock for LOCK_SECONDS_MAX."""
    until = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, f"another process has locked the folder {folder}") from None
            time.sleep(LOCK_PAUSE)
        else:
            return


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Sync a folder: a name that was given to a file in it is lost with the power otherwise. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class PrivateFile:
    """`path` may be a symbolic link; the file that it names is replaced. The methods do input and output: a node calls them in
    a thread."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, bytes_max: int, may_be_missing: bool = True) -> bytes:
        """The first `bytes_max` bytes; none for a file that is missing and may be. Raises OSError."""
        try:
            with open(self.path, "rb") as stream:
                return stream.read(bytes_max)
        except FileNotFoundError:
            if may_be_missing:
                return b""
            raise

    def change(self, change: Callable[[], bytes]) -> None:
        """Replace the content by what `change` makes of it, while nobody else does so. Raises OSError, and what `change`
        raises; the file is then as before."""
        with self._locked():
            self._replace(change())

    def is_readable_by_others(self) -> bool:
        try:
            return bool(stat.S_IMODE(os.stat(self.path).st_mode) & 0o077)
        except OSError:
            return False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude others that change a file of the folder in this way."""
        descriptor = os.open(self._folder(), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(descriptor, self._folder())
            yield
        finally:
            os.close(descriptor)

    def _folder(self) -> str:
        return os.path.dirname(os.path.realpath(self.path))

    def _replace(self, data: bytes) -> None:
        target = os.path.realpath(self.path)
        descriptor, temporary = tempfile.mkstemp(prefix=".gmqttd-", dir=self._folder())  # mode 0600
        try:
            with open(descriptor, "wb") as stream:
                stream.write(data)
                if os.path.exists(target):
                    former = os.stat(target)
                    if (former.st_uid, former.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(
                            stream.fileno(), former.st_uid, former.st_gid
                        )  # root changes it for the broker's user
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        sync_folder(self._folder())
