"""Reads the logs and what was read of them after a run, and applies the rules of the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa

from messages import payload_of
from oracle import Fault, Row, check_acknowledged, check_offsets, check_sent, check_sink, compare_with_log, found
from records import read_archive, read_log
from replay_reader import RECEIVE_MAXIMUM, Repeated, entries_of, repeated_of
from replay_sessions import NodeKill, Sessions, begun_faults


class Published(NamedTuple):
    """By number of a message: whether it was acknowledged (1 or 0), and how often it was sent."""

    acknowledged: bytes
    sent: Sequence[int]


@dataclass
class Judgement:
    """source_rows  records of clients, in all logs
    sink_rows    records that the sink published
    begun        sessions of the replay reader that began anew
    again        messages that came to it again
    """

    source_rows: int = 0
    sink_rows: int = 0
    sink_batches: int = 0
    archive_rows: int = 0
    begun: int = 0
    again: int = 0
    faults: list[Fault] = field(default_factory=list)


def judge(seed: int, published: Published, servers: Sequence[str], archive: Path, has_sink: bool = True) -> Judgement:
    """`servers` are API addresses; the logs must not grow meanwhile."""
    logged = [row for server in servers for row in read_log(server)]
    source = [row for row in logged if row.marker is None]
    sink = [row for row in logged if row.marker is not None]
    archived = read_archive(archive)
    result = Judgement(len(source), len(sink), len({batch_of(row) for row in sink}), len(archived))
    result.faults += one_log_a_node(logged) + check_offsets(logged)
    result.faults += compare_with_log(source, archived)
    result.faults += check_acknowledged(seed, published.acknowledged, archived)
    result.faults += check_sent(seed, published.sent, source)
    if has_sink:
        result.faults += one_staging_node(sink) + check_sink(sink, source)
    return result


# What a reader must not do: a text, and a query for the examples.
READER_FAULTS: Final = {
    "(node, offset) more than once": 'SELECT node, "offset", count(*) FROM rows GROUP BY ALL HAVING count(*) > 1',
    "records of a log that were not read": 'SELECT node, "offset" FROM log ANTI JOIN rows USING (node, "offset")',
    "rows that are in no log": 'SELECT node, "offset" FROM rows ANTI JOIN log USING (node, "offset")',
    "rows that are not as in the log": """
        SELECT node, "offset" FROM rows JOIN log USING (node, "offset")
        WHERE (rows.topic, rows.payload) IS DISTINCT FROM (log.topic, log.payload)""",
    "acknowledged messages that were not read": "SELECT number FROM acknowledged ANTI JOIN rows USING (payload)",
}


def judge_reader(
    seed: int, published: Published, servers: Sequence[str], files: Sequence[Path], partitions: Sequence[str]
) -> Judgement:
    """Compare the rows of Parquet files with the logs and with what was acknowledged, by DuckDB.

    partitions  names of the nodes by their numbers, where the rows have `partition` in place of `node`; else none
    """
    logged = [row for server in servers for row in read_log(server)]
    numbers = [number for number, is_acknowledged in enumerate(published.acknowledged) if is_acknowledged]
    log = pa.table({name: [getattr(row, name) for row in logged] for name in ("node", "offset", "topic", "payload")})
    payloads = pa.table({"number": numbers, "payload": [payload_of(seed, number) for number in numbers]})
    node = "$partitions[partition + 1]" if partitions else "node"
    parameters = {"files": [str(path) for path in files]} | ({"partitions": list(partitions)} if partitions else {})
    with duckdb.connect() as database:
        database.register("log", log)
        database.register("acknowledged", payloads)
        database.execute(
            f'CREATE TABLE rows AS SELECT {node} AS node, "offset", topic, payload FROM read_parquet($files)',
            parameters,
        )
        (count,) = database.execute("SELECT count(*) FROM rows").fetchone() or (0,)
        result = Judgement(len(logged), archive_rows=count)
        result.faults += one_log_a_node(logged) + check_offsets(logged) + check_sent(seed, published.sent, logged)
        for what, query in READER_FAULTS.items():
            examples = database.execute(query).fetchall()
            fault = Fault(what)
            for example in examples:
                fault.add(example)
            result.faults += found(fault)
    return result


def judge_sessions(folder: Path, kills: Sequence[NodeKill], result: Judgement) -> None:
    """Whether the replay reader's sessions were there, and brought no more again than docs/replay.md says."""
    entries, repeated = entries_of(folder), repeated_of(folder)
    sessions = Sessions()
    for entry in entries:
        sessions.note(entry)
    result.begun = sessions.begun
    result.again = sum(line.again for line in repeated)
    result.faults += begun_faults(entries, kills) + repeated_faults(repeated)


def repeated_faults(lines: Sequence[Repeated]) -> list[Fault]:
    """Of connections of the replay reader that brought more messages again than could be on their way."""
    fault = Fault(f"connections that brought more than {RECEIVE_MAXIMUM} messages again for each session")
    sums: Counter[float] = Counter()
    limits: dict[float, int] = {}
    for line in lines:
        sums[line.connection] += line.beyond
        limits[line.connection] = line.limit
    for connection, beyond in sums.items():
        if beyond > limits[connection]:
            fault.add(f"{beyond} at {connection}")
    return found(fault)


def batch_of(row: Row) -> str:
    return (row.marker or "").rpartition("/")[0]


def one_log_a_node(rows: Sequence[Row]) -> list[Fault]:
    """A log keeps its id through every kill with sync `commit`, because nothing that may have been read is lost."""
    fault = Fault("nodes with more than one log")
    logs = {(row.node, row.log) for row in rows}
    for node in {node for node, _ in logs}:
        if sum(name == node for name, _ in logs) > 1:
            fault.add(node)
    return found(fault)


def one_staging_node(sink_rows: Sequence[Row]) -> list[Fault]:
    fault = Fault("rows of the sink in the log of another node than the first row")
    for row in sink_rows:
        if row.node != sink_rows[0].node:
            fault.add(row.place)
    return found(fault)
