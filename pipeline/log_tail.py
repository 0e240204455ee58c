"""Follows the event logs of all nodes: `gmqttctl log tail`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from broker.event_log.records import Record, records
from broker.event_log.selection import Selection
from pipeline.cluster import Cluster
from pipeline.errors import NodeError, OptionError
from pipeline.offsets import LogOffset, NodeState
from pipeline.options import read_batch_options

READ_BYTES: Final = 1 << 20
LOOK_BYTES: Final = 4 << 20

Found = tuple[str, str, Record]  # node, log id, record


class Tail:
    """The newest records of each node, and those that come. A node that is found later is read from its first record."""

    def __init__(self, connection: Mapping[str, str], topics: Sequence[str], nodes: Sequence[str], count: int) -> None:
        options = read_batch_options({**connection, "topics": ",".join(topics)})
        self._cluster = Cluster(options.connection)
        self._topics = options.topics
        self._selection = Selection([topic.encode() for topic in options.topics]) if options.topics else None
        self._nodes = set(nodes)
        self._count = count
        self._at: dict[str, LogOffset] = {}
        self._away: set[str] = set()
        self._is_first = True
        self.is_behind = False
        self._notices: list[str] = []

    def close(self) -> None:
        self._cluster.close()

    def take_notices(self) -> list[str]:
        """Return what the user should know, not told yet."""
        notices, self._notices = self._notices, []
        return notices

    def look(self) -> list[Found]:
        """The records since the last look, in the order of their times; at most some LOOK_BYTES of each node, the rest of
        which the next look has (`is_behind`). Raises PipelineError."""
        members = self._cluster.ask()
        self.is_behind = False
        if self._is_first:
            for name in sorted(self._nodes - members.nodes.keys() - members.away.keys()):
                shown = ", ".join(sorted(members.nodes))
                raise OptionError("node", name, f"is unknown or keeps no log; there are {shown}")
        for name, reason in sorted(members.away.items()):
            if name not in self._away and self._reads(name):
                self._notices.append(f"node {name} is away: {reason}")
        self._away = set(members.away)
        found: list[Found] = []
        for name, state in sorted(members.nodes.items()):
            if self._reads(name):
                try:
                    found += self._read(state)
                except NodeError as error:  # at the next look it is away, or its log is another
                    self._notices.append(str(error))
        self._is_first = False
        found.sort(key=lambda one: one[2].time_ns)
        return found

    def _reads(self, node: str) -> bool:
        return not self._nodes or node in self._nodes

    def _read(self, state: NodeState) -> list[Found]:
        known = self._at.get(state.node)
        at = LogOffset(state.log_id, state.first_offset)
        if known is None:
            if self._is_first:
                at = LogOffset(state.log_id, max(state.first_offset, state.next_offset - self._count))
        elif (carried := state.carry(known)) is None:
            self._notices.append(
                f"node {state.node} has another log now, {state.log_id}; it is read from its first record"
            )
        elif carried.offset < state.first_offset:
            self._notices.append(f"node {state.node} removed the records {carried.offset} to {state.first_offset - 1}")
        else:
            if carried.offset < known.offset:
                self._notices.append(
                    f"node {state.node} may have lost the records {carried.offset} to {known.offset - 1}; those that came "
                    "since follow"
                )
            at = carried
        found: list[Found] = []
        read = 0
        answers = self._cluster.client(state).read(
            state.log_id, at.offset, state.next_offset, self._topics, READ_BYTES, partial(self._lost, state.node)
        )
        for asked, following, blocks in answers:
            found += [
                (state.node, state.log_id, record)
                for record in records(blocks)
                if asked <= record.offset < state.next_offset and self._wants(record)
            ]
            at = LogOffset(state.log_id, min(following, state.next_offset))
            read += len(blocks)
            if read >= LOOK_BYTES:
                self.is_behind = at.offset < state.next_offset
                break
        self._at[state.node] = at
        return found

    def _lost(self, node: str, first: int, end: int) -> None:
        self._notices.append(f"node {node} lost the records {first} to {end - 1}")

    def _wants(self, record: Record) -> bool:
        return self._selection is None or self._selection.has(record.topic.encode())
