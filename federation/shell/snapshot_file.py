"""The file of Serf's snapshot (federation/serf/snapshot), and the task that writes it."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, Final

from broker.server.private_file import sync_folder
from broker.server.start_error import StartError
from federation.serf.events import Event, MemberStatus
from federation.serf.leaving import SerfPhase
from federation.serf.serf import Serf
from federation.serf.snapshot import SNAPSHOT_BYTES_MAX, NotASnapshot, SnapshotContents, SnapshotLog, read_snapshot

FLUSH_INTERVAL: Final = 0.5
"""Seconds between two writes: what a crash loses. Serf's interval."""

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_MODE: Final = 0o600


def check_snapshot(path: Path, key: str) -> None:
    """Raise StartError where a start could not use the file. The file is neither made nor cut."""
    try:
        if not os.path.lexists(path):
            if not os.access(path.parent, os.W_OK | os.X_OK):
                missing = errno.EACCES if path.parent.is_dir() else errno.ENOENT
                raise OSError(missing, os.strerror(missing))
            return
        with open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC), "rb") as stream:
            read_snapshot(stream.read(SNAPSHOT_BYTES_MAX + 1), True)
    except OSError as error:
        raise _cannot_open(key, path, error) from error
    except NotASnapshot as error:
        raise _no_snapshot(key, path, error) from error


def _cannot_open(key: str, path: Path, error: OSError) -> StartError:
    return StartError(f"{key}: {path} cannot be opened: {error.strerror or error}")


def _no_snapshot(key: str, path: Path, error: NotASnapshot) -> StartError:
    return StartError(f"{key}: {path} is no snapshot of Serf: {error}; name another file")


class SnapshotFile:
    """A snapshot that is open for appending. Its methods block."""

    def __init__(self, path: Path, rejoin_after_leave: bool, key: str) -> None:
        """Read the file, or make an empty one; cut off a torn last line. StartError names `key`, the path and what is wrong."""
        self.path = path
        try:
            self._descriptor = os.open(path, _FLAGS, _MODE)
            with open(self._descriptor, "rb", closefd=False) as stream:
                data = stream.read(SNAPSHOT_BYTES_MAX + 1)
            self.contents: SnapshotContents = read_snapshot(data, rejoin_after_leave)
            if self.contents.whole < len(data):
                os.ftruncate(self._descriptor, self.contents.whole)
        except OSError as error:
            raise _cannot_open(key, path, error) from error
        except NotASnapshot as error:
            os.close(self._descriptor)
            raise _no_snapshot(key, path, error) from error

    def append(self, data: bytes) -> None:
        """Raises OSError."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def replace(self, data: bytes) -> None:
        """Put a new file in the place of this one; a crash leaves the old one or the new one. Raises OSError."""
        partial = self.path.with_name(self.path.name + ".compact")
        former, self._descriptor = self._descriptor, os.open(partial, _FLAGS | os.O_TRUNC, _MODE)
        os.close(former)
        self.append(data)
        self.sync()
        os.replace(partial, self.path)
        sync_folder(self.path.parent)

    def sync(self) -> None:
        """Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class SnapshotWriter:
    """Writes what Serf's events and clocks say to the file, every FLUSH_INTERVAL and at `stop`.

    A write that fails is logged once; the next one writes the whole file.
    """

    def __init__(self, file: SnapshotFile, serf: Serf, log: Any) -> None:
        self._file = file
        self._serf = serf
        self._log = log
        self._snapshot = SnapshotLog(file.contents, serf.config.node_name)
        self._is_failing = False
        self._writes = asyncio.Lock()
        self._task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run())

    def note_events(self, events: list[Event]) -> None:
        self._snapshot.note_events(events)

    async def stop(self) -> None:
        """Write what is left and close the file."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._write()
        self._file.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL)
            await asyncio.shield(self._write())  # a write that has begun ends, although `stop` cancels

    async def _write(self) -> None:
        async with self._writes:
            await self._write_alone()

    async def _write_alone(self) -> None:
        snapshot, serf = self._snapshot, self._serf
        if serf.phase == SerfPhase.ALIVE and snapshot.has_left:
            snapshot.rejoin([member for member in serf.members() if member.status <= MemberStatus.LEAVING])
        snapshot.note_clocks(*serf.last_times())
        leaves = serf.phase != SerfPhase.ALIVE and not snapshot.has_left
        if leaves:
            snapshot.leave()
        data, is_whole = snapshot.take()
        if not data:
            return
        try:
            await asyncio.to_thread(self._write_now, data, is_whole, leaves)
        except OSError as error:
            snapshot.fail()
            if not self._is_failing:
                self._log.error("the snapshot cannot be written", path=str(self._file.path), error=str(error))
            self._is_failing = True
        else:
            self._is_failing = False

    def _write_now(self, data: bytes, is_whole: bool, synced: bool) -> None:
        if is_whole:
            self._file.replace(data)
        else:
            self._file.append(data)
            if synced:
                self._file.sync()
