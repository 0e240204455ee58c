"""BackupService: what the node keeps, as a stream of pieces, while it runs.

On a node with several workers worker 0 calls the others, and passes on what they give: copies of all stores at one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError
from broker.api.pb.admin_pb2 import BackupPart
from broker.api.pb.admin_pb2_grpc import BackupServiceServicer
from broker.api.siblings import Siblings
from broker.api.tokens import Role
from broker.server.logging import get_logger
from broker.server.worker_folders import leaving_workers
from broker.store.durability import COPY_PREFIX
from broker.store.offline import export_lines
from broker.store.sqlite_store import SqliteStore
from broker.store.store import StoreFault, unpack_record

if TYPE_CHECKING:
    from broker.server.host import Host

PATH: Final = "/gmqtt.admin.api.BackupService/Backup"
PIECE_BYTES: Final = 256 * 1024
# Name of a part -> the key of the plugin auth that names the file.
FILES: Final = {"accounts.yml": "password_file", "acl": "acl_file"}


class BackupService(BackupServiceServicer):
    roles: Final = {"Backup": Role.ADMIN}

    def __init__(self, server: Host, siblings: Siblings | None = None) -> None:
        """siblings: the other workers of the node, at worker 0."""
        self._server = server
        self._siblings = siblings
        self._is_running = False
        self._log = get_logger("api")
        self._end_moment()  # one that began before this process is not waited for

    async def Backup(self, request: Empty, context: object) -> AsyncGenerator[BackupPart, None]:
        worker, settings = self._server.worker, self._server.settings
        data_dir = self._server.path_of(settings.data_dir) if settings.data_dir else ""
        if worker is not None and leaving_workers(settings, data_dir, worker.place.count):
            text = "workers of an earlier start give their sessions to the others; try again when the log says that they have"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, text)
        if self._is_running:
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "a backup runs already")
        self._is_running = True
        try:
            is_own = worker is None or worker.place.index == 0
            for name, key in FILES.items() if is_own else ():
                data = await asyncio.to_thread(read_file, self._path_of(key))
                if data is not None:
                    yield BackupPart(name=name, data=data)
            async with aclosing(self._all_pieces() if is_own else self._store_pieces()) as pieces:
                async for piece in pieces:
                    yield piece
        except StoreFault as fault:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(fault)) from None
        finally:
            self._is_running = False
            self._end_moment()
        self._log.info("backup made by the API")

    def _end_moment(self) -> None:
        if self._siblings is not None and self._server.worker is not None:
            self._server.worker.counts.copies.begin()

    def _path_of(self, key: str) -> str:
        """The file of a key of the plugin auth, "" for none."""
        settings = self._server.settings
        auth = getattr(settings.plugins, "auth", None) if "auth" in settings.plugin_order else None
        file = getattr(auth, key, "")
        return self._server.path_of(file) if file else ""

    async def _all_pieces(self) -> AsyncGenerator[BackupPart, None]:
        """Those of this worker, and of the others behind them."""
        self._end_moment()
        async with AsyncExitStack() as open_streams:
            indexes = [] if self._siblings is None else self._siblings.indexes
            streams = [self._store_pieces(), *map(self._pieces_of, indexes)]
            for stream in streams:
                await open_streams.enter_async_context(aclosing(stream))
            # All of them copy before the first one is read further, since each waits for the others.
            copying = [asyncio.ensure_future(anext(stream)) for stream in streams]
            try:
                await asyncio.gather(*copying)
            finally:
                self._end_moment()  # the others end, too, where one has failed
                await asyncio.gather(*copying, return_exceptions=True)
            for stream in streams:
                async for piece in stream:
                    yield piece

    async def _pieces_of(self, index: int) -> AsyncGenerator[BackupPart, None]:
        """Of another worker. Raises ApiError."""
        assert self._siblings is not None
        async with aclosing(self._siblings.stream(index, PATH, b"")) as pieces:
            async for piece in pieces:
                yield BackupPart.FromString(piece)

    async def _store_pieces(self) -> AsyncGenerator[BackupPart, None]:
        """The lines of an export, of a copy that is made beside the store and removed afterwards. A piece without lines comes
        first, when there is the copy."""
        settings, worker = self._server.settings, self._server.worker
        index = 0 if worker is None else worker.place.index
        store_id = "" if worker is None else self._server.broker.identity.store_id
        name = f"store-{index}.jsonl" if index else "store.jsonl"
        beside = self._server.path_of(settings.data_dir) if settings.data_dir else None
        with TemporaryDirectory(dir=beside, prefix=COPY_PREFIX) as folder:
            has_store = await self._server.copy_store(Path(folder))
            yield BackupPart()
            if not has_store:
                return
            lines = lines_of(Path(folder), store_id)
            while (data := await asyncio.to_thread(next, lines, None)) is not None:
                yield BackupPart(name=name, data=data)


def read_file(path: str) -> bytes | None:
    """None where there is no file."""
    try:
        return Path(path).read_bytes() if path else None
    except FileNotFoundError:
        return None


def lines_of(folder: Path, store_id: str = "") -> Iterator[bytes]:
    """Pieces of the export of a store. Raises StoreFault for a damaged record."""
    store = SqliteStore(folder)
    store.open(create=False)
    try:
        piece = bytearray()
        records = ((number, unpack_record(number, packed)) for number, packed in store.records())
        for line in export_lines(records, store_id):
            piece += line.encode() + b"\n"
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece)
    finally:
        store.close()
