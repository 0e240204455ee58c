"""Random work on a log beside a list, with faults of the disk, crashes in the middle of a step, and restarts.

What a reader saw under one log id stays what it was, and nothing goes back, is doubled or changes its place; what a flush has
confirmed is there, whatever came between.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.event_log import appender, log_writer
from broker.event_log.faults import NotWritten
from broker.event_log.files import Files
from event_log_reader import AppendingLog, Clock, MakeLog, read_all
from waiting import eventually

SEGMENT_BYTES = 2**16
SECTOR = 512
STEPS = 60


class RandomDisk(Files):
    """faulty     share of writes that fail, with any part of them done
    steps_left  until the machine ends within a step; None: it does not end
    has_ended   nothing changes the files any more
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.faulty = 0.0
        self.steps_left: int | None = None
        self.has_ended = False

    def _ends(self) -> bool:
        """Whether the machine ends in this step. Raises OSError when it has ended."""
        if self.has_ended:
            raise OSError(errno.EIO, "the machine has ended")
        if self.steps_left is not None:
            self.steps_left -= 1
            self.has_ended = self.steps_left == 0
        return self.has_ended

    def write(self, descriptor: int, parts: Sequence[bytes], position: int, synced: bool) -> None:
        data = b"".join(parts)
        if self._ends():  # sectors get to disk in any order
            for at in range(0, len(data), SECTOR):
                if self.chance.random() < 0.5:
                    os.pwrite(descriptor, data[at : at + SECTOR], position + at)
            raise OSError(errno.EIO, "the machine ends")
        if self.chance.random() < self.faulty:
            os.pwrite(descriptor, data[: self.chance.randrange(len(data) + 1)], position)
            raise OSError(errno.ENOSPC, "full")
        super().write(descriptor, parts, position, synced)

    def sync_folder(self, folder: Path) -> None:
        if self._ends():
            raise OSError(errno.EIO, "the machine ends")
        super().sync_folder(folder)

    def truncate(self, descriptor: int, size: int) -> None:
        if self._ends():
            raise OSError(errno.EIO, "the machine ends")
        super().truncate(descriptor, size)


class Soak:
    """seen  what was read: (log id, offset) -> (payload, time); `sure`: payloads that a flush confirmed"""

    def __init__(self, make_log: MakeLog, clock: Clock, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = RandomDisk(self.chance)
        self.seen: dict[tuple[str, int], tuple[bytes, int]] = {}
        self.sure: list[bytes] = []
        self.clock = clock
        self.folder = folder
        self.log: AppendingLog
        self._make_log = make_log
        self._on_full = self.chance.choice(["stop_logging", "refuse_publishes"])
        self._count = 0

    async def start(self) -> None:
        self.disk = RandomDisk(self.chance)
        self.log = await self._make_log(
            files=self.disk, dir=str(self.folder), segment_bytes=SEGMENT_BYTES, on_full=self._on_full
        )

    def append(self) -> bytes:
        payload = b"%06d" % self._count + bytes(self.chance.choice([0, 10, 300, 3000]))
        self._count += 1
        self.clock.advance(self.chance.choice([0.0, 0.1, 1.0, -3.0]))
        self.log.append(b"t/%d" % (self._count % 3), payload)
        return payload

    async def append_and_flush(self) -> None:
        lost = self.log.appender.lost
        payloads = [self.append() for _ in range(self.chance.choice([1, 3, 40]))]
        try:
            await asyncio.wait_for(self.log.flush(), 0.2)
        except NotWritten:
            return
        except TimeoutError:  # publishes are refused, and the records are kept, until there is room
            await self.mend()
            await self.log.flush()
        if self.log.appender.lost == lost:
            self.sure += payloads

    async def write(self) -> None:
        for _ in range(self.chance.choice([1, 30])):
            self.append()
        self.log.writer.write()

    async def fault(self) -> None:
        self.disk.faulty = self.chance.choice([0.3, 1.0])

    async def mend(self) -> None:
        self.disk.faulty = 0.0
        await eventually(lambda: not self.log.writer.stopped, "the disk takes records")

    async def restart(self) -> None:
        self.disk.faulty = 0.0
        log_id = self.log.log_id
        await self.log.stop()
        await self.start()
        await self.check()
        assert self.log.damaged == []
        if self._on_full == "refuse_publishes":
            assert self.log.log_id == log_id

    async def crash(self) -> None:
        """The machine ends within a step. What was synced is there, for those who have read it, too."""
        log_id = self.log.log_id
        self.disk.steps_left = self.chance.randrange(1, 6)
        for _ in range(self.chance.randrange(1, 40)):
            self.append()
            if self.chance.random() < 0.2:
                self.log.writer.write()
                await asyncio.sleep(0)
        self.log.writer.write()
        ended = asyncio.ensure_future(self.log.flush())
        await asyncio.wait([ended], timeout=0.05)
        self.disk.has_ended = True
        await self.log.stop()
        await asyncio.gather(ended, return_exceptions=True)
        await self.start()
        assert self.log.damaged == []
        if self.log.log_id != log_id:  # a block was torn: whoever has read goes on under the new id
            self._goes_on_from(log_id)
        await self.check()

    def _goes_on_from(self, log_id: str) -> None:
        end = self.log.lineage.shared_end(log_id)
        assert end is not None
        for (seen_id, offset), found in list(self.seen.items()):
            if seen_id == log_id:
                assert offset < end
                self.seen[(self.log.log_id, offset)] = found

    async def check(self) -> None:
        log_id, first, end = self.log.log_id, self.log.first_offset, self.log.next_offset
        records = await read_all(self.log)
        assert [record.offset for record in records] == list(range(first, end))
        for record in records:
            found = record.payload, record.time_ns
            assert self.seen.setdefault((log_id, record.offset), found) == found
        assert all(offset < end for seen_id, offset in self.seen if seen_id == log_id)
        payloads = [record.payload[:6] for record in records]
        assert payloads == sorted(set(payloads)), "in order, and each once"
        times = [record.time_ns for record in records]
        assert times == sorted(times)
        there = {record.payload for record in records}
        assert [payload[:6] for payload in self.sure if payload not in there] == []


@pytest.mark.parametrize("seed", range(8))
async def test_random_work_loses_doubles_and_changes_nothing(
    make_log: MakeLog, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(log_writer, "RETRY_SECONDS", 0.003)
    monkeypatch.setattr(appender, "BLOCK_BYTES", 4000)  # several blocks in a write
    soak = Soak(make_log, clock, tmp_path / "log", seed)
    await soak.start()
    work = [soak.append_and_flush] * 8 + [soak.write] * 3 + [soak.check, soak.fault, soak.mend, soak.restart]
    for _ in range(STEPS):
        await soak.chance.choice(work)()
        if soak.chance.random() < 0.1:
            await soak.mend()
            await soak.crash()
    await soak.mend()
    await soak.log.flush()
    await soak.check()
