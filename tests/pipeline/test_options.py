"""Options: names that ignore case, values, and errors that name both."""

from __future__ import annotations

import pytest

from gmqttctl.connection import Connection
from pipeline.errors import OptionError
from pipeline.options import (
    EARLIEST,
    LATEST,
    Position,
    read_batch_options,
    read_stream_options,
    sink_options,
)

SERVERS = {"servers": "a:1, b:2"}


def test_defaults_of_a_batch_and_of_a_stream() -> None:
    batch, stream = read_batch_options(SERVERS), read_stream_options(SERVERS)
    assert batch.connection == Connection(("a:1", "b:2"))
    assert (batch.start, batch.end, stream.start) == (Position(EARLIEST), Position(LATEST), Position(LATEST))
    assert batch.fail_on_data_loss
    assert not batch.allow_partial
    assert not batch.include_pipeline
    assert (batch.topics, batch.min_partitions) == ((), 0)
    assert (stream.max_offsets, stream.max_bytes, stream.max_node_skew_ns, stream.group) == (0, 0, 0, "")


def test_names_ignore_case() -> None:
    options = read_stream_options(
        {
            "SERVERS": "[::1]:8084",
            "TOPICS": "a/#,+/b",
            "startingoffsets": "EARLIEST",
            "MaxOffsetsPerTrigger": "10",
            "maxbytespertrigger": "1000",
            "MAXNODESKEW": "1m30s",
            "groupid": "g",
            "failondataloss": "False",
            "allowPARTIAL": "true",
            "includepipeline": "true",
            "minpartitions": "4",
        }
    )
    assert options.connection.servers == ("[::1]:8084",)
    assert options.topics == ("a/#", "+/b")
    assert options.start == Position(EARLIEST)
    assert (options.max_offsets, options.max_bytes, options.max_node_skew_ns) == (10, 1000, 90_000_000_000)
    assert (options.group, options.query) == ("g", "g")
    assert (options.fail_on_data_loss, options.allow_partial, options.include_pipeline) == (False, True, True)
    assert options.min_partitions == 4


def test_topics_with_commas_are_json() -> None:
    assert read_batch_options({**SERVERS, "topics": '["a,b", "c"]'}).topics == ("a,b", "c")


def test_offsets_of_nodes_are_json() -> None:
    options = read_batch_options(
        {**SERVERS, "startingOffsets": '{"n1": 5, "n2": -2}', "endingOffsets": '{"n1": 9, "n2": -1}'}
    )
    assert (options.start.offsets, options.end.offsets) == ({"n1": 5, "n2": -2}, {"n1": 9, "n2": -1})


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1700000000123", 1_700_000_000_123_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500_000_000),
    ],
)
def test_instants_are_milliseconds_or_iso_8601(text: str, time_ns: int) -> None:
    assert read_batch_options({**SERVERS, "startingTimestamp": text}).start.time_ns == time_ns
    assert read_batch_options({**SERVERS, "endingTimestamp": text}).end.time_ns == time_ns


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "option servers: "),
        ({"servers": "host"}, r'option servers: "host" is not HOST:PORT'),
        ({"servers": "host:0"}, "option servers"),
        ({"servers": "host:x"}, "option servers"),
        ({"topics": "a/#/b"}, 'option topics: "a/#/b" is not a topic filter'),
        ({"topics": "$share/g/a"}, "shared filter"),
        ({"topics": "$stream/-15m/a"}, "startingTimestamp"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "option startingTimestamp: .* behind endingTimestamp"),
        ({"topics": '["a", 1]'}, "option topics: .* is not an array of texts"),
        ({"topics": '["a"'}, "option topics: .* is not JSON"),
        ({"startingOffsets": "oldest"}, 'option startingOffsets: "oldest" is not earliest, latest, or JSON'),
        ({"startingOffsets": "{}"}, "option startingOffsets"),
        ({"startingOffsets": '{"n1": -3}'}, "option startingOffsets"),
        ({"startingOffsets": '{"n1": true}'}, "option startingOffsets"),
        ({"startingOffsets": '{"n1": 1.5}'}, "option startingOffsets"),
        ({"startingOffsets": "latest"}, "option startingOffsets: .* no rows in a batch"),
        ({"startingOffsets": '{"n1": -1}'}, "option startingOffsets: .* streams only"),
        ({"endingOffsets": "earliest"}, "option endingOffsets"),
        ({"endingOffsets": '{"n1": -2}'}, "option endingOffsets"),
        ({"startingTimestamp": "yesterday"}, 'option startingTimestamp: "yesterday" is not an instant'),
        ({"startingTimestamp": "2023-11-14T22:13:20"}, "with a zone"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "option startingTimestamp: .* give one of them"),
        ({"minPartitions": "0"}, "option minPartitions"),
        ({"minPartitions": "-1"}, "option minPartitions"),
        ({"failOnDataLoss": "yes"}, 'option failOnDataLoss: "yes" is not true or false'),
        ({"maxOffsetsPerTrigger": "10"}, r"option maxOffsetsPerTrigger: .* spark.readStream only"),
        ({"groupId": "g"}, r"option groupId: .* spark.readStream only"),
        ({"subscribe": "t"}, 'option subscribe: "t" is unknown here. Known: allowPartial'),
        ({"tlsCaFile": "ca.pem"}, "option tlsCaFile: .* without tls=true"),
        ({"tls": "true", "tlsCertFile": "c.pem"}, "option tlsCertFile"),
    ],
)
def test_bad_options_of_a_batch_are_named(options: dict[str, str], text: str) -> None:
    given = options if "servers" in options or not options else {**SERVERS, **options}
    with pytest.raises(OptionError, match=text):
        read_batch_options(given)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: .* a stream has no end"),
        ({"pushDownPredicate": "true"}, "option pushDownPredicate: .* no filters"),
        ({"endingTimestamp": "1"}, "option endingTimestamp"),
        ({"maxNodeSkew": "10"}, 'option maxNodeSkew: "10" is not right'),
        ({"maxNodeSkew": "0s"}, "option maxNodeSkew"),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger"),
        ({"groupId": "g" * 257}, "option groupId"),
    ],
)
def test_bad_options_of_a_stream_are_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_stream_options({**SERVERS, **options})


@pytest.mark.parametrize("token", ["s\u00fcss", "two words", "two\nlines"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(OptionError, match=r"option token: .* visible ASCII") as raised:
        read_batch_options({**SERVERS, "token": token})
    assert token not in str(raised.value)


def test_a_batch_write_needs_a_job_id() -> None:
    assert sink_options({**SERVERS, "jobId": "j", "node": "n1"}, is_stream=False).job_id == "j"
    with pytest.raises(OptionError, match=r"option jobId: .* does not name this write"):
        sink_options(SERVERS, is_stream=False)
    with pytest.raises(OptionError, match=r"option jobId: .* batch writes only"):
        sink_options({**SERVERS, "jobId": "j"}, is_stream=True)


def test_waiting_triggers() -> None:
    options = read_stream_options({**SERVERS, "minOffsetsPerTrigger": "5"})
    assert (options.min_offsets, options.max_delay) == (5, 900.0)
    options = read_stream_options({**SERVERS, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "10s"})
    assert options.max_delay == 10.0
    assert read_stream_options(SERVERS).max_delay == 0.0


def test_a_prefix_of_the_group() -> None:
    options = read_stream_options({**SERVERS, "groupIdPrefix": "team", "queryName": "archive"})
    assert (options.group, options.query) == ("team-archive", "archive")
    options = read_stream_options({**SERVERS, "groupIdPrefix": "team", "groupId": "g"})
    assert (options.group, options.query) == ("g", "g")


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"maxTriggerDelay": "10s"}, "maxTriggerDelay", "minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "maxTriggerDelay", "not right"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger", "4"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger", "at least 1"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "at least 1"),
        ({"groupIdPrefix": "team"}, "groupIdPrefix", "queryName"),
        ({"groupIdPrefix": "x" * 250, "queryName": "archive"}, "groupId", "256"),
        ({"startingTimestamp": "{}"}, "startingTimestamp", "JSON"),
        ({"startingTimestamp": "{"}, "startingTimestamp", "JSON"),
        ({"startingTimestamp": '{"n1": true}'}, "startingTimestamp", "JSON"),
        ({"startingTimestamp": '{"n1": "today"}'}, "startingTimestamp", "zone"),
        ({"startingTimestamp": '{"n1": -1}'}, "startingTimestamp", "zone"),
    ],
)
def test_faults_of_options_of_streams_are_named(given: dict[str, str], name: str, text: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_stream_options({**SERVERS, **given})
    assert name in str(raised.value)
    assert text in str(raised.value)
