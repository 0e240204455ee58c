"""The store of a node, from its start to its stop."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.config.settings import Settings
from broker.errors import NotCommitted
from broker.metrics.metric import Metric
from broker.server.committed import committed
from broker.server.host import Host
from broker.server.logging import get_logger
from broker.server.start_error import StartError
from broker.server.writer_thread import WriterThread
from broker.store.restoring import RecordFault, Restoring
from broker.store.store import Store, StoreFault, pack_record, unpack_record
from broker.store.store_writer import StoreWriter

COPY_PREFIX: Final = ".store-copy-"  # of folders in data_dir: each has the copy of a backup that runs
RECOVERING: Final = "recovering"  # the folder in data_dir of `gmqttd store recover`
RECORDS_OF_A_TURN: Final = 10_000  # then signals are looked at


def make_store(settings: Settings, config_folder: str) -> Store | None:
    """The store that the settings ask for, not open yet; None for `memory`. A relative `data_dir` starts at the folder."""
    if settings.store_type == "sqlite":
        from broker.store.sqlite_store import SqliteStore

        return SqliteStore(Path(config_folder, settings.data_dir))
    if settings.store_type == "redis":
        from broker.store.redis_store import RedisStore

        return RedisStore(settings.persistence.redis)
    return None


class Durability:
    """writer  None without a store, and before `open`"""

    def __init__(self, host: Host) -> None:
        self.writer: StoreWriter | None = None
        self._host = host
        self._store: Store | None = None
        self._thread: WriterThread | None = None
        self._log = get_logger("store")

    async def open(self) -> None:
        """Restore what the store holds, and have changes written from now on. Raises StartError."""
        store = make_store(self._host.settings, self._host.config_folder)
        if store is None:
            return
        host = self._host
        begun = host.loop.time()
        self._store = store
        gc.disable()  # a collection looks at everything that was restored so far, and finds nothing
        try:
            store.open()
            self._remove_left()
            restoring = await self._restore(store)
            journal = restoring.end()
            self._host.broker.identity.is_new = store.is_new
            number, record = restoring.identity()
            store.commit([(number, pack_record(record))])
        except (StoreFault, RecordFault) as fault:
            store.close()
            self._store = None
            raise StartError(f"persistence: {fault}") from fault
        finally:
            gc.enable()
        for warning in store.warnings:
            self._log.warning(warning)
        broker = host.broker
        self._thread = WriterThread(host.loop, "store")
        self._thread.start()
        self.writer = StoreWriter(host, store, journal, self._thread)
        host.turns.ends.append(self.writer)
        self._log.info(
            "store opened",
            type=host.settings.store_type,
            sessions=len(broker.sessions),
            retained_messages=len(broker.retained),
            seconds=round(host.loop.time() - begun, 3),
        )
        if restoring.refused:
            self._log.warning("retained messages above the limits were deleted", messages=restoring.refused)

    def _remove_left(self) -> None:
        """Remove the copies of the store that a kill has left: of a backup, and of a recovery."""
        if not self._host.settings.data_dir:
            return
        folder = Path(self._host.path_of(self._host.settings.data_dir))
        for left in (*folder.glob(f"{COPY_PREFIX}*"), folder / RECOVERING):
            if left.is_dir():
                self._log.info("a copy of the store that a kill has left is removed", folder=str(left))
                shutil.rmtree(left, ignore_errors=True)

    async def _restore(self, store: Store) -> Restoring:
        host = self._host
        restoring = Restoring(host.broker, host.wall_time(0.0), host.now())
        left = RECORDS_OF_A_TURN
        for number, packed in store.records():
            restoring.add(number, unpack_record(number, packed))
            left -= 1
            if left == 0:
                left = RECORDS_OF_A_TURN
                await asyncio.sleep(0)
        return restoring

    async def copy_to(self, folder: Path) -> bool:
        """Write a copy of the store into an empty folder, while it takes batches: of the moment of all workers. False without
        a store. Raises StoreFault."""
        if self._thread is None or self._store is None:
            return False
        pause, worker = self._thread.run_waiting, self._host.worker
        steps: tuple[Callable[[], bool], ...] = (pause,)
        if worker is not None:
            part = worker.counts.copies.join(worker.place.index, pause)
            steps = part.pause, part.is_reached
        await committed(self._host)
        await self._thread.result(self._store.copy_to, str(folder), *steps)
        return True

    def metrics(self) -> list[Metric]:
        return [] if self.writer is None else self.writer.metrics()

    def not_ready(self) -> list[str]:
        """Return why nothing durable is acknowledged now; none while the store works."""
        return [] if self.writer is None else self.writer.not_ready()

    async def close(self) -> None:
        writer = self.writer
        if writer is None or self._thread is None or self._store is None:
            return
        try:
            await committed(self._host)
        except NotCommitted as fault:
            self._log.error("the last changes are not in the store", reason=str(fault))
        writer.stop()
        self._host.turns.ends.remove(writer)
        self.writer = None
        await self._thread.stop(self._store.close)
