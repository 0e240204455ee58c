"""A few inputs of each kind, and those that failed once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import run_fuzz
from effort import effort
from fuzz_target import CORPUS, Target
from run_fuzz import TARGETS, fuzz, input_of, replay

INPUTS = effort(200)


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_wrong_input_draws_only_the_errors_that_are_meant_for_it(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_fuzz, "CORPUS", tmp_path)
    report = fuzz(kind, INPUTS)
    assert report.failures == []
    assert report.inputs == INPUTS


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_an_input_with_its_number_is_the_same_again(kind: str) -> None:
    target = TARGETS[kind]()
    inputs = [input_of(target, kind, 1, number) for number in range(20)]
    assert inputs == [input_of(target, kind, 1, number) for number in range(20)]
    assert len(set(inputs)) > 10
    target.close()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_failed_once_is_read(path: Path) -> None:
    assert replay(path.parent.name, path) is None


class Failing(Target):
    """Reads nothing that begins with an even byte."""

    def __init__(self) -> None:
        super().__init__([b"seed"])

    def make(self, rng: Random) -> bytes:
        return bytes((rng.randrange(256),))

    def run(self, data: bytes) -> None:
        assert data[0] % 2, "even"


def test_a_failing_input_is_kept_and_fails_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_fuzz, "CORPUS", tmp_path)
    monkeypatch.setitem(TARGETS, "failing", Failing)
    report = fuzz("failing", 20)
    assert 0 < len(report.failures) <= 20
    assert all(isinstance(replay("failing", Path(name)), AssertionError) for name in report.failures)
