"""The moment of copies: nobody commits from before the first one until the last one is there."""

from __future__ import annotations

import threading

import pytest

from broker.server import copy_moment
from broker.server.copy_moment import CopyMoment, CopyPart
from broker.server.shared_counts import SharedCounts
from broker.store.store import StoreFault


def wait(part: CopyPart) -> None:
    while not part.is_reached():
        part.pause()


def test_no_worker_commits_after_another_one_has_its_copy() -> None:
    moment = SharedCounts(3).copies
    moment.begin()
    commits = [0, 0, 0]
    at_the_moment: list[list[int]] = []

    def run(index: int) -> None:
        def pause() -> bool:
            commits[index] += 1
            return True

        wait(moment.join(index, pause))
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


@pytest.mark.parametrize("steps", [0, 1])
def test_a_copy_ends_with_that_of_another_worker(steps: int) -> None:
    """Also one that is not near its end: it takes no part in the next copy, and commits no more."""
    moment = SharedCounts(2).copies
    moment.begin()
    commits: list[int] = []

    def pause() -> bool:
        commits.append(1)
        return True

    part = moment.join(0, pause)
    for _ in range(steps):
        assert part.pause()
        assert not part.is_reached()
    moment.begin()  # worker 0 ends it
    for call in (part.pause, part.is_reached):
        with pytest.raises(StoreFault, match="another worker has failed"):
            call()
    assert len(commits) == steps
    assert not moment.join(1, lambda: True).is_reached()


@pytest.mark.parametrize(
    ("reached", "seconds"), [(0, copy_moment.NEAR_SECONDS_MAX), (copy_moment.STEPS, copy_moment.HELD_SECONDS_MAX)]
)
def test_a_worker_that_does_not_come_is_waited_for_no_longer_than_said(reached: int, seconds: float) -> None:
    """It copies for too long, or has been near and stands still."""
    numbers = memoryview(bytearray(3 * 8)).cast("Q")
    moment = CopyMoment(numbers)
    moment.begin()
    numbers[2] = reached
    times = iter([0.0] * (1 + reached) + [seconds / 2, seconds])
    part = moment.join(0, lambda: True, lambda: next(times))
    with pytest.raises(StoreFault, match=f"did not come.*{seconds:g} s"):
        wait(part)
    assert next(times, None) is None
