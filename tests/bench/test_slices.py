"""Slices are kept, so that a run goes on where it was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from cluster import BenchFailed
from rows import OTHER, THIS
from slices import Slice, Slices

pytestmark = pytest.mark.uncompiled


def slice_of(participant: str, number: int, value: float = 1.0) -> Slice:
    return Slice("row", participant, number, {"cpu": value}, 0)


def test_a_run_goes_on_after_its_last_whole_round(tmp_path: Path) -> None:
    path = tmp_path / "run" / "slices.jsonl"
    first = Slices(path, {THIS: "abc"}, continues=False)
    for found in (slice_of(THIS, 1), slice_of(OTHER, 1), slice_of(THIS, 2)):  # interrupted here
        first.add(found)
    first.close()
    second = Slices(path, {THIS: "abc"}, continues=True)
    assert second.rounds_done("row", [THIS, OTHER]) == 1
    assert second.rounds_done("row", [THIS]) == 2
    assert second.rounds_done("another row", [THIS]) == 0
    second.add(slice_of(THIS, 2, 5.0))  # measured again, with its pair
    second.close()
    third = Slices(path, {THIS: "abc"}, continues=True)
    assert third.of("row", THIS)[2].values == {"cpu": 5.0}
    third.close()


def test_a_new_run_begins_from_nothing(tmp_path: Path) -> None:
    path = tmp_path / "slices.jsonl"
    for _ in range(2):
        slices = Slices(path, {THIS: "abc"}, continues=False)
        assert slices.all == []
        slices.add(slice_of(THIS, 1))
        slices.close()


def test_rounds_of_another_commit_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "slices.jsonl"
    Slices(path, {THIS: "abc"}, continues=False).close()
    with pytest.raises(BenchFailed, match=r"abc.*def"):
        Slices(path, {THIS: "def"}, continues=True)
