"""Data source `mqtt`: readers driven as plain objects, as Spark drives them, against nodes in this process."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from broker.codec.properties import encode_publish_properties
from broker.event_log.block import NO_EXPIRY, encode_extra
from broker.event_log.staged_rows import MARKER
from event_log_node import SECOND, TIME, EventLogNode, become_members, event_log_nodes
from pipeline.errors import DataLoss, OptionError, PipelineError
from pipeline.options import read_batch_options, read_stream_options
from pipeline.schema import ARROW_SCHEMA
from pipeline.source import MqttReader, MqttStreamReader, check_schema

Rows = dict[str, list[int]]  # node -> offsets, or payloads as numbers


pytestmark = pytest.mark.usefixtures("asks_at_once")


def rows_of(reader: MqttReader | MqttStreamReader, partitions: Any) -> Rows:
    found: Rows = {}
    for partition in partitions:
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            for node, offset in zip(batch["node"].to_pylist(), batch["offset"].to_pylist(), strict=True):
                found.setdefault(node, []).append(offset)
    return found


def batch(node: EventLogNode, **options: str) -> Rows:
    reader = MqttReader(read_batch_options({"servers": node.address, **options}))
    return rows_of(reader, reader.partitions())


class Query:
    """What Spark does with a stream reader: batch after batch, each from the end of the one before."""

    def __init__(self, node: EventLogNode, **options: str) -> None:
        self.options = read_stream_options({"servers": node.address, "startingOffsets": "earliest", **options})
        self.reader = MqttStreamReader(self.options)
        self.at = self.reader.initialOffset()

    def batch(self, limit: ReadLimit | None = None) -> Rows:
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        found = rows_of(self.reader, self.reader.partitions(self.at, end))
        self.at = end
        self.reader.commit(end)
        return found

    def restart(self) -> None:
        self.reader.stop()
        self.reader = MqttStreamReader(self.options)


def numbers(*span: int) -> list[int]:
    return list(range(*span))


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


# --- records that are lost: exactly once what is there, strict readers are told the range ---


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
