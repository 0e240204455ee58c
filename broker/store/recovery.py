"""The readable rest of a damaged SQLite store: `gmqttd store recover`.

A damaged page takes the records on it along. The others are read around it, and those that are whole, and refer to records
that are there, become a store of another id: others know what the former store promised, and this one may have lost it.
"""

# not a core: reads and writes files
from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker.broker import Broker
from broker.config.settings import Settings
from broker.server.private_file import sync_folder
from broker.store.durability import RECOVERING, make_store
from broker.store.identity import StoreIdentity, identity_of, new_identity
from broker.store.kinds import COPY, KEEPERS, REPLICA, RUN, STORE
from broker.store.restoring import RecordFault, Restoring
from broker.store.sqlite_store import ASIDE, FILE_NAME, SqliteStore, cut_off
from broker.store.store import StoreFault, pack_record, unpack_record

NUMBER_MAX: Final = 2**63 - 1  # of a row
STARTS_UNKNOWN: Final = 2**16  # more than a store was ever started: serial numbers rise over all starts
OF_COPIES: Final = (REPLICA, COPY, RUN, KEEPERS)  # other nodes send theirs again, and keep another copy of this store
SUFFIXES: Final = ("", "-wal")


class Recovered(NamedTuple):
    """kept     number of records
    damaged  number of records that are not whole, or refer to one that is missing
    gaps     number of places where the file could not be read
    aside    where the damaged file is now
    """

    kept: int
    damaged: int
    gaps: int
    aside: Path


def recover(settings: Settings, config_folder: str) -> Recovered:
    """Put a new store in place of the damaged one, which is set aside. Raises StoreFault: there is none, it is in use, it is no
    SQLite store, or nothing of it can be read."""
    store = make_store(settings, config_folder)
    if not isinstance(store, SqliteStore):
        raise StoreFault("only a store in a file (persistence.type: sqlite) can be recovered")
    path = store.path
    store.check_free()
    aside = cut_off(path)
    made = path.with_name(RECOVERING)
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(0o700)
    try:
        for suffix in SUFFIXES:
            source = Path(f"{aside or path}{suffix}")
            if source.exists():
                shutil.copyfile(source, made / f"copy{suffix}")
        reader = _Reader(made / "copy")
        batch, kept, damaged = _whole(settings, reader)
        fresh = SqliteStore(made)
        fresh.open()
        try:
            fresh.commit(batch)
        finally:
            fresh.close()
        aside = _put_in_place(made / FILE_NAME, path)
    except (OSError, sqlite3.Error) as error:
        text = "move it away, or restore a backup with `gmqttctl restore`"
        raise StoreFault(f"{path} cannot be recovered: {error}; {text}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return Recovered(kept, damaged, reader.gaps, aside)


def _whole(settings: Settings, reader: _Reader) -> tuple[list[tuple[int, bytes | None]], int, int]:
    """(records of the new store, number of those kept, number of those damaged)."""
    rng = random.SystemRandom()
    restoring = Restoring(Broker(settings.mqtt, rng, 0.0), 0.0, 0.0)
    batch: list[tuple[int, bytes | None]] = []
    damaged = 0
    former: StoreIdentity | None = None
    last = 0
    for number, packed in reader.rows():
        last = number
        try:
            record = unpack_record(number, packed)
            if record[0] == STORE:
                former = former_identity(record)
                continue
            if record[0] in OF_COPIES:
                continue
            restoring.add(number, record)
        except (StoreFault, RecordFault):
            damaged += 1
        else:
            batch.append((number, packed))
    identity = new_identity(rng, True)
    identity.starts = STARTS_UNKNOWN if former is None else former.starts
    identity.formerly = () if former is None else (*former.formerly, former.store_id)
    identity.node = "" if former is None else former.node
    kept = len(batch)
    batch.append((last + 1, pack_record(identity.values(0.0))))
    return batch, kept, damaged


def former_identity(record: tuple[object, ...]) -> StoreIdentity:
    """Raises RecordFault."""
    try:
        return identity_of(record)
    except (TypeError, ValueError) as error:
        raise RecordFault(f"the record of the store does not have the values of its kind: {error}") from None


def _put_in_place(made: Path, path: Path) -> Path:
    """Give the damaged file, with its log, the first free name as well, and then the new one its place. A kill, or a power
    failure, leaves the damaged store as it is, or one that no start opens (`cut_off`), or the new one. Returns the name."""
    wal = path.with_name(f"{FILE_NAME}-wal")
    aside = cut_off(path) or _set_aside(path, wal)
    sync_folder(path.parent)
    wal.unlink(missing_ok=True)  # it would be replayed onto the new file
    path.with_name(f"{FILE_NAME}-shm").unlink(missing_ok=True)
    sync_folder(path.parent)
    made.replace(path)
    sync_folder(path.parent)
    return aside


def _set_aside(path: Path, wal: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{ASIDE}{number}")).exists():
        number += 1
    if wal.exists():
        kept = Path(f"{aside}-wal")
        kept.unlink(missing_ok=True)
        os.link(wal, kept)
    os.link(path, aside)  # from now on the recovery is cut off
    return aside


class _Reader:
    """Reads the rows around what cannot be read.

    gaps  number of places that could not be read
    """

    def __init__(self, path: Path) -> None:
        self.gaps = 0
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA writable_schema = ON")  # else a file whose end is missing is not read at all
        self._database.execute("SELECT 1 FROM record LIMIT 0")  # the first page says where the records are

    def rows(self) -> Iterator[tuple[int, bytes]]:
        at = 0
        while True:
            try:
                for number, value in self._from(at):
                    at = number + 1
                    if isinstance(value, bytes):
                        yield number, value
                break
            except sqlite3.DatabaseError:
                self.gaps += 1
                readable = self._next_readable(at)
                if readable < 0:
                    break
                at = readable
        self._database.close()

    def _from(self, number: int) -> sqlite3.Cursor:
        return self._database.execute("SELECT number, value FROM record WHERE number >= ? ORDER BY number", (number,))

    def _can_read(self, number: int) -> bool:
        try:
            self._from(number).fetchone()
        except sqlite3.DatabaseError:
            return False
        return True

    def _next_readable(self, at: int) -> int:
        """Return the least number, or one close to it, from which on a row can be read; -1 for none."""
        low, step = at, 1
        while not self._can_read(min(low + step, NUMBER_MAX)):
            if low + step >= NUMBER_MAX:
                return -1
            low, step = low + step, step * 2
        high = min(low + step, NUMBER_MAX)
        while low + 1 < high:
            middle = (low + high) // 2
            if self._can_read(middle):
                high = middle
            else:
                low = middle
        return high
