"""The status: checkpoints as Spark writes them, and how far behind their nodes they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from event_log_node import SECOND, TIME, EventLogNode, event_log_nodes
from pipeline.errors import PipelineError
from pipeline.status import read_checkpoint, status, status_lines
from spark_tables import write_batch, write_rows


def write_checkpoint(folder: Path, query: str, batch: int, offsets: object, watermark_ms: int = 0) -> None:
    place = folder / "checkpoints" / query
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True, exist_ok=True)
    metadata = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}})
    (place / "offsets" / str(batch)).write_text(f"v1\n{metadata}\n{json.dumps(offsets)}", encoding="utf-8")
    (place / "offsets" / str(batch + 1)).write_text("planned", encoding="utf-8")
    (place / "commits" / str(batch)).write_text("v1\n{}", encoding="utf-8")
    (place / "commits" / f".{batch}.crc").write_text("", encoding="utf-8")


def position(node: EventLogNode, offset: int) -> dict[str, object]:
    return {"log": node.log_id, "offset": offset}


def test_lag_of_each_node(tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2", "n3", "n4") as (a, b, c, d):
        a.append_numbers(20)
        a.append_numbers(10, time_ns=TIME + 31 * SECOND)
        b.append_numbers(10)
        c.append_numbers(10)
        d.append_numbers(30)
        offsets = {
            "n1": position(a, 20),
            "n2": position(b, 10),
            "n3": {"log": "other", "offset": 5},
            "gone": position(a, 1),
        }
        write_checkpoint(tmp_path, "archive", 9, offsets)
        write_checkpoint(tmp_path, "archive", 10, offsets, watermark_ms=TIME // 1_000_000)
        d.stop()
        found = status(tmp_path, {"servers": a.address})
    (query,) = found["queries"]
    assert (query["query"], query["batch"], query["watermark"]) == ("archive", 10, "2023-11-14T22:13:20+00:00")
    lags = {each["node"]: (each["offset"], each["messages"], each["seconds"]) for each in query["nodes"]}
    states = {each["node"]: each["state"] for each in query["nodes"]}
    # The node's clock is 61 seconds after TIME.
    assert lags == {"n1": (20, 10, 30.0), "n2": (10, 0, 0.0), "n3": (5, None, None), "gone": (1, None, None)}
    assert states == {"n1": "ok", "n2": "ok", "n3": "its log id changed", "gone": "no member"}
    lines = status_lines(found)
    assert lines[0].split() == ["query", "batch", "watermark", "node", "offset", "lag", "behind", "state", "aside"]
    assert len(lines) == 5


def test_messages_that_were_kept_aside_are_counted(tmp_path: Path) -> None:
    table = tmp_path / "rollup-2-1m"
    write_batch(table, "0", write_rows(table, "arrival=late/a.parquet", {"messages": [3, 4]}))
    with event_log_nodes("n1", "n2") as (a, b):
        write_checkpoint(tmp_path, table.name, 0, {"n1": position(a, 0), "n2": position(b, 0)})
        found = status(tmp_path, {"servers": a.address})
    assert found["queries"][0]["aside"] == {"late": 7}
    heading, *lines = status_lines(found)
    # In the line of the first node only: it is the query's.
    assert [line[heading.index("aside") :].strip() for line in lines] == ["7 late", ""]


def test_nodes_that_no_batch_read(tmp_path: Path) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(30)
        a.forget_before(20)
        b.append_numbers(10)
        (tmp_path / "checkpoints" / "planned" / "commits").mkdir(parents=True)
        write_checkpoint(tmp_path, "archive", 0, {"n1": position(a, 10)})
        found = status(tmp_path, {"servers": a.address})
    archive, planned = found["queries"]
    assert [(each["node"], each["messages"], each["state"]) for each in archive["nodes"]] == [
        ("n1", 20, "10 messages are gone"),
        ("n2", 10, "not read yet"),
    ]
    assert (planned["batch"], [each["state"] for each in planned["nodes"]]) == (-1, ["not read yet", "not read yet"])


def test_a_folder_without_checkpoints_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="has no checkpoints: no pipeline ran there"):
        status(tmp_path, {"servers": "127.0.0.1:1"})


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n{}", 'v1\n{"batchWatermarkMs": 0}\n{', "v1\n7"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, text: str) -> None:
    write_checkpoint(tmp_path, "archive", 0, {})
    (tmp_path / "checkpoints" / "archive" / "offsets" / "0").write_text(text)
    with pytest.raises(PipelineError, match=r"offsets/0 is no offset file of Spark"):
        read_checkpoint(tmp_path / "checkpoints" / "archive")
