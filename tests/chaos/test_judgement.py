"""Each fault of a reader is seen by the queries over its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import judgement
from messages import payload_of, topic_of
from oracle import Row

SEED = 3
COUNT = 10
NO_PROPERTIES = (None,) * 5
Rows = list[dict[str, object]]


def logged(number: int) -> Row:
    place = ("n1", "log", number, number, topic_of(number), payload_of(SEED, number))
    return Row(*place, 1, False, *NO_PROPERTIES, (), None, None)


def double(rows: Rows) -> None:
    rows.append(rows[4])


def lose(rows: Rows) -> None:
    del rows[4]


def invent(rows: Rows) -> None:
    rows.append({**rows[4], "offset": COUNT})


def change(rows: Rows) -> None:
    rows[4] = {**rows[4], "topic": "other"}


@pytest.mark.parametrize(
    ("spoil", "faults"),
    [
        (None, []),
        (double, ["more than once"]),
        (lose, ["not read", "acknowledged messages that were not read"]),
        (invent, ["in no log"]),
        (change, ["not as in the log"]),
    ],
)
@pytest.mark.parametrize("is_kafka", [False, True])
def test_faults_of_a_reader(
    spoil: Callable[[Rows], None] | None,
    faults: list[str],
    is_kafka: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(judgement, "read_log", lambda server: [logged(number) for number in range(COUNT)])
    node: dict[str, object] = {"partition": 1} if is_kafka else {"node": "n1"}
    rows: Rows = [
        {**node, "offset": number, "topic": topic_of(number), "payload": payload_of(SEED, number)}
        for number in range(COUNT)
    ]
    if spoil is not None:
        spoil(rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "0.parquet")
    partitions = ["n0", "n1"] if is_kafka else []
    found = judgement.judge_reader(SEED, bytes([1] * COUNT), ["server"], [tmp_path / "0.parquet"], partitions)
    assert found.archive_rows == len(rows)
    assert len(found.faults) == len(faults)
    assert all(text in fault.what for text, fault in zip(faults, found.faults, strict=True))
