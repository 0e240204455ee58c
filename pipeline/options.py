"""The options of `spark.read / readStream / write / writeStream.format("mqtt")`, named as in Spark's Kafka source.

Names ignore case. A name or a value that is not right is an OptionError that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from broker.config.durations import DurationError, parse_duration
from broker.errors import MqttError
from broker.routing.names import FEED_PREFIX, SHARE_PREFIX, check_topic_filter
from gmqttctl.connection import CONNECTION_NAMES, Connection, Given
from gmqttctl.errors import OptionError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# In JSON, as Kafka's source has them.
JSON_EARLIEST: Final = -2
JSON_LATEST: Final = -1

# As a node takes the name of a query.
JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NAME_BYTES_MAX: Final = 256  # of a group or a query that holds records
JOB_ID_FORM: Final = "1 to 128 letters, digits, dots, underscores and hyphens, the first a letter or digit"

READ_NAMES: Final = (
    "topics",
    "startingOffsets",
    "startingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "allowPartial",
    "includePipeline",
    "columns",
)
BATCH_NAMES: Final = ("endingOffsets", "endingTimestamp", "pushDownPredicate")
STREAM_NAMES: Final = (
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxNodeSkew",
    "groupId",
    "groupIdPrefix",
    "queryName",
)
TRIGGER_DELAY: Final = "15m"  # as Kafka's source
SINK_NAMES: Final = ("node", "jobId", "batchId")
SINK_STREAM_NAMES: Final = ("checkpointLocation", "queryName")  # Spark's own, which it hands to sinks as well


@dataclass(frozen=True, slots=True)
class Position:
    """The place where reading begins or ends.

    word     EARLIEST or LATEST; of nodes that `offsets` does not name, LATEST is not used with `offsets`
    offsets  node -> offset, JSON_EARLIEST or JSON_LATEST
    time_ns  Unix nanoseconds; the first record of that time or later
    times_ns node -> the same
    """

    word: str = EARLIEST
    offsets: Mapping[str, int] | None = None
    time_ns: int | None = None
    times_ns: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """columns             names as given; () for all
    push_down               whether the filters of the query reach the reader, as in Spark's source for JDBC
    max_records             of a partition; 0 for no limit
    min_offsets, max_delay  a trigger waits for so many records, so many seconds at most; 0 for no waiting
    max_offsets, max_bytes  of a trigger; 0 for no limit
    max_node_skew_ns        0 for no limit
    group, query            whose hold on the logs a streaming query moves; group "" for none
    """

    connection: Connection
    topics: tuple[str, ...]
    start: Position
    end: Position
    min_partitions: int
    fail_on_data_loss: bool
    allow_partial: bool
    include_pipeline: bool
    columns: tuple[str, ...] = ()
    push_down: bool = False
    max_records: int = 0
    min_offsets: int = 0
    max_delay: float = 0.0
    max_offsets: int = 0
    max_bytes: int = 0
    max_node_skew_ns: int = 0
    group: str = ""
    query: str = ""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """node        name of the node that publishes; "" for the first one of `servers` that answers
    job_id      names a batch write, so that a second run of it publishes nothing twice; "" for a stream
    batch_id    of a batch write; rising for one job_id
    checkpoint  folder of a stream's checkpoint, as given; "" for a batch
    """

    connection: Connection
    node: str
    job_id: str
    batch_id: int
    checkpoint: str


def read_batch_options(options: Mapping[str, str]) -> ReadOptions:
    """Options of `spark.read`. Raises OptionError."""
    given = _Given(options)
    given.check_names(
        (*CONNECTION_NAMES, *READ_NAMES, *BATCH_NAMES),
        dict.fromkeys(STREAM_NAMES, "is of spark.readStream only"),
    )
    start = given.position("starting", EARLIEST)
    if start == Position(LATEST):
        raise OptionError("startingOffsets", LATEST, "gives no rows in a batch; say earliest, or read a stream")
    if start.offsets and JSON_LATEST in start.offsets.values():
        raise OptionError("startingOffsets", given.text("startingOffsets"), "has -1 (latest), which is of streams only")
    end = given.position("ending", LATEST)
    if end == Position(EARLIEST):
        raise OptionError("endingOffsets", EARLIEST, 'gives no rows; say latest, or JSON such as {"node1": 1000}')
    if end.offsets and JSON_EARLIEST in end.offsets.values():
        raise OptionError("endingOffsets", given.text("endingOffsets"), "has -2 (earliest), which gives no rows")
    if start.time_ns is not None and end.time_ns is not None and start.time_ns > end.time_ns:
        raise OptionError("startingTimestamp", given.text("startingTimestamp"), "is behind endingTimestamp")
    return given.read_options(start, end)


def read_stream_options(options: Mapping[str, str]) -> ReadOptions:
    """Options of `spark.readStream`. Raises OptionError."""
    given = _Given(options)
    given.check_names(
        (*CONNECTION_NAMES, *READ_NAMES, *STREAM_NAMES),
        dict.fromkeys(BATCH_NAMES, "is of spark.read only: a stream has no end, and Spark pushes it no filters"),
    )
    return given.read_options(given.position("starting", LATEST), Position(LATEST))


def sink_options(options: Mapping[str, str], is_stream: bool) -> SinkOptions:
    """Options of `write` and `writeStream`. Raises OptionError."""
    given = _Given(options)
    given.check_names((*CONNECTION_NAMES, *SINK_NAMES, *(SINK_STREAM_NAMES if is_stream else ())), {})
    job_id = given.text("jobId")
    if is_stream:
        for name in ("jobId", "batchId"):
            if given.text(name):
                raise OptionError(name, given.text(name), "is of batch writes only: a stream has the ids of its query")
    elif not JOB_ID.fullmatch(job_id):
        raise OptionError(
            "jobId",
            job_id,
            f"does not name this write, so that a second run of it publishes nothing twice: {JOB_ID_FORM}",
        )
    batch_id = given.text("batchId") or "0"
    if not (batch_id.isascii() and batch_id.isdigit()):
        raise OptionError("batchId", batch_id, "is not a whole number of at least 0")
    return SinkOptions(given.connection(), given.text("node"), job_id, int(batch_id), given.text("checkpointLocation"))


class _Given(Given):
    """With the values that only the data source has."""

    def check_names(self, known: tuple[str, ...], reasons: Mapping[str, str]) -> None:
        others = {name.lower(): (name, reason) for name, reason in reasons.items()}
        for name, value in self.values.items():
            if name in others:
                raise OptionError(others[name][0], value, others[name][1])
            if name not in {each.lower() for each in known}:
                raise OptionError(name, value, f"is unknown here. Known: {', '.join(sorted(known))}")

    def number(self, name: str, what: str) -> int:
        """A positive integer; 0 when it is not given."""
        text = self.text(name)
        if not text:
            return 0
        if not (text.isascii() and text.isdigit()) or int(text) == 0:
            raise OptionError(name, text, f"is not {what}: a whole number of at least 1")
        return int(text)

    def topics(self) -> tuple[str, ...]:
        """Topic filters between commas, or as a JSON array of texts: a filter may have commas."""
        name, text = "topics", self.text("topics")
        if not text.startswith("["):
            return self.words(name)
        try:
            found = json.loads(text)
        except ValueError as error:
            raise OptionError(name, text, f"is not JSON: {error}") from None
        if not all(isinstance(word, str) for word in found):
            raise OptionError(name, text, "is not an array of texts")
        return tuple(found)

    def position(self, which: str, default: str) -> Position:
        """`startingOffsets`, `startingTimestamp` or the same of `ending`."""
        offsets_name, time_name = f"{which}Offsets", f"{which}Timestamp"
        offsets, time = self.text(offsets_name), self.text(time_name)
        if offsets and time:
            raise OptionError(time_name, time, f"is given beside {offsets_name}; give one of them")
        if time.startswith("{"):
            return Position(default, times_ns=_node_instants(time_name, time))
        if time:
            return Position(default, time_ns=instant_ns(time_name, time))
        if offsets.lower() in (EARLIEST, LATEST, ""):
            return Position(offsets.lower() or default)
        return Position(default, _node_offsets(offsets_name, offsets))

    def read_options(self, start: Position, end: Position) -> ReadOptions:
        topics = self.topics()
        for topic_filter in topics:
            try:
                check_topic_filter(topic_filter.encode())
            except (MqttError, UnicodeEncodeError) as error:
                raise OptionError("topics", topic_filter, f"is not a topic filter: {error}") from None
            if topic_filter.encode().startswith(SHARE_PREFIX):
                raise OptionError("topics", topic_filter, "is a shared filter; a log is read with plain ones")
            if topic_filter.encode().startswith(FEED_PREFIX):
                wanted = "startingOffsets or startingTimestamp say where to begin"
                raise OptionError("topics", topic_filter, f"is for MQTT clients; here {wanted}")
        skew = self.text("maxNodeSkew")
        query, group, prefix = self.text("queryName"), self.text("groupId"), self.text("groupIdPrefix")
        if prefix and not group:
            if not query:
                raise OptionError("groupIdPrefix", prefix, "needs queryName: the group has both names at each start")
            group = f"{prefix}-{query}"
        min_offsets = self.number("minOffsetsPerTrigger", "a number of records")
        max_offsets = self.number("maxOffsetsPerTrigger", "a number of records")
        delay = self.text("maxTriggerDelay")
        if delay and not min_offsets:
            raise OptionError("maxTriggerDelay", delay, "needs minOffsetsPerTrigger, whose waiting it limits")
        if 0 < max_offsets < min_offsets:
            raise OptionError("minOffsetsPerTrigger", str(min_offsets), f"is above maxOffsetsPerTrigger, {max_offsets}")
        for name, value in (("groupId", group), ("queryName", query)):
            if len(value.encode()) > NAME_BYTES_MAX:
                raise OptionError(name, value, f"has more than {NAME_BYTES_MAX} bytes")
        return ReadOptions(
            connection=self.connection(),
            topics=topics,
            start=start,
            end=end,
            min_partitions=self.number("minPartitions", "a number of partitions"),
            fail_on_data_loss=self.is_true("failOnDataLoss", True),
            allow_partial=self.is_true("allowPartial", False),
            include_pipeline=self.is_true("includePipeline", False),
            columns=self.words("columns"),
            push_down=self.is_true("pushDownPredicate", False),
            max_records=self.number("maxRecordsPerPartition", "a number of records"),
            min_offsets=min_offsets,
            max_delay=read_duration("maxTriggerDelay", delay or TRIGGER_DELAY, TRIGGER_DELAY) if min_offsets else 0.0,
            max_offsets=max_offsets,
            max_bytes=self.number("maxBytesPerTrigger", "a number of bytes"),
            max_node_skew_ns=round(read_duration("maxNodeSkew", skew, "10m") * 1e9) if skew else 0,
            group=group,
            query=query or group,
        )


def read_duration(name: str, text: str, example: str) -> float:
    """Seconds, more than 0. Raises OptionError."""
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise OptionError(name, text, f"is not right: {error}") from None
    if seconds <= 0:
        raise OptionError(name, text, f"is not above 0; for example {example}")
    return seconds


def instant_ns(name: str, text: str) -> int:
    """Unix nanoseconds of an instant: Unix milliseconds as in Kafka's source, or ISO 8601 with a time zone."""
    if text.isascii() and text.isdigit():
        return int(text) * 1_000_000
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        raise OptionError(
            name, text, "is not an instant: Unix milliseconds, or ISO 8601 with a zone such as 2026-11-22T10:00:00Z"
        )
    return round(instant.timestamp() * 1_000_000) * 1000


def _node_instants(name: str, text: str) -> dict[str, int]:
    wrong = 'is not JSON of instants by node, such as {"node1": 1700000000000, "node2": "2026-11-22T10:00:00Z"}'
    try:
        found = json.loads(text)
    except ValueError:
        raise OptionError(name, text, wrong) from None
    if not found or not all(isinstance(value, int | str) and not isinstance(value, bool) for value in found.values()):
        raise OptionError(name, text, wrong)
    return {node: instant_ns(name, str(value)) for node, value in found.items()}


def _node_offsets(name: str, text: str) -> dict[str, int]:
    wrong = 'is not earliest, latest, or JSON such as {"node1": 1000, "node2": -2} (-2 earliest, -1 latest)'
    try:
        found = json.loads(text)
    except ValueError:
        raise OptionError(name, text, wrong) from None
    if not isinstance(found, dict) or not found:
        raise OptionError(name, text, wrong)
    for offset in found.values():
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < JSON_EARLIEST:
            raise OptionError(name, text, wrong)
    return found
