"""Data source `mqtt`: readers driven as plain objects, as Spark drives them, against nodes in this process."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import grpc
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StringType, StructField, StructType

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import NO_EXPIRY, encode_extra
from broker.event_log.staged_rows import MARKER
from driven_readers import Query, batch, numbers, rows_of
from event_log_node import SECOND, TIME, become_members, event_log_nodes
from gmqttctl.errors import CommandError
from pipeline.errors import DataLoss, OptionError, PipelineError
from pipeline.options import read_batch_options
from pipeline.schema import ARROW_SCHEMA
from pipeline.source import MqttDataSource, MqttReader, check_schema

pytestmark = pytest.mark.usefixtures("asks_at_once")


# --- batch ---


def test_a_batch_reads_all_nodes() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(25)
        b.append_numbers(12)
        assert batch(a) == {"n1": numbers(25), "n2": numbers(12)}
        assert batch(a, minPartitions="7") == {"n1": numbers(25), "n2": numbers(12)}


def test_a_schema_that_does_not_match_is_named() -> None:
    columns = from_arrow_schema(ARROW_SCHEMA)
    check_schema(columns, columns)
    fields = [field if field.name != "offset" else StructField("offset", StringType()) for field in columns.fields]
    for schema, text in (
        (StructType(fields), "log string, offset string, time"),
        (StructType(fields[:1]), "node string;"),
    ):
        with pytest.raises(PipelineError, match=text) as raised:
            check_schema(schema, columns)
        assert "source mqtt has node string, log string, offset bigint" in str(raised.value)


def test_a_stream_with_a_wrong_option_or_schema_is_refused_when_spark_asks_for_offsets() -> None:
    columns = from_arrow_schema(ARROW_SCHEMA)
    given = {"servers": "127.0.0.1:1"}
    for options, schema, text in (
        (given | {"endingOffsets": "latest"}, columns, "endingOffsets: .*spark.read only"),
        (given, StructType(columns.fields[:1]), "schema has columns node string;"),
    ):
        reader = MqttDataSource(options).streamReader(schema)
        for ask in (
            reader.initialOffset,
            partial(reader.latestOffset, {}, ReadAllAvailable()),
            partial(reader.partitions, {}, {}),
        ):
            with pytest.raises(CommandError, match=text):
                ask()


def test_offsets_and_timestamps_bound_a_batch() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        for node in (a, b):
            for second in range(3):
                node.append_numbers(10, time_ns=TIME + second * SECOND)
        found = batch(a, startingOffsets='{"n1": 5, "n2": -2}', endingOffsets='{"n1": -1, "n2": 7}')
        assert found == {"n1": numbers(5, 30), "n2": numbers(7)}
        milliseconds = TIME // 1_000_000
        found = batch(a, startingTimestamp=str(milliseconds + 500), endingTimestamp=str(milliseconds + 2000))
        assert found == {"n1": numbers(10, 20), "n2": numbers(10, 20)}
        with pytest.raises(PipelineError, match="node n1: the starting offset 9 is behind the ending offset 5"):
            batch(a, startingOffsets='{"n1": 9, "n2": 0}', endingOffsets='{"n1": 5, "n2": 0}')
        with pytest.raises(OptionError, match='option startingOffsets: "31" of node n1'):
            batch(a, startingOffsets='{"n1": 31, "n2": 0}')


def test_a_log_that_grows_while_a_batch_is_planned_gives_no_rows_behind_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(10)
        find = a.FindOffset

        def grows(request: Any, context: Any) -> Any:
            a.append_numbers(5)
            return find(request, context)

        monkeypatch.setattr(a, "FindOffset", grows)
        a.stop()
        a.start()
        assert batch(a, startingTimestamp=str(TIME // 1_000_000 + 60_000)) == {}


def test_topics_are_filtered_by_node_and_reader() -> None:
    with event_log_nodes("n1") as (a,):
        a.append(("a/b", b"0"), ("c", b"1"))
        a.append(("c", b"2"))
        a.append(("a", b"3"), ("c", b"4"), ("a/x", b"5"))
        assert batch(a, topics="a/#") == {"n1": [0, 3, 5]}


def test_messages_of_a_pipeline_are_left_out_unless_asked_for() -> None:
    with event_log_nodes("n1") as (a,):
        marker = encode_extra(NO_EXPIRY, encode_publish_properties(user_properties=[(MARKER, "q/0/0")]))
        a.append(("t", b"0"), ("t", b"1"), extra=marker, client_id="")
        a.append(("t", b"2"))
        a.append(("t", b"3"), extra=marker, client_id="a client that sends the marker")
        assert batch(a) == {"n1": [2, 3]}
        assert batch(a, includePipeline="true") == {"n1": [0, 1, 2, 3]}


def test_records_that_vanish_between_planning_and_reading() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(50)
        readers = [
            MqttReader(read_batch_options({"servers": a.address, "failOnDataLoss": fail})) for fail in ("true", "false")
        ]
        planned = [reader.partitions() for reader in readers]
        a.forget_before(30)
        with pytest.raises(DataLoss, match=r"offsets 0 to 50 of node n1: this log has 30 to 50"):
            rows_of(readers[0], planned[0])
        assert rows_of(readers[1], planned[1]) == {"n1": numbers(30, 50)}
        a.lose_log()
        assert rows_of(readers[1], planned[1]) == {}


# --- stream ---


def test_a_stream_reads_each_record_once() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(20)
        query = Query(a)
        assert query.batch() == {"n1": numbers(20)}
        assert query.batch() == {}
        a.append_numbers(5)
        b.append_numbers(7)
        query.restart()
        assert query.batch() == {"n1": numbers(20, 25), "n2": numbers(7)}


def test_limits_of_a_trigger() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(200)
        b.append_numbers(100)
        query = Query(a, maxOffsetsPerTrigger="30")
        assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
        assert query.batch() == {"n1": numbers(20), "n2": numbers(10)}
        assert query.batch() == {"n1": numbers(20, 40), "n2": numbers(10, 20)}
        assert query.batch(ReadAllAvailable()) == {"n1": numbers(40, 200), "n2": numbers(20, 100)}
        mean = a.log_bytes / 200
        query = Query(a, maxBytesPerTrigger=str(int(30 * mean)))
        assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
        found = query.batch()
        assert abs(len(found["n1"]) + len(found["n2"]) - 30) <= 2
        both = Query(a, maxBytesPerTrigger=str(int(30 * mean)), maxOffsetsPerTrigger="3000")
        assert abs(sum(map(len, both.batch().values())) - 30) <= 2


class Clock:
    """Stands for the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_trigger_waits_for_records_or_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("pipeline.source.time", clock)
    with event_log_nodes("n1") as (a,):
        a.append_numbers(10)
        query = Query(a, minOffsetsPerTrigger="20", maxTriggerDelay="1m")
        assert query.reader.getDefaultReadLimit() == ReadMinRows(20)
        assert query.batch() == {"n1": numbers(10)}, "the first one does not wait"
        a.append_numbers(19)
        clock.now = 59
        assert query.batch() == {}
        a.append_numbers(1)
        assert query.batch() == {"n1": numbers(10, 30)}
        a.append_numbers(5)
        clock.now = 118
        assert query.batch() == {}
        clock.now = 120
        assert query.batch() == {"n1": numbers(30, 35)}
        a.append_numbers(5)
        assert query.batch() == {}
        with event_log_nodes("n2") as (b,):
            b.append_numbers(5)
            become_members(a, b)
            assert query.batch() == {"n1": numbers(35, 40)}, "a node that is new enters at once"
            assert query.batch() == {}
            assert query.batch(ReadAllAvailable()) == {"n2": numbers(5)}
            a.append_numbers(5)
            query.reader.prepareForTriggerAvailableNow()
            assert query.batch() == {"n1": numbers(40, 45)}


def test_partitions_are_bounded() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(95)
        b.append_numbers(5)
        reader = MqttReader(read_batch_options({"servers": a.address, "maxRecordsPerPartition": "20"}))
        planned = reader.partitions()
        assert [len(each.range) for each in planned] == [19, 19, 19, 19, 19, 5]
        assert rows_of(reader, planned) == {"n1": numbers(95), "n2": numbers(5)}
        query = Query(a, maxRecordsPerPartition="50")
        end = query.reader.latestOffset(query.at, ReadAllAvailable())
        assert [len(each.range) for each in query.reader.partitions(query.at, end)] == [47, 48, 5]


def test_each_node_has_a_time_of_its_own() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        for node in (a, b):
            for second in range(3):
                node.append_numbers(10, time_ns=TIME + second * SECOND)
        start, end = TIME // 1_000_000, "2023-11-14T22:13:22Z"
        found = batch(
            a,
            startingTimestamp=f'{{"n1": {start + 1000}, "n2": {start}}}',
            endingTimestamp=f'{{"n1": {start + 5000}, "n2": "{end}"}}',
        )
        assert found == {"n1": numbers(10, 30), "n2": numbers(20)}
        assert Query(a, startingOffsets="", startingTimestamp=f'{{"n1": {start}, "n2": {start + 2000}}}').batch() == {
            "n1": numbers(30),
            "n2": numbers(20, 30),
        }
        with pytest.raises(OptionError, match=r"option startingTimestamp: .* does not name node n2"):
            batch(a, startingTimestamp=f'{{"n1": {start}}}')


def test_available_now_ends_where_the_logs_ended() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(20)
        b.append_numbers(10)
        query = Query(a, maxOffsetsPerTrigger="15")
        query.reader.prepareForTriggerAvailableNow()
        a.append_numbers(50)
        with event_log_nodes("n3") as (c,):
            c.append_numbers(10)
            become_members(a, b, c)
            found = [query.batch() for _ in range(3)]
            assert found == [{"n1": numbers(10), "n2": numbers(5)}, {"n1": numbers(10, 20), "n2": numbers(5, 10)}, {}]


def test_available_now_reads_a_node_that_is_new() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(10)
        query = Query(a)
        query.batch()
        query.restart()
        with event_log_nodes("n2") as (b,):
            b.append_numbers(10)
            become_members(a, b)
            query.reader.prepareForTriggerAvailableNow()
            assert [query.batch() for _ in range(3)] == [{}, {"n2": numbers(10)}, {}]


def test_a_batch_does_not_run_ahead_of_the_slowest_node() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        for second in range(10):
            a.append_numbers(10, time_ns=TIME + second * SECOND)
        b.append_numbers(10, time_ns=TIME + 5 * SECOND)
        query = Query(a, maxNodeSkew="2s")
        assert query.batch() == {"n1": numbers(20)}
        assert query.batch() == {"n1": numbers(20, 40)}
        assert query.batch() == {"n1": numbers(40, 60), "n2": numbers(10)}
        assert query.batch() == {"n1": numbers(60, 100)}


def test_a_group_holds_records_that_it_has_not_read() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(20)
        query = Query(a, groupId="g", queryName="q")
        assert (a.held, b.held) == ({("g", "q"): 0}, {("g", "q"): 0})
        query.batch()
        assert (a.held, b.held) == ({("g", "q"): 20}, {("g", "q"): 0})
        b.stop()
        a.append_numbers(5)
        query.batch()
        assert a.held == {("g", "q"): 25}


def test_a_hold_that_is_refused_does_not_end_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(20)
        query = Query(a, groupId="g")
        a.fail_holds = [grpc.StatusCode.RESOURCE_EXHAUSTED]
        with caplog.at_level(logging.WARNING):
            assert query.batch() == {"n1": numbers(20)}
        assert any("hold of group g stays where it is" in record.message for record in caplog.records)
        assert a.held == {("g", "g"): 0}
        a.append_numbers(5)
        assert query.batch() == {"n1": numbers(20, 25)}
        assert a.held == {("g", "g"): 25}


def test_a_node_that_is_away_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        query = Query(a)
        b.stop()
        with caplog.at_level(logging.WARNING):
            assert [query.batch(), query.batch()] == [{}, {}]
        assert sum("node n2 is away" in record.message for record in caplog.records) == 1


def test_offsets_for_the_status_of_the_query() -> None:
    with event_log_nodes("n1") as (a,):
        a.append_numbers(20)
        query = Query(a)
        assert query.reader.reportLatestOffset() == {"n1": {"log": a.log_id, "offset": 20}}


# --- the table of docs/pipeline.md ---

FAIL = pytest.mark.parametrize("fail", ["true", "false"])


@FAIL
def test_node_away_and_back(fail: str) -> None:
    """The query goes on with the others; the node goes on where it was read."""
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(10)
        b.append_numbers(10)
        query = Query(a, failOnDataLoss=fail)
        query.batch()
        b.stop()
        a.append_numbers(10)
        b.append_numbers(10)
        assert query.batch() == {"n1": numbers(10, 20)}
        query.restart()
        b.start()
        assert query.batch() == {"n2": numbers(10, 20)}


# --- failures in between ---


def test_a_batch_that_was_begun_waits_for_its_node() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        a.append_numbers(10)
        b.append_numbers(10)
        query = Query(a)
        end = query.reader.latestOffset(query.at, ReadAllAvailable())
        a.fail = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE]
        assert len(query.reader.partitions(query.at, end)) == 2


def test_a_start_that_is_not_the_first_record_needs_all_nodes() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        b.stop()
        assert Query(a).at.keys() == {"n1"}
        with pytest.raises(PipelineError, match="n2 is away"):
            Query(a, startingOffsets="latest")
        assert Query(a, startingOffsets="latest", allowPartial="true").at.keys() == {"n1"}


@pytest.mark.parametrize("call", ["Read", "FindOffset"])
def test_a_node_that_goes_away_during_the_plan_keeps_its_place(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """maxNodeSkew asks nodes that were described a moment before."""
    with event_log_nodes("n1", "n2", "n3") as (a, b, c):
        query = Query(a, maxNodeSkew="10s")
        for node in (a, b, c):
            node.append_numbers(10)
        answer, codes = getattr(c, call), [grpc.StatusCode.UNAVAILABLE]

        def fails_once(request: Any, context: Any) -> Any:
            if codes:
                context.abort(codes.pop(), "as the test wants it")
            return answer(request, context)

        monkeypatch.setattr(c, call, fails_once)
        c.stop()
        c.start()
        assert query.batch() == {"n1": numbers(10), "n2": numbers(10)}
        assert not codes
        assert query.batch() == {"n3": numbers(10)}
