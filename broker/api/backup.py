"""BackupService: what the node keeps, as a stream of pieces, while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError
from broker.api.pb.admin_pb2 import BackupPart
from broker.api.pb.admin_pb2_grpc import BackupServiceServicer
from broker.api.tokens import Role
from broker.server.logging import get_logger
from broker.store.offline import export_lines
from broker.store.sqlite_store import SqliteStore
from broker.store.store import StoreFault, unpack_record

if TYPE_CHECKING:
    from broker.server.host import Host

PIECE_BYTES: Final = 256 * 1024
STORE: Final = "store.jsonl"
# Name of a part -> the key of the plugin auth that names the file.
FILES: Final = {"accounts.yml": "password_file", "acl": "acl_file"}


class BackupService(BackupServiceServicer):
    roles: Final = {"Backup": Role.ADMIN}

    def __init__(self, server: Host) -> None:
        self._server = server
        self._is_running = False
        self._log = get_logger("api")

    async def Backup(self, request: Empty, context: object) -> AsyncIterator[BackupPart]:
        worker = self._server.worker
        if worker is not None and worker.place.count > 1:
            text = f"the node has {worker.place.count} workers, each with a store, and this would have that of worker 0"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, f"{text}; stop the node and copy data_dir as a whole")
        if self._is_running:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "a backup runs already")
        self._is_running = True
        try:
            for name, key in FILES.items():
                data = await asyncio.to_thread(read_file, self._path_of(key))
                if data is not None:
                    yield BackupPart(name=name, data=data)
            async for data in self._store_pieces():
                yield BackupPart(name=STORE, data=data)
        except StoreFault as fault:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(fault)) from None
        finally:
            self._is_running = False
        self._log.info("backup made by the API")

    def _path_of(self, key: str) -> str:
        """The file of a key of the plugin auth, "" for none."""
        settings = self._server.settings
        auth = getattr(settings.plugins, "auth", None) if "auth" in settings.plugin_order else None
        file = getattr(auth, key, "")
        return self._server.path_of(file) if file else ""

    async def _store_pieces(self) -> AsyncIterator[bytes]:
        """The lines of an export, of a copy that is made beside the store and removed afterwards."""
        settings = self._server.settings
        beside = self._server.path_of(settings.data_dir) if settings.data_dir else None
        with TemporaryDirectory(dir=beside, prefix="backup-") as folder:
            if not await self._server.copy_store(Path(folder)):
                return
            pieces = pieces_of(Path(folder))
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece


def read_file(path: str) -> bytes | None:
    """None where there is no file."""
    try:
        return Path(path).read_bytes() if path else None
    except FileNotFoundError:
        return None


def pieces_of(folder: Path) -> Iterator[bytes]:
    """Raises StoreFault for a damaged record."""
    store = SqliteStore(folder)
    store.open(create=False)
    try:
        piece = bytearray()
        for line in export_lines((number, unpack_record(number, packed)) for number, packed in store.records()):
            piece += line.encode() + b"\n"
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)
    finally:
        store.close()
