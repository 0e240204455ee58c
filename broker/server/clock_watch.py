"""The wall clock of a running node, whose times the store writes.

Cores know monotonic time alone; the node knows how far the wall clock is ahead of it. Where somebody sets the clock (NTP, on a
machine that starts with a wrong one), and where the machine was suspended, this is another number from then on. Records
say wall time: with the former number the next start would take what waits in the store for older than it is, or newer.
"""

# not a core: reads the clock, has a task
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.broker import Broker
from broker.errors import NotCommitted
from broker.server.committed import committed
from broker.server.logging import get_logger
from broker.store.records import durable_sessions, encode, note_contents

if TYPE_CHECKING:
    from broker.server.host import Host

LOOK_SECONDS: Final = 30.0
STEP_SECONDS: Final = 10.0  # less than that, and slower, is how a clock is kept right
RECORDS_OF_A_BATCH: Final = (
    1_000  # that are written anew before it is waited for the store, with those of one session more
)
FULL_SECONDS: Final = 1.0  # before it is waited again for a store that takes nothing


class ClockWatch:
    """`start` is called when the node serves."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log = get_logger("server")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._host.loop.create_task(self._watch())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Where the clock was set: tell all times by the new one from now on, and have those in the store written anew."""
        host = self._host
        broker = host.broker
        before, broker.wall_offset = broker.wall_offset, time.time() - host.loop.time()
        moved = broker.wall_offset - before
        if abs(moved) < STEP_SECONDS:
            broker.wall_offset = before
            return
        self._log.warning("the clock of this machine was set; times in the store follow it", seconds=round(moved, 1))
        journal = broker.commits.journal
        if journal is None:
            return
        count = 0
        for contents in _parts(broker):
            for number, content in contents.items():
                if encode(content, before) != encode(content, broker.wall_offset):
                    journal.changes.setdefault(number, content)
            count += len(contents)
            if count >= RECORDS_OF_A_BATCH:
                count = 0
                await asyncio.sleep(0)  # where nothing changes there is nothing to wait for
                await self._stored()
        await self._stored()

    async def _stored(self) -> None:
        """The store has what was written anew: a batch is neither large in memory, nor for the nodes that keep copies."""
        while True:
            try:
                await committed(self._host)
            except NotCommitted:
                await asyncio.sleep(FULL_SECONDS)
            else:
                return


def _parts(broker: Broker) -> Iterator[dict[int, object]]:
    """What all records of this node describe, by their numbers, each part as it is when it is asked for."""
    for session in durable_sessions(broker):
        contents: dict[int, object] = {}
        note_contents(session, contents)
        yield contents
    for message in broker.retained.messages():
        if broker.retained.get(message.topic) is message:
            yield {message.record: message}
    journal = broker.commits.journal
    assert journal is not None
    for number, content in list(journal.kept.items()):
        if journal.kept.get(number) is content:
            yield {number: content}
