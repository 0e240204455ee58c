"""The matrix: sums of the log joined with snapshots, tables, and the picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from message_files import TEN, MessageFiles, row
from pipeline.jobs.matrix import CLIENT, FACTS, Tables, lines, matrix, shown, tables, write
from pipeline.subscriptions import Subscription, Subscriptions

SUBSCRIPTIONS = Subscriptions(
    {
        "a": {TEN: [Subscription("a", "watcher", "house/#")]},
        "b": {
            TEN: [Subscription("b", "screen", "house/+/t"), Subscription("b", "$5 log $6", "house/#")],
            TEN + 10_000_000_000: [Subscription("b", "screen", "house/+/t")],
        },
        "c": {TEN: []},
    }
)


@pytest.fixture
def found(spark: SparkSession, tmp_path: Path) -> Tables:
    messages = MessageFiles(tmp_path / "messages")
    messages.add(
        *(row(each, 1, payload=b"x" * 10) for each in range(5)),
        *(row(each, 20, payload=b"x" * 10) for each in range(5, 8)),
        row(8, 20, topic="house/hall/door", payload=b"x" * 100),
        row(0, 2, node="c", client_id="far", payload=b"x" * 1000),
        row(1, 2, node="c", client_id=None, topic="elsewhere", payload=b"x"),
    )
    return tables(matrix(messages.table(spark), SUBSCRIPTIONS, levels=1), SUBSCRIPTIONS.nodes, rows=100)


def test_links_filters_and_clients(found: Tables) -> None:
    links = {(each.source, each.target, each.prefix): (each.messages, each.bytes) for each in found.links.itertuples()}
    assert links == {
        ("a", "a", "house"): (9, 180),
        ("a", "b", "house"): (8, 80),
        ("c", "a", "house"): (1, 1000),
        ("c", "b", "house"): (1, 1000),
    }
    filters = {(each.filter, each.target): each.bytes for each in found.filters.itertuples()}
    assert filters == {("house/+/t", "b"): 1080, ("house/#", "b"): 1050, ("house/#", "a"): 1000}
    clients = {each.client: (each.node, each.better_node, each.bytes) for each in found.clients.itertuples()}
    # `far` sends to a and b, and would send to one of them only. `watcher` draws 1000 bytes from c and would draw 100 from a.
    assert clients == {"far": ("c", "b", 1000), "watcher": ("a", "b", 900), "screen": ("b", "a", 30)}


@pytest.mark.parametrize(
    ("value", "text"),
    [(8775.0, "8,775"), (0.5, "0.5"), (1_068_351.04, "1,068,351"), (123_456_789_012.0, "123,456,789,012")],
)
def test_numbers_are_shown_whole(value: float, text: str) -> None:
    assert shown(value) == text


def test_no_move_is_shown_that_costs_messages(spark: SparkSession) -> None:
    rows = [
        (CLIENT, "a", "b", "mover", -3.0, 500.0),
        (CLIENT, "a", "c", "mover", 1.0, 20.0),
        (CLIENT, "a", "b", "stays", -1.0, 10.0),
        (CLIENT, "a", "b", "costs", 5.0, -10.0),
    ]
    found = tables(spark.createDataFrame(rows, FACTS), ["a", "b", "c"], rows=100)
    assert [tuple(each) for each in found.clients.itertuples(index=False)] == [("mover", "a", "c", 1.0, 20.0)]


def test_tables_and_pictures_are_written(found: Tables, tmp_path: Path) -> None:
    paths = write(tmp_path / "matrix", found)
    assert [path.name for path in paths] == ["links.csv", "filters.csv", "clients.csv", "matrix.png", "matrix.svg"]
    assert paths[3].read_bytes().startswith(b"\x89PNG")
    svg = paths[4].read_text()
    assert "house/+/t at b" in svg
    assert "1 kB" in svg
    assert "80 B" in svg
    assert "filters that carry most" in lines(found)[1]
    assert sorted(path.name for path in (tmp_path / "matrix").iterdir()) == sorted(path.name for path in paths)


def test_a_federation_without_messages_has_a_picture(spark: SparkSession, tmp_path: Path) -> None:
    messages = MessageFiles(tmp_path / "messages")
    messages.add(row(0, 0, topic="elsewhere"))
    found = tables(matrix(messages.table(spark), SUBSCRIPTIONS, levels=1), SUBSCRIPTIONS.nodes, rows=100)
    write(tmp_path / "matrix", found)
    assert "no filter carries anything between nodes" in (tmp_path / "matrix" / "matrix.svg").read_text()
    assert lines(found)[1].endswith("none")
