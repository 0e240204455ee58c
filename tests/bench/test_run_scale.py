"""From counted rows and memory to the verdict and the table of `scripts/bench scale`."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from memory import peaks
from pipeline_nodes import Extent
from pipeline_rows import WrongRows
from run_scale import PAYLOAD_BYTES, Counted, Figures, check, is_met, report

pytestmark = pytest.mark.uncompiled

EXTENTS = {"n1": Extent("L", 0, 100), "n2": Extent("M", 5, 10)}
COUNTED = {"n1": Counted(100, 800, 0, 99, 100), "n2": Counted(5, 40, 5, 9, 5)}


def figures(gb: float, messages: int, memory: float) -> Figures:
    return Figures(gb, messages, messages, messages * PAYLOAD_BYTES, 1.0, 2.0, {"node": memory, "worker": 500.0})


def test_each_record_once_is_right() -> None:
    check(COUNTED, EXTENTS, 8)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n1": COUNTED["n1"]},  # a node is missing
        {**COUNTED, "n2": Counted(4, 32, 5, 8, 4)},  # lost at the end
        {**COUNTED, "n2": Counted(6, 48, 5, 9, 5)},  # one is there twice
        {**COUNTED, "n2": Counted(5, 40, 5, 9, 4)},  # one is lost, one is there twice
        {**COUNTED, "n2": Counted(5, 39, 5, 9, 5)},  # a payload is short
    ],
)
def test_lost_and_doubled_rows_are_errors(wrong: dict[str, Counted]) -> None:
    with pytest.raises(WrongRows):
        check(wrong, EXTENTS, 8)


@pytest.mark.parametrize(
    ("second", "met"),
    [
        (figures(20, 1000, 50.0), True),
        (figures(20, 1000, 62.0), True),
        (figures(20, 1000, 63.0), False),  # memory grew
        (replace(figures(20, 1000, 50.0), rows=999), False),
        (replace(figures(20, 1000, 50.0), bytes=1), False),
    ],
)
def test_verdict(second: Figures, met: bool) -> None:
    first = figures(2, 100, 50.0)
    assert is_met(first, second) is met
    text = report(first, second, {"machine": "two cores"})
    assert ("MISSED" in text) is not met
    assert "| worker: MB | 500 | 500 | 1.00 | ≤ 1.25 | met |" in text
    assert "- machine: two cores\n" in text


def test_peak_is_the_highest_value_meanwhile() -> None:
    values = iter([3, 7, 5])
    is_over = threading.Event()

    def measure() -> int:
        value = next(values, None)
        if value is None:
            is_over.set()
        return value or 0

    with peaks({"figure": measure}, 0.001) as found:
        assert is_over.wait(30)
    assert found == {"figure": 7}
