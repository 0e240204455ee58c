"""The thread that changes the files: its end."""

from __future__ import annotations

import asyncio
import threading

from broker.server.writer_thread import WriterThread
from waiting import eventually

NAME = "event-log"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


async def test_nothing_runs_behind_the_last_work() -> None:
    """It gives the folder back: another process may use that."""
    before = threads()
    thread = WriterThread(asyncio.get_running_loop(), "writer")
    thread.start()
    done: list[str] = []
    go = threading.Event()

    def goes_on(result: object) -> None:
        thread.submit(done.append, ("late",), lambda result: None)

    thread.submit(go.wait, (10,), goes_on)
    stopping = asyncio.create_task(thread.stop(done.append, "last"))
    await asyncio.sleep(0)
    go.set()
    await stopping
    await eventually(lambda: threads() == before, "the thread ends")
    assert done == ["last"]
