"""The contract of a store: records by number, changed in batches.

tests/broker/store/test_contract.py holds all stores to it.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgpack  # type: ignore[import-untyped]

VERSION: Final = 3
"""Of the records. 2 has those of other packages, and the identity of the store; 3 has records of these with more values. A
store of a newer version is refused, one of an older version is migrated."""
CHECKSUM_BYTES: Final = 4


class StoreFault(Exception):
    """The store cannot be opened, read or written. The text names the store, what is wrong, and what would be right."""


class OwnerLost(StoreFault):
    """Another node has the store now. This one must not write any more."""


class LostCommits(StoreFault):
    """The store has fewer changes than were written: `replace` makes it whole again."""


class Store(ABC):
    """Calls come from one thread at a time: `open` first, then `records` to its end, then the others; `close` last.

    What `open` or `records` refuses is left as it is.

    warnings  why the store keeps less than it could; complete when `open` has returned
    is_new    `open` has made it
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.is_new = False

    @abstractmethod
    def open(self, create: bool = True) -> None:
        """Open the store and lock it for this process. Make it where there is none, if `create`; migrate one of an older
        version, whole or not at all. Raises StoreFault: it is in use, newer, damaged or out of reach, or there is none."""

    @abstractmethod
    def records(self) -> Iterator[tuple[int, bytes]]:
        """(record number, packed record) of all records, by rising numbers. Raises StoreFault."""

    def commit(self, batch: Sequence[tuple[int, bytes | None]]) -> None:
        """Write the packed records of a batch; None deletes a record, one that is not there too. All of the batch is in the
        store and outlives the process and its machine when the call returns, or nothing is. Raises StoreFault; the same
        batch can be tried again, also when it was written after all."""
        self._write(batch, False)

    def replace(self, batch: Sequence[tuple[int, bytes | None]]) -> None:
        """As `commit`, in place of all records that were there. One that has failed is tried again as `replace`: until then
        `commit` may raise LostCommits."""
        self._write(batch, True)

    @abstractmethod
    def _write(self, batch: Sequence[tuple[int, bytes | None]], is_whole: bool) -> None:
        """Write a batch, in place of all records if `is_whole`."""

    @abstractmethod
    def compact(self) -> None:
        """Give back the space of deleted records. Raises StoreFault."""

    def copy_to(self, folder: str, pause: Callable[[], bool], is_moment: Callable[[], bool] = lambda: True) -> None:
        """Write a copy of what was committed as a store of SQLite into an empty folder. `pause` is called again and again
        meanwhile: it may commit batches, which the copy has then, too, and returns False to end it. `is_moment` is
        asked near the end, until it returns True: the copy has what was committed until then, and nothing is committed from
        then to the end. Raises StoreFault, also that of `pause` and `is_moment`."""
        raise StoreFault(f"{type(self).__name__}: a store of this type has tools of its own for copies")

    @abstractmethod
    def close(self) -> None:
        """Unlock and close. Also called after `open` has failed."""


def pack_record(record: Sequence[object]) -> bytes:
    """A record as the store keeps it: CRC-32, then the values in MessagePack."""
    data: bytes = msgpack.packb(record)
    return _with_checksum(data)


def pack_batch(records: Mapping[int, Sequence[object] | None]) -> list[tuple[int, bytes | None]]:
    """Records by number as a store takes them, None for a deleted one."""
    pack = msgpack.Packer().pack  # one for all: making it costs as much as packing a record
    return [(number, None if record is None else _with_checksum(pack(record))) for number, record in records.items()]


def _with_checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "big") + data


def unpack_record(number: int, packed: bytes) -> tuple[object, ...]:
    """Raises StoreFault."""
    data = packed[CHECKSUM_BYTES:]
    if zlib.crc32(data) != int.from_bytes(packed[:CHECKSUM_BYTES], "big"):
        raise StoreFault(f"record {number} is damaged: its checksum does not fit")
    try:
        record = msgpack.unpackb(data, use_list=False)
    except ValueError as error:
        raise StoreFault(f"record {number} is not MessagePack: {error}") from None
    if not isinstance(record, tuple) or not record:
        raise StoreFault(f"record {number} is not a list of values")
    return record
