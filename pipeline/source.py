"""Data source `mqtt`: reads the event logs of all nodes as a batch or as a stream.

Planning runs in one Python process, reading in many. A reader that is sent to a worker has its options only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gmqttctl.connection import Given
from gmqttctl.errors import CommandError
from pipeline.client import NodeClient
from pipeline.cluster import Cluster, Members, find_position, state_of
from pipeline.errors import NodeError, OutOfRange, PipelineError, WrongLog
from pipeline.frames import Frames
from pipeline.narrow import ALL, END, Narrow
from pipeline.offsets import NodeState, Offsets, decode_offsets, encode_offsets, go_on, lose_data, lose_records
from pipeline.options import LATEST, Position, ReadOptions, read_batch_options, read_stream_options, sink_options
from pipeline.planning import Range, plan_end, ranges, split, waits
from pipeline.pushdown import narrow
from pipeline.schema import schema_of
from pipeline.sink import MqttStreamWriter, MqttWriter

NAME: Final = "mqtt"
TIME_MAX_NS: Final = 2**62
READ_PATIENCE_SECONDS: Final = 60.0  # a task waits for a node that is restarted

_log: Final = logging.getLogger(__name__)


class MqttDataSource(DataSource):
    """`spark.read.format("mqtt")`; docs/pipeline.md has the options and columns."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(schema_of(Given(self.options).words("columns")))

    def reader(self, schema: StructType) -> MqttReader:
        check_schema(schema, self.schema())
        options = read_batch_options(self.options)
        return PushdownReader(options) if options.push_down else MqttReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> MqttWriter:
        if overwrite:
            raise PipelineError('messages cannot be overwritten; write them with mode("append")')
        return MqttWriter(sink_options(self.options, is_stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MqttStreamWriter:
        if overwrite:
            raise PipelineError('messages cannot be overwritten; the sink has outputMode("append") and ("update") only')
        return MqttStreamWriter(sink_options(self.options, is_stream=True), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_schema(schema, self.schema())
            return MqttStreamReader(read_stream_options(self.options))
        except CommandError as fault:
            return RefusedStream(fault)


def check_schema(schema: StructType, known: StructType) -> None:
    """Raise PipelineError for a schema that the user gave and that is not the source's."""
    given = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    columns = [(field.name, field.dataType.simpleString()) for field in known.fields]
    if given != columns:
        shown = [", ".join(" ".join(each) for each in found) for found in (given, columns)]
        raise PipelineError(
            f"the schema has columns {shown[0]}; source mqtt has {shown[1]}. "
            "Leave .schema(…) out, and choose columns with select or the option columns"
        )


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """The range that one task reads, and what of it is wanted."""

    range: Range
    narrow: Narrow = ALL


def read_range(wanted: Range, options: ReadOptions, part: Narrow = ALL) -> Iterator[pa.RecordBatch]:
    """The rows of a range. Raises PipelineError."""
    frames = Frames(
        wanted.node,
        wanted.log_id,
        options.topics,
        options.include_pipeline,
        columns=options.columns,
        narrow=part,
    )
    topics = part.filters(options.topics)
    fail = options.fail_on_data_loss
    start, end = wanted.start, wanted.end
    with NodeClient(wanted.address, options.connection, wanted.node, READ_PATIENCE_SECONDS) as client:
        while start < end:
            try:
                for asked, following, blocks in client.read(
                    wanted.log_id, start, end, topics, lost=partial(lose_records, wanted.node, fail)
                ):
                    yield from frames.decode(blocks, asked, end)
                    start = following
                return
            except (OutOfRange, WrongLog) as error:
                lose_data(f"offsets {start} to {end} of {error}", fail)
                there = state_of(wanted.address, client.describe()).part_of(wanted.log_id, start, end)
                if there == (start, end):
                    return
                start, end = there


class MqttReader(DataSourceReader):
    """Reads what the logs have now, of what is wanted."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._narrow = ALL

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with closing(Cluster(options.connection)) as cluster:
            members = cluster.ask()
            members.check(options.allow_partial, needs_all=True)
            start = find_position("starting", options.start, cluster, members)
            end = find_position("ending", options.end, cluster, members)
            planned = [
                narrow_range(each, self._narrow, cluster.client(members.nodes[each.node]))
                for each in ranges(start, end, members.nodes)
                if self._narrow.has_node(each.node)
            ]
        for node, first in start.items():
            if first.offset > end[node].offset:
                raise PipelineError(
                    f"node {node}: the starting offset {first.offset} is behind the ending offset {end[node].offset}"
                )
        found = split([each for each in planned if len(each) > 0], options.min_partitions, options.max_records)
        return [RangePartition(each, self._narrow) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one empty partition of no partitions.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(partition.range, self._options, partition.narrow)


class PushdownReader(MqttReader):
    """Leaves out what the filters of the query leave out. Spark checks them again.

    Spark 4.3 keeps the partitions that it planned for one query with the result of `load()`, and gives them to the other
    queries of it (PythonDataSourceV2.readInfo in Spark's JVM; SPARK-58551 keeps them with the scan). Nothing tells a reader
    of a query without filters. So this reader is made by `pushDownPredicate` alone: by it the user says that the `load()` is
    of one query.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrow = narrow(filters)
        return filters


def narrow_range(whole: Range, wanted: Narrow, client: NodeClient) -> Range:
    """The part of a range that has all wanted records; the node finds those of a time by its index."""
    start, end = max(whole.start, wanted.offsets.low), min(whole.end, wanted.offsets.high)
    low, high = wanted.times_ns
    if low > 0 and start < end:
        start = max(start, client.find(whole.log_id, low))
    if high < END and start < end:
        end = min(end, client.find(whole.log_id, high))
    return replace(whole, start=start, end=max(start, end))


class RefusedStream(DataSourceStreamReader):
    """Raises the error when Spark asks for offsets. Where there is no reader Spark 4.3 ends with an error of its own about that
    (`cannot access local variable 'reader'`)."""

    def __init__(self, fault: CommandError) -> None:
        self._fault = fault

    def initialOffset(self) -> dict[str, Any]:
        raise self._fault

    def latestOffset(self, *_: object) -> dict[str, Any]:
        raise self._fault

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        raise self._fault

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._fault


class MqttStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs from batch to batch.

    _target  where Trigger.AvailableNow ends, by node; None for other triggers
    _planned_at  when the last batch was planned, by the clock of time.monotonic
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._connected: Cluster | None = None
        self._target: Offsets | None = None
        self._planned_at = -inf
        self._away: set[str] = set()  # members that a warning named

    @property
    def _cluster(self) -> Cluster:
        if self._connected is None:
            self._connected = Cluster(self._options.connection)
        return self._connected

    def _members(self, needs_all: bool = False) -> Members:
        members = self._cluster.ask()
        members.check(self._options.allow_partial, needs_all)
        for node in members.away.keys() - self._away:
            _log.warning("node %s is away, its records come when it is back: %s", node, members.away[node])
        self._away = set(members.away)
        return members

    def initialOffset(self) -> dict[str, Any]:
        start = self._options.start
        # A node that is away now begins with its first record, later. That is right for `earliest` only.
        members = self._members(needs_all=start != Position())
        offsets = find_position("starting", start, self._cluster, members)
        self._hold(offsets, members)
        return encode_offsets(offsets)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.min_offsets:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        members = self._members()
        self._target = find_position("ending", Position(LATEST), self._cluster, members)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        options = self._options
        known = decode_offsets(start)
        members = self._members()
        nodes = members.nodes
        caps: dict[str, int] | None = None
        if self._target is not None:
            # Nodes that came later, or have another log since, are not part of this run.
            target = {node: state.carry(self._target[node]) for node, state in nodes.items() if node in self._target}
            caps = {node: position.offset for node, position in target.items() if position is not None}
            nodes = {node: nodes[node] for node in caps}
        begin = go_on(known, nodes, members.away, options.fail_on_data_loss)
        # Spark knows one limit. When several are set the others hold as well, unless Spark wants all.
        is_limited = not isinstance(limit, ReadAllAvailable)
        now = time.monotonic()
        is_early = self._target is None and is_limited and now - self._planned_at < options.max_delay
        if is_early and waits(begin, known, nodes, options.min_offsets):
            return start
        if options.max_node_skew_ns:
            caps = self._skew_caps(begin, known, members, caps)
        end = plan_end(
            known,
            begin,
            nodes,
            options.max_offsets if is_limited else 0,
            options.max_bytes if is_limited else 0,
            caps,
        )
        if end != known:
            self._planned_at = now
        return encode_offsets(end)

    def _skew_caps(
        self, begin: Offsets, known: Offsets, members: Members, caps: Mapping[str, int] | None
    ) -> dict[str, int]:
        """The offset that each node may reach: the first record that is maxNodeSkew later than the oldest unread one."""
        reach = {node: state.next_offset for node, state in members.nodes.items()} if caps is None else dict(caps)
        unread = {
            node: position.offset
            for node, position in begin.items()
            if node in known and position.offset < min(reach[node], members.nodes[node].next_offset)
        }
        oldest = self._ask_each(unread, reach, lambda state: self._time_of(state, unread[state.node]), members)
        if len(oldest) > 1:
            latest = min(oldest.values()) + self._options.max_node_skew_ns
            found = self._ask_each(
                oldest, reach, lambda state: self._cluster.client(state).find(state.log_id, latest), members
            )
            reach.update((node, min(reach[node], offset)) for node, offset in found.items())
        return reach

    def _ask_each(
        self, nodes: Iterable[str], reach: dict[str, int], ask: Callable[[NodeState], int], members: Members
    ) -> dict[str, int]:
        """The answers. A node that went away since it was described leaves `reach`, and keeps its place in this batch."""
        found = {}
        for node in nodes:
            try:
                found[node] = ask(members.nodes[node])
            except NodeError as error:
                _log.warning("a batch goes without node %s: %s", node, error)
                del reach[node]
        return found

    def _time_of(self, state: NodeState, offset: int) -> int:
        """Unix nanoseconds of the first record from this offset on."""
        frames = Frames(state.node, state.log_id, include_pipeline=True)
        for _, _, blocks in self._cluster.client(state).read(state.log_id, offset, state.next_offset, max_bytes=1):
            for batch in frames.decode(blocks, offset, state.next_offset):
                return int(batch["time"][0].as_py())
        return TIME_MAX_NS  # all of them are lost

    def reportLatestOffset(self) -> dict[str, Any]:
        return encode_offsets(find_position("ending", Position(LATEST), self._cluster, self._members()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        first, last = decode_offsets(start), decode_offsets(end)
        moved = {node: first[node] for node in last if node in first and first[node] != last[node]}
        if not moved:
            return []
        members = self._cluster.wait_for(moved.keys(), READ_PATIENCE_SECONDS)
        nodes = {node: members.nodes[node] for node in moved}
        begin = go_on(moved, nodes, (), self._options.fail_on_data_loss)
        found = split(ranges(begin, last, nodes), self._options.min_partitions, self._options.max_records)
        return [RangePartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(partition.range, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        self._hold(decode_offsets(end), self._cluster.ask())

    def _hold(self, offsets: Offsets, members: Members) -> None:
        """Keep the records from here on for the group. A node that does not take a hold keeps the one that it has: lost
        data are noticed when the next batch is planned."""
        options = self._options
        for node, position in offsets.items() if options.group else ():
            state = members.nodes.get(node)
            found = None if state is None else state.carry(position)
            if state is None or found is None:
                continue
            try:
                self._cluster.client(state).hold(options.group, options.query, found.log, found.offset)
            except NodeError as error:
                _log.warning("the hold of group %s stays where it is: %s", options.group, error)

    def stop(self) -> None:
        if self._connected is not None:
            self._connected.close()
