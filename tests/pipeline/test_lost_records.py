"""Records that are lost: readers get once what there is, and strict ones are told the range."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from driven_readers import Query, batch, numbers, rows_of
from event_log_node import SECOND, TIME, event_log_nodes
from pipeline.errors import DataLoss
from pipeline.options import read_batch_options
from pipeline.source import MqttReader

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
