"""What every store promises (broker/store/store.py). Each check closes the store, opens it again, and looks."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.store.redis_store import RedisStore
from broker.store.sqlite_store import SqliteStore
from broker.store.store import Store, StoreFault
from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer

Make = Callable[[], Store]
Batch = list[tuple[int, bytes | None]]


@pytest.fixture(params=["sqlite", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes objects for one store."""
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "data")
        return
    if REDIS_SERVER is None:
        pytest.skip(REDIS_MISSING)
    server = RedisServer(tmp_path)
    server.start()
    yield lambda: RedisStore(server.settings)
    server.kill()


def opened(make: Make) -> Store:
    store = make()
    store.open()
    return store


def kept(make: Make) -> list[tuple[int, bytes]]:
    """All records, after the store was opened anew."""
    store = opened(make)
    try:
        return list(store.records())
    finally:
        store.close()


def written(make: Make, *batches: Batch) -> list[tuple[int, bytes]]:
    store = opened(make)
    assert list(store.records()) == [], "it is new"
    for batch in batches:
        store.commit(batch)
    store.close()
    return kept(make)


def test_a_new_store_is_empty(make: Make) -> None:
    assert kept(make) == []
    assert kept(make) == []


def test_records_come_back_by_rising_numbers(make: Make) -> None:
    big = bytes(range(256)) * 5000
    assert written(make, [(300, b"c"), (2, b""), (70_000_000_000, big)], [(9, b"b")]) == [
        (2, b""),
        (9, b"b"),
        (300, b"c"),
        (70_000_000_000, big),
    ]


def test_a_record_is_replaced_and_deleted(make: Make) -> None:
    batches: list[Batch] = [[(1, b"a"), (2, b"b"), (3, b"c")], [(2, b"B"), (3, None)], [(4, None), (1, None)]]
    assert written(make, *batches) == [(2, b"B")]


def test_a_batch_can_be_written_twice(make: Make) -> None:
    batch: Batch = [(1, b"a"), (2, None)]
    assert written(make, [(2, b"b")], batch, batch) == [(1, b"a")]


def test_an_empty_batch_changes_nothing(make: Make) -> None:
    assert written(make, [(1, b"a")], []) == [(1, b"a")]


def test_all_records_are_replaced(make: Make) -> None:
    store = opened(make)
    store.commit([(1, b"a"), (2, b"b")])
    store.replace([(2, b"B"), (3, b"c"), (4, None)])
    store.commit([(5, b"e")])
    store.close()
    assert kept(make) == [(2, b"B"), (3, b"c"), (5, b"e")]


@pytest.mark.parametrize("seed", range(3))
def test_a_store_and_a_dict_hold_the_same_records(make: Make, seed: int) -> None:
    rng = random.Random(seed)
    expected: dict[int, bytes] = {}
    batches: list[Batch] = []
    for _ in range(10):
        batch: dict[int, bytes | None] = {}
        for _ in range(rng.choice([1, 7, 100, 3000])):
            number = rng.randrange(1, 4000)
            value = None if rng.random() < 0.3 else rng.randbytes(rng.randrange(40))
            batch[number] = value
            if value is None:
                expected.pop(number, None)
            else:
                expected[number] = value
        batches.append(list(batch.items()))
    assert written(make, *batches) == sorted(expected.items())


def test_a_commit_outlives_a_kill(make: Make) -> None:
    child = os.fork()
    if child == 0:
        try:
            store = opened(make)
            store.commit([(1, b"a")])
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert kept(make) == [(1, b"a")]


def test_a_store_that_is_compacted_keeps_its_records(make: Make) -> None:
    store = opened(make)
    store.commit([(number, bytes(1000)) for number in range(1, 500)])
    store.commit([(number, None) for number in range(2, 500)])
    store.compact()
    store.close()
    assert kept(make) == [(1, bytes(1000))]


def test_a_store_that_is_in_use_is_refused(make: Make) -> None:
    first = opened(make)
    first.commit([(1, b"a")])
    second = make()
    with pytest.raises(StoreFault, match="uses it"):
        second.open()
    second.close()
    first.commit([(2, b"b")])
    first.close()
    assert kept(make) == [(1, b"a"), (2, b"b")]
