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


async def test_long_work_lets_others_run_and_hears_of_the_end() -> None:
    """What is the last work stays behind it, also where it is taken from the queue at the moment of the stop."""
    thread = WriterThread(asyncio.get_running_loop(), "writer")
    thread.start()
    done: list[str] = []
    steps = threading.Semaphore(0)
    stepped = threading.Semaphore(0)

    def long_work() -> str:
        while True:
            steps.acquire()
            goes_on = thread.run_waiting()
            stepped.release()
            if not goes_on:
                done.append("long")
                return "ended"

    long = asyncio.ensure_future(thread.result(long_work))
    short = [asyncio.ensure_future(thread.result(done.append, text)) for text in ("a", "b")]
    await asyncio.sleep(0)
    steps.release()
    await asyncio.to_thread(stepped.acquire)
    await asyncio.gather(*short)
    assert (done, long.done()) == (["a", "b"], False)
    stopping = asyncio.create_task(thread.stop(done.append, "last"))
    await asyncio.sleep(0)
    steps.release()
    assert await long == "ended"
    await stopping
    assert done == ["a", "b", "long", "last"]
