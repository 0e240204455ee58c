"""Positions in the logs of all nodes: the checkpoint of a query, what its options say, and what to do about lost data.

An offset is that of the next record. It means nothing without the id of its log, or a former id (broker/event_log/lineage.py).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.event_log.lineage import Lineage, Parent
from pipeline.errors import DataLoss, OptionError, PipelineError
from pipeline.options import EARLIEST, JSON_EARLIEST, JSON_LATEST, Position

_log: Final = logging.getLogger(__name__)


class LogOffset(NamedTuple):
    log: str
    offset: int


Offsets = dict[str, LogOffset]  # by node


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's word about its log. `first_offset` is kept, `next_offset` comes next; `record_bytes` is the mean; `parents` are
    its former ids."""

    node: str
    address: str
    log_id: str
    first_offset: int
    next_offset: int
    record_bytes: float = 0.0
    parents: tuple[Parent, ...] = ()

    def carry(self, position: LogOffset) -> LogOffset | None:
        """The position in the log as it is now: the same offset, or the first one that may differ, where that is before.
        None for a position in another log."""
        shared_end = Lineage(self.log_id, self.parents).shared_end(position.log)
        return None if shared_end is None else LogOffset(self.log_id, min(position.offset, shared_end))

    def part_of(self, log_id: str, start: int, end: int) -> tuple[int, int]:
        """(start, end) of what the log still has of these records; of nothing where it is another log."""
        last = self.carry(LogOffset(log_id, end))
        return max(start, self.first_offset), min(last.offset, self.next_offset) if last else 0


def encode_offsets(offsets: Offsets) -> dict[str, dict[str, Any]]:
    """The checkpoint: {node: {"log": id, "offset": number}}."""
    return {node: {"log": position.log, "offset": position.offset} for node, position in sorted(offsets.items())}


def decode_offsets(found: object) -> Offsets:
    """The inverse of encode_offsets. Raises PipelineError."""
    offsets: Offsets = {}
    for node, position in found.items() if isinstance(found, dict) else [("", found)]:
        match position:
            case {"log": str(log), "offset": int(offset)} if offset >= 0:
                offsets[node] = LogOffset(log, offset)
            case _:
                raise PipelineError(
                    f"the checkpoint is of another source: {found!r} is not {{node: {{log, offset}}}}. "
                    "Give this query a checkpoint folder of its own"
                )
    return offsets


def lose_data(text: str, fail: bool) -> None:
    """Return what lost data means: DataLoss, or with failOnDataLoss=false a warning."""
    if fail:
        raise DataLoss(
            f"{text}. To go on with the records that are left set failOnDataLoss to false; "
            "to read everything anew use a new checkpoint folder"
        )
    _log.warning("%s; the query goes on with the records that are left (failOnDataLoss is false)", text)


def resolve(name: str, position: Position, nodes: Mapping[str, NodeState], found: Mapping[str, int]) -> Offsets:
    """Return what option `name` says of these nodes. `found` has the offset of `position.time_ns` for each of them."""
    if position.time_ns is not None or position.times_ns is not None:
        return {node: LogOffset(state.log_id, found[node]) for node, state in nodes.items()}
    if position.offsets is None:
        return {node: _end_of(state, position.word == EARLIEST) for node, state in nodes.items()}
    check_nodes(name, position.offsets, nodes)
    offsets: Offsets = {}
    for node, offset in position.offsets.items():
        state = nodes[node]
        if offset in (JSON_EARLIEST, JSON_LATEST):
            offsets[node] = _end_of(state, offset == JSON_EARLIEST)
            continue
        if not state.first_offset <= offset <= state.next_offset:
            raise OptionError(
                name, offset, f"of node {node} is not in its log, which has {state.first_offset} to {state.next_offset}"
            )
        offsets[node] = LogOffset(state.log_id, offset)
    return offsets


def check_nodes(name: str, given: Mapping[str, int], nodes: Mapping[str, NodeState]) -> None:
    """Raise OptionError unless an option names each node that answers, and no other."""
    names, shown = ", ".join(sorted(given)), ", ".join(sorted(nodes))
    for node in sorted(given.keys() ^ nodes.keys()):
        if node in nodes:
            raise OptionError(name, names, f"does not name node {node}; all nodes are {shown}")
        raise OptionError(name, names, f"names node {node}, which does not answer or is none; there are {shown}")


def _end_of(state: NodeState, is_first: bool) -> LogOffset:
    return LogOffset(state.log_id, state.first_offset if is_first else state.next_offset)


def go_on(start: Offsets, nodes: Mapping[str, NodeState], away: Collection[str], fail: bool) -> Offsets:
    """Return where reading goes on at the nodes that answer (docs/pipeline.md has the table). Raises DataLoss.

    away  members that do not answer: they are left out, and keep their offsets

    A node that is new, and one that has another log, enters with its first record.
    """
    if start and not start.keys() & (nodes.keys() | set(away)):
        lose_data(
            f"the checkpoint is of other nodes ({', '.join(sorted(start))}) than those that answer "
            f"({', '.join(sorted(nodes))}): is `servers` another cluster?",
            fail,
        )
    return {node: _go_on(start.get(node), state, fail) for node, state in nodes.items()}


def _go_on(position: LogOffset | None, state: NodeState, fail: bool) -> LogOffset:
    first = LogOffset(state.log_id, state.first_offset)
    if position is None:
        return first
    found = state.carry(position)
    if found is None:
        lose_data(
            f"node {state.node} has log {state.log_id}, the query read log {position.log} up to offset {position.offset}: "
            "the node lost records that were or may have been read",
            fail,
        )
        return first
    if found.offset < position.offset:
        lose_data(
            f"node {state.node}: the records of offsets {found.offset} to {position.offset - 1} that the query read are lost, "
            f"or were given to others since: its log {position.log} goes on as {state.log_id} from offset {found.offset} on",
            fail,
        )
    if found.offset < state.first_offset:
        lose_data(
            f"node {state.node} has records from offset {state.first_offset} on, the query needs those from {found.offset} "
            "on: the retention removed them, or they were damaged",
            fail,
        )
        return first
    if found.offset > state.next_offset:
        lose_data(
            f"node {state.node} has records up to offset {state.next_offset} in log {state.log_id}, "
            f"the query read up to {found.offset}",
            fail,
        )
        return LogOffset(state.log_id, state.next_offset)
    return found


def lose_records(node: str, fail: bool, first: int, end: int) -> None:
    """As lose_data, for records in the middle of a log."""
    lose_data(f"node {node} lost the records of offsets {first} to {end - 1}", fail)
