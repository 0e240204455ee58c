"""A store in one SQLite file: WAL, `synchronous=FULL`, one table of records, locked for one process."""

# not a core: reads and writes files
from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from broker.server.private_file import sync_folder
from broker.store.store import VERSION, Store, StoreFault

FILE_NAME: Final = "store.db"
ASIDE: Final = f"{FILE_NAME}.damaged-"  # and a number: what `gmqttd store recover` has set aside
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
APPLICATION_ID: Final = 0x676D7174  # "gmqt", in the header of the file
HEADER_BYTES: Final = 100
MAGIC: Final = b"SQLite format 3\0"
WAL_BYTES: Final = 64 * 2**20  # the log is cut to this size when a large batch has been moved into the file
# Rows of one statement. Between two statements the writer's thread may have to wait for the loop: few statements are better.
ROWS: Final = (512, 64, 8, 1)
COPY_PAGES: Final = 256  # of the file that are copied between two looks for batches

Migration = Callable[[sqlite3.Connection], None]
MIGRATIONS: Final[Mapping[int, Migration]] = {
    # By the version that each begins with.
    1: lambda database: None,
    2: lambda database: None,
}


def cut_off(path: Path) -> Path | None:
    """The name under which a recovery that was cut off has set the store aside: it is the same file yet, and its WAL may be
    under that name alone."""
    return next((aside for aside in path.parent.glob(f"{ASIDE}*") if aside.samefile(path)), None)


class SqliteStore(Store):
    """folder  made if the folder above it exists"""

    def __init__(self, folder: Path, version: int = VERSION, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
        super().__init__()
        self.path = folder / FILE_NAME
        self._version = version
        self._migrations = migrations
        self._database: sqlite3.Connection | None = None

    def open(self, create: bool = True) -> None:
        path = self.path
        if not create and not path.exists():
            raise StoreFault(f"{path}: there is no store")
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(FOLDER_MODE)
                sync_folder(path.parent.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                os.fchmod(descriptor, FILE_MODE)
                header = os.pread(descriptor, HEADER_BYTES, 0)
                size = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
            if cut_off(path) is not None:
                raise StoreFault(f"{path} is damaged, and `gmqttd store recover` was cut off; run it again")
        except FileNotFoundError:
            raise StoreFault(f"{path.parent} cannot be made; make the folder above it") from None
        except OSError as error:
            raise StoreFault(f"{path}: {error.strerror or error}") from None
        if header:
            self._check_header(header)
            self._check_size(header, size)
        with self._faults():
            self._open_database(not header)

    def check_free(self) -> None:
        """Raises StoreFault when there is no file, or another process has it open. Changes nothing in it."""
        if not self.path.exists():
            raise StoreFault(f"{self.path}: there is no store")
        database = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", timeout=0.0, uri=True)
        try:
            database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                raise self._in_use() from error
        finally:
            database.close()

    def _check_header(self, header: bytes) -> None:
        """Refuse a file before SQLite changes anything in it."""
        if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
            raise StoreFault(f"{self.path} is not a SQLite file, or only the beginning of one")
        if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
            raise StoreFault(f"{self.path} is a SQLite file of another program; name a data_dir of gmqttd's own")
        self._check_version(int.from_bytes(header[60:64], "big"))

    def _check_size(self, header: bytes, size: int) -> None:
        """Refuse a file whose end is missing: SQLite reads zeros there. A file with a WAL may be shorter than its header says:
        what is missing is in the WAL."""
        wal = self.path.with_name(f"{FILE_NAME}-wal")
        if wal.exists() and wal.stat().st_size > 0:
            return
        page_bytes = int.from_bytes(header[16:18], "big")
        expected = int.from_bytes(header[28:32], "big") * (65_536 if page_bytes == 1 else page_bytes)
        if size < expected:
            raise self._damaged(f"its end is missing: {size} of {expected} bytes are there")

    def _in_use(self) -> StoreFault:
        text = "another process uses it: stop that one, or give each node a data_dir of its own"
        return StoreFault(f"{self.path}: {text}")

    def _damaged(self, text: str) -> StoreFault:
        return StoreFault(
            f"{self.path} is damaged ({text}); keep what is readable with `gmqttd store recover`, "
            "move it away to begin without it, or restore a backup with `gmqttctl restore`"
        )

    def _check_version(self, version: int) -> None:
        if version > self._version:
            raise StoreFault(
                f"{self.path} is of version {version}, this gmqttd knows {self._version} at most: start a newer gmqttd"
            )

    def _open_database(self, is_new: bool) -> None:
        database = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
        self._database = database
        self.is_new = is_new
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        if is_new:
            database.execute("BEGIN EXCLUSIVE")
            database.execute("CREATE TABLE record (number INTEGER PRIMARY KEY, value BLOB NOT NULL)")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {self._version}")
            database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        database.execute("BEGIN EXCLUSIVE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        self._check_version(version)
        if version < self._version:
            for older in range(version, self._version):
                self._migrations[older](database)
            database.execute(f"PRAGMA user_version = {self._version}")
        database.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise StoreFault for errors of SQLite."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_BUSY"):
                raise self._in_use() from error
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                raise self._damaged(str(error)) from error
            raise StoreFault(f"{self.path}: {error}") from error

    def records(self) -> Iterator[tuple[int, bytes]]:
        assert self._database is not None
        with self._faults():
            for number, value in self._database.execute("SELECT number, value FROM record ORDER BY number"):
                if not isinstance(value, bytes):
                    raise self._damaged(f"record {number} has no value")
                yield number, value

    def _write(self, batch: Sequence[tuple[int, bytes | None]], is_whole: bool) -> None:
        with self._faults():
            self._write_rows(batch, is_whole)

    def _write_rows(self, batch: Sequence[tuple[int, bytes | None]], is_whole: bool) -> None:
        database = self._database
        assert database is not None
        deleted = [number for number, value in batch if value is None]
        written = [row for row in batch if row[1] is not None]
        try:
            database.execute("BEGIN IMMEDIATE")
            if is_whole:
                database.execute("DELETE FROM record")
            elif deleted:
                database.execute(
                    "DELETE FROM record WHERE number IN (SELECT value FROM json_each(?))", (json.dumps(deleted),)
                )
            position = 0
            for rows in ROWS:
                statement = "INSERT OR REPLACE INTO record VALUES " + ",".join(["(?,?)"] * rows)
                while len(written) - position >= rows:
                    values: list[object] = []
                    for row in written[position : position + rows]:
                        values += row
                    database.execute(statement, values)
                    position += rows
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def compact(self) -> None:
        assert self._database is not None
        with self._faults():
            self._database.execute("VACUUM")

    def copy_to(self, folder: str, pause: Callable[[], bool], is_moment: Callable[[], bool] = lambda: True) -> None:
        database = self._database
        assert database is not None
        is_past = False

        def take_what_waits() -> None:
            # What this connection writes between two steps comes into the copy (SQLite, Online Backup API).
            if not pause():
                raise StoreFault(f"{self.path}: the copy was ended: the node stops")

        def is_past_moment(copied: int) -> bool:
            """Wait for the moment while one step is left. False when there is more to copy by now."""
            while database.execute("PRAGMA page_count").fetchone()[0] - copied <= COPY_PAGES:
                if is_moment():
                    return True
                take_what_waits()
            return False

        def paused(_status: int, remaining: int, total: int) -> None:
            nonlocal is_past
            if not is_past:
                take_what_waits()
                is_past = is_past_moment(total - remaining)

        with self._faults():
            is_past = is_past_moment(0)
            copy = sqlite3.connect(Path(folder, FILE_NAME), isolation_level=None)
            try:
                copy.execute("PRAGMA synchronous = OFF")  # a copy that a crash leaves is of no use
                database.backup(copy, pages=COPY_PAGES, progress=paused)
            finally:
                copy.close()

    def close(self) -> None:
        if self._database is not None:
            with self._faults():
                self._database.close()
            self._database = None
