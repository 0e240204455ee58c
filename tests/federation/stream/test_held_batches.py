"""Held batches: their order and their bound."""

import pytest

from federation.stream.held_batches import HELD_BYTES_MAX, HeldBatch, HeldBatches, StreamError


def batch(first_id: int, size: int = 1) -> HeldBatch:
    return HeldBatch(first_id, 1, 0, bytes(size), 0, 0, 0)


def test_the_rest_of_a_batch_comes_first_again() -> None:
    batches = HeldBatches()
    for first_id in (1, 2, 3):
        batches.append(batch(first_id))
    batches.put_back(batches.take())
    assert [batches.take().first_id for _ in range(3)] == [1, 2, 3]
    assert batches.is_empty()


def test_bytes_are_bounded() -> None:
    """One batch is taken whatever its size; the sender's window allows no second one then."""
    batches = HeldBatches()
    batches.append(batch(1, HELD_BYTES_MAX + 1))
    with pytest.raises(StreamError) as caught:
        batches.append(batch(2))
    assert not caught.value.malformed
    batches.take()
    batches.append(batch(2, HELD_BYTES_MAX))
    batches.clear()
    batches.append(batch(3, HELD_BYTES_MAX))
    assert batches.take().first_id == 3
