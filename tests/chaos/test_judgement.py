"""Each fault of a reader is seen by the queries over its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import judgement
from batch_files import BatchFiles
from broker.codec import properties as props
from broker.codec.packets import Publish
from messages import payload_of, topic_of
from oracle import Row
from replay_reader import RECEIVE_MAXIMUM, Repeated, keep, repeated

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
    published = judgement.Published(bytes([1] * COUNT), [1] * COUNT)
    found = judgement.judge_reader(SEED, published, ["server"], [tmp_path / "0.parquet"], partitions)
    assert found.archive_rows == len(rows)
    assert len(found.faults) == len(faults)
    assert all(text in fault.what for text, fault in zip(faults, found.faults, strict=True))


def test_more_messages_again_than_were_on_their_way_are_a_fault() -> None:
    full = Repeated(1.0, RECEIVE_MAXIMUM, RECEIVE_MAXIMUM, RECEIVE_MAXIMUM)
    excused = Repeated(2.0, 5_000, RECEIVE_MAXIMUM + 1, 2 * RECEIVE_MAXIMUM)
    assert judgement.repeated_faults([full, excused]) == []
    (fault,) = judgement.repeated_faults([full, excused, Repeated(1.0, 1, 1, RECEIVE_MAXIMUM)])
    assert fault.examples == [f"{RECEIVE_MAXIMUM + 1} at 1.0"]


def test_the_replay_reader_counts_what_comes_again(tmp_path: Path) -> None:
    def message(offset: int) -> Publish:
        block = props.encode_publish_properties(user_properties=[("node", "n1"), ("offset", str(offset))])
        return Publish(b"a", b"x", 1, False, False, 1, block)

    batches, position, came = BatchFiles(tmp_path), {"n1": 2}, {"n1": 1}
    assert repeated([message(each) for each in (0, 1, 2, 2, 3)], came) == 2
    assert came == {"n1": 4}
    assert keep([message(each) for each in (0, 1, 2, 3)], position, batches) == 2
    assert keep([message(each) for each in (3, 4)], position, batches) == 1
    assert batches.position() == {"n1": 5}
