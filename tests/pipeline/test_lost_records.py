"""Records that are lost: readers get once what there is, and strict ones are told the range."""

from __future__ import annotations

import json
import logging
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql.streaming.datasource import ReadAllAvailable

from driven_readers import Query, batch, numbers, rows_of
from event_log_node import SECOND, TIME, EventLogNode, event_log_nodes
from gmqttctl.cli import main
from gmqttctl.connection import Connection
from pipeline.cluster import Cluster
from pipeline.errors import DataLoss
from pipeline.log_export import Export
from pipeline.log_tail import Tail
from pipeline.log_text import describe_logs, description_lines
from pipeline.offsets import LogOffset
from pipeline.options import read_batch_options
from pipeline.source import MqttReader
from pipeline.status import Checkpoint, lags

pytestmark = pytest.mark.usefixtures("asks_at_once")

FAIL = pytest.mark.parametrize("fail", ["true", "false"])


def test_a_gap_is_skipped_or_named(caplog: pytest.LogCaptureFixture) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        queries = [
            Query(a, failOnDataLoss=fail, minPartitions="4", maxOffsetsPerTrigger="10") for fail in ("true", "false")
        ]
        for query in queries:
            assert query.batch() == {"n1": numbers(10)}
        done = Query(a)
        done.batch()
        a.lose(10, 20)
        a.append_numbers(5)
        with pytest.raises(DataLoss, match="node n1 lost the records of offsets 10 to"):
            queries[0].batch(ReadAllAvailable())
        with caplog.at_level(logging.WARNING):
            assert queries[1].batch(ReadAllAvailable()) == {"n1": numbers(20, 35)}
        assert any("lost the records of offsets" in record.message for record in caplog.records)
        assert done.batch() == {"n1": numbers(30, 35)}, "it has read what is lost"
        assert batch(a, failOnDataLoss="false") == {"n1": [*numbers(10), *numbers(20, 35)]}
        with pytest.raises(DataLoss, match="offsets 10 to 19"):
            batch(a)


def test_a_gap_does_not_hold_up_the_skew(caplog: pytest.LogCaptureFixture) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        query = Query(a, maxNodeSkew="2s", failOnDataLoss="false")
        a.append_numbers(10)
        a.append_numbers(10, time_ns=TIME + SECOND)
        b.append_numbers(10)
        a.lose(0, 10)
        assert query.batch() == {"n1": numbers(10, 20), "n2": numbers(10)}


@FAIL
def test_a_reader_before_the_first_record_that_may_differ_goes_on(fail: str) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        query = Query(a, failOnDataLoss=fail, groupId="g", maxOffsetsPerTrigger="20")
        assert query.batch() == {"n1": numbers(20)}
        a.lose_end(20)
        a.append_numbers(15)
        query.restart()
        assert query.batch() == {"n1": numbers(20, 35)}
        assert a.held == {("g", "g"): 35}


def test_a_reader_behind_it_gets_what_changed() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        strict, lenient = (Query(a, failOnDataLoss=fail) for fail in ("true", "false"))
        for query in (strict, lenient):
            query.batch()
        a.lose_end(20)
        a.append_numbers(15)
        with pytest.raises(DataLoss, match=r"node n1: the records of offsets 20 to 29 that the query read are lost"):
            strict.batch()
        assert lenient.batch() == {"n1": numbers(20, 35)}
        assert lenient.batch() == {}


def test_a_batch_that_was_planned_before() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        query = Query(a, failOnDataLoss="false", maxOffsetsPerTrigger="10")
        assert query.batch() == {"n1": numbers(10)}
        end = query.reader.latestOffset(query.at, ReadAllAvailable())
        a.lose_end(20)
        a.append_numbers(15)
        query.restart()
        assert rows_of(query.reader, query.reader.partitions(query.at, end)) == {"n1": numbers(10, 20)}
        query.at = end
        assert query.batch(ReadAllAvailable()) == {"n1": numbers(20, 35)}


@pytest.mark.parametrize(("end", "found"), [(30, numbers(30)), (20, numbers(20))])
def test_a_task_that_began_before(end: int, found: list[int]) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        reader = MqttReader(read_batch_options({"servers": a.address, "failOnDataLoss": "false"}))
        planned = reader.partitions()
        a.lose_end(end)
        a.append_numbers(15)
        assert rows_of(reader, planned) == {"n1": found}


def test_available_now_ends_where_the_log_ended_before_it_lost_its_end() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        query = Query(a, failOnDataLoss="false", maxOffsetsPerTrigger="10")
        query.reader.prepareForTriggerAvailableNow()
        assert query.batch() == {"n1": numbers(10)}
        a.lose_end(20)
        a.append_numbers(15)
        assert [query.batch(), query.batch()] == [{"n1": numbers(10, 20)}, {}]


def test_tail_goes_on_and_says_what_is_lost() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        tail = Tail({"servers": a.address}, [], [], 100)
        try:
            assert [record.offset for _, _, record in tail.look()] == numbers(30)
            a.append_numbers(20)
            a.lose(30, 40)
            assert [record.offset for _, _, record in tail.look()] == numbers(40, 50)
            assert ["n1 lost the records 30 to 39" in each for each in tail.take_notices()] == [True]
            a.lose_end(45)
            a.lose(40, 45)
            a.append_numbers(7)
            assert [record.offset for _, _, record in tail.look()] == numbers(45, 52)
            assert ["the records 45 to 49" in each for each in tail.take_notices()] == [True]
            a.lose_end(52)
            assert tail.look() == []
            assert tail.take_notices() == []
        finally:
            tail.close()


def exported(node: EventLogNode, file: Path) -> list[int]:
    result = CliRunner().invoke(main, ["log", "export", "--servers", node.address, str(file)])
    assert result.exit_code == 0, result.output
    return [json.loads(line)["offset"] for line in file.read_text().splitlines()]


def test_an_export_goes_without_what_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        a.lose(10, 20)
        with caplog.at_level(logging.WARNING):
            assert exported(a, tmp_path / "all.jsonl") == [*numbers(10), *numbers(20, 30)]
        assert any("offsets 10 to 19" in record.message for record in caplog.records)


def test_an_export_goes_on_under_another_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        with monkeypatch.context() as patch:
            patch.setattr(Export, "_write_part", stopped)
            file = str(tmp_path / "all.jsonl")
            assert CliRunner().invoke(main, ["log", "export", "--servers", a.address, file]).exit_code != 0
        a.lose_end(30)
        a.append_numbers(5)
        assert exported(a, tmp_path / "all.jsonl") == numbers(30)


def test_describe_and_status_show_what_is_lost() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(30)
        log_id = a.log_id
        a.lose_end(30)
        a.lose(10, 20)
        found = describe_logs({"servers": a.address})
        assert found["nodes"][0]["gaps"] == [{"first_offset": 10, "end_offset": 20}]
        assert found["nodes"][0]["parents"] == [{"log": log_id, "end_offset": 30}]
        assert any("offsets 10 to 19" in line for line in description_lines(found))
        with closing(Cluster(Connection((a.address,)))) as cluster:
            members = cluster.ask()
            at = {offset: Checkpoint("q", 1, {"n1": LogOffset(log_id, offset)}, 0, None) for offset in (12, 30, 35)}
            shown = {offset: lags(checkpoint, members, cluster)[0] for offset, checkpoint in at.items()}
        assert [(lag.messages, lag.seconds is None) for lag in shown.values()] == [(18, False), (0, False), (0, False)]
        assert [lag.state == "ok" for lag in shown.values()] == [True, True, False]
