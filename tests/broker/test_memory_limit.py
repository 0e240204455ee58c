"""What a node takes at which memory."""

from __future__ import annotations

import pytest

from broker.memory_limit import MEMORY_FREE, MEMORY_FULL, MEMORY_SHORT, MemoryLimit


@pytest.mark.parametrize(
    ("measured", "levels"),
    [
        ([99, 100, 111, 112, 150], [0, 1, 1, 2, 2]),  # an eighth above is full
        ([200, 110, 107, 106, 105], [2, 2, 2, 2, 1]),  # each level ends a sixteenth below its begin
        ([100, 99, 95, 94, 93, 99, 100], [1, 1, 1, 1, 0, 0, 1]),
        ([200, 50], [2, 0]),  # the queues were emptied at once
    ],
)
def test_levels_have_a_hysteresis(measured: list[int], levels: list[int]) -> None:
    limit = MemoryLimit(100)
    assert [limit.judge(resident, True) for resident in measured] == levels


def test_a_level_rises_when_free_memory_was_given_back() -> None:
    limit = MemoryLimit(100)
    assert (limit.is_pressed(99), limit.is_pressed(100)) == (False, True)
    assert limit.judge(124, False) == MEMORY_FREE
    assert limit.judge(40, True) == MEMORY_FREE
    assert limit.judge(125, False) == MEMORY_FULL, "memory grows faster than it can be asked for"
    assert limit.is_pressed(50), "the allocator is asked until the level has ended"
    assert limit.judge(100, False) == MEMORY_SHORT
    assert limit.judge(50, False) == MEMORY_FREE


def test_without_a_limit_everything_is_taken() -> None:
    limit = MemoryLimit(100)
    limit.judge(200, True)
    limit.bytes_max = 0
    assert not limit.is_pressed(10**12)
    assert limit.judge(10**12, True) == MEMORY_FREE
