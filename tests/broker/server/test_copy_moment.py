"""The moment of copies: nobody commits from before the first one until the last one is there."""

from __future__ import annotations

import threading

import pytest

from broker.server import copy_moment
from broker.server.copy_moment import CopyMoment
from broker.server.shared_counts import SharedCounts
from broker.store.store import StoreFault


def test_no_worker_commits_after_another_one_has_its_copy() -> None:
    moment = SharedCounts(3).copies
    moment.begin()
    commits = [0, 0, 0]
    at_the_moment: list[list[int]] = []

    def run(index: int) -> None:
        def pause() -> bool:
            commits[index] += 1
            return True

        moment.wait(index, pause)
        at_the_moment.append(list(commits))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(3)]
    for thread in threads[:2]:
        thread.start()
    while min(commits[:2]) < 3:  # they go on while the third one is not near
        threads[0].join(0.001)
    assert not at_the_moment
    threads[2].start()
    for thread in threads:
        thread.join()
    assert at_the_moment == [commits] * 3


def test_a_copy_ends_with_that_of_another_worker() -> None:
    moment = SharedCounts(2).copies
    moment.begin()

    def pause() -> bool:
        moment.begin()  # worker 0 ends it
        return True

    with pytest.raises(StoreFault, match="another worker has failed"):
        moment.wait(0, pause)
    with pytest.raises(StoreFault, match="stops"):
        moment.wait(0, lambda: False)


def test_a_worker_that_does_not_come_is_waited_for_no_longer_than_said() -> None:
    """It has been near, and stands still."""
    numbers = memoryview(bytearray(3 * 8)).cast("Q")
    moment = CopyMoment(numbers)
    moment.begin()
    numbers[2] = copy_moment.STEPS  # the other one is near
    times = iter([0.0, 1.0, copy_moment.HELD_SECONDS_MAX])
    with pytest.raises(StoreFault, match="did not come"):
        moment.wait(0, lambda: True, lambda: next(times))
