"""The traffic matrix: how much each node sends to each other node, by which topics, for which filters and for
which clients.

The log says what was published where, snapshots of the subscriptions say who gets it. A node sends a message once to each
other node that has a receiver (pipeline/subscriptions.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gmqttctl.connection import read_connection
from pipeline.errors import PipelineError
from pipeline.jobs.archive import FOLDER as ARCHIVE
from pipeline.jobs.archive import read_archive
from pipeline.jobs.snapshots import FOLDER as SNAPSHOTS
from pipeline.jobs.snapshots import read_snapshots, take
from pipeline.registry import Context, Option, works
from pipeline.subscriptions import Subscriptions, publisher_savings, subscriber_savings

FOLDER: Final = "matrix"
LINK, FILTER, CLIENT = "link", "filter", "client"
# A fact: LINK source -> target by topics of prefix `name`; FILTER `name` at target draws from source; CLIENT `name` at
# source would save so much at target.
FACTS: Final = "kind string, source string, target string, name string, messages double, bytes double"
SHOWN: Final = 10


@dataclass(frozen=True)
class MatrixOptions:
    source: Annotated[str, Option("where messages are read", words=("log", "archive"))] = "log"
    period: Annotated[float, Option("messages of so long until now", 1.0, is_duration=True)] = 3600.0
    levels: Annotated[int, Option("levels of the topics in the table of links", 1)] = 2
    rows: Annotated[int, Option("rows of the tables of filters and clients", 1)] = 1000


def traffic(messages: DataFrame, bounds: list[int]) -> DataFrame:
    """Messages and bytes by period of the snapshots, topic, node and client."""
    times = np.array(bounds, np.int64)

    def add_period(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            frame["period"] = np.searchsorted(times, frame["time"].to_numpy(np.int64), "right")
            yield frame[["node", "topic", "client", "size", "period"]]

    return (
        messages.select(
            "node",
            "topic",
            F.coalesce("client_id", F.lit("")).alias("client"),
            F.octet_length("payload").alias("size"),
            "time",
        )
        .mapInPandas(add_period, "node string, topic string, client string, size bigint, period bigint")
        .groupBy("period", "topic", "node", "client")
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )


def facts_of(subscriptions: Subscriptions, levels: int) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Rows of `traffic` to rows of FACTS."""

    def run(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            found = [
                (kind, source, target, name, share * each.messages, share * each.bytes)
                for each in frame.itertuples()
                for kind, source, target, name, share in shares_of(
                    subscriptions, int(each.period), each.topic, each.node, each.client, levels
                )
            ]
            yield pd.DataFrame(found, columns=["kind", "source", "target", "name", "messages", "bytes"])

    return run


def shares_of(
    subscriptions: Subscriptions, period: int, topic: str, node: str, client: str, levels: int
) -> Iterator[tuple[str, str, str, str, float]]:
    """(kind, source, target, name, how much of each message) for what a client publishes at a node."""
    receivers = subscriptions.receivers(period, topic)
    prefix = "/".join(topic.split("/")[:levels])
    for target, share in receivers.shares(node).items():
        yield LINK, node, target, prefix, share
        if target != node:
            for name, drawn in receivers.filters(target, node).items():
                yield FILTER, node, target, name, drawn
    if client:
        for target, saved in publisher_savings(receivers, node, subscriptions.nodes).items():
            if saved:
                yield CLIENT, node, target, client, saved
    for name, home, moves in subscriber_savings(receivers, node, subscriptions.nodes):
        for target, saved in moves.items():
            if saved:
                yield CLIENT, home, target, name, saved


def matrix(messages: DataFrame, subscriptions: Subscriptions, levels: int) -> DataFrame:
    """The sums of FACTS."""
    return (
        traffic(messages, subscriptions.bounds)
        .mapInPandas(facts_of(subscriptions, levels), FACTS)
        .groupBy("kind", "source", "target", "name")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    )


@dataclass(frozen=True)
class Tables:
    """Each sorted by bytes, largest first.

    links    source, target, prefix, messages, bytes; source = target is what stays on its node
    filters  filter, target, messages, bytes that it draws over links
    clients  client, node, better_node, messages, bytes that links would save: its best node, where that saves bytes and does
             not cost messages
    """

    nodes: list[str]
    links: pd.DataFrame
    filters: pd.DataFrame
    clients: pd.DataFrame


def tables(facts: DataFrame, nodes: list[str], rows: int) -> Tables:
    order = F.desc("bytes"), "source", "target", "name"
    links = facts.where(F.col("kind") == LINK).orderBy(*order).drop("kind").withColumnRenamed("name", "prefix")
    filters = (
        facts.where(F.col("kind") == FILTER)
        .groupBy(F.col("name").alias("filter"), "target")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
        .orderBy(F.desc("bytes"), "filter", "target")
    )
    best = F.max(F.struct("bytes", "target", "messages"))
    clients = (
        facts.where((F.col("kind") == CLIENT) & (F.col("bytes") > 0) & (F.col("messages") >= 0))
        .groupBy(F.col("name").alias("client"), F.col("source").alias("node"))
        .agg(best.alias("best"))
        .select("client", "node", F.col("best.target").alias("better_node"), "best.messages", "best.bytes")
        .orderBy(F.desc("bytes"), "client")
    )
    return Tables(nodes, links.toPandas(), filters.limit(rows).toPandas(), clients.limit(rows).toPandas())


def write(folder: Path, found: Tables) -> list[Path]:
    """The tables as CSV and the picture as PNG and SVG."""
    from pipeline.pictures import draw_matrix, save  # matplotlib: half of the time that `gmqttctl pipeline` would take

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in (("links", found.links), ("filters", found.filters), ("clients", found.clients)):
        path = folder / f"{name}.csv"
        part = path.with_name(f".{path.name}")
        table.to_csv(part, index=False)
        part.replace(path)
        paths.append(path)
    return [*paths, *save(draw_matrix(found.nodes, found.links, found.filters), folder / "matrix")]


@works("matrix", MatrixOptions)
def work(context: Context, options: MatrixOptions) -> list[str]:
    """Traffic between nodes by topics, filters and clients, as tables and a picture."""
    now_ns = time.time_ns()
    since_ns = now_ns - round(options.period * 1e9)
    if not read_snapshots(context.folder / SNAPSHOTS, now_ns):
        list(take(context.folder / SNAPSHOTS, read_connection(context.source), now_ns))
    snapshots = read_snapshots(context.folder / SNAPSHOTS, since_ns)
    if not snapshots:
        raise PipelineError(f"{context.folder / SNAPSHOTS} has no snapshot: run the pipeline `snapshots`")
    if options.source == "archive":
        messages = read_archive(context.spark, context.place(ARCHIVE)).where(F.col("time") >= since_ns)
    else:
        messages = context.batch(startingTimestamp=str(since_ns // 1_000_000))
    subscriptions = Subscriptions(snapshots)
    facts = matrix(messages, subscriptions, options.levels).cache()
    try:
        found = tables(facts, subscriptions.nodes, options.rows)
    finally:
        facts.unpersist()
    return [*lines(found), *(f"written: {path}" for path in write(context.folder / FOLDER, found))]


def lines(found: Tables) -> list[str]:
    """The tables for people."""
    between = found.links.groupby(["source", "target"], as_index=False)[["messages", "bytes"]].sum()
    parts = (
        ("from node to node", between.sort_values("bytes", ascending=False)),
        ("filters that carry most between nodes", found.filters),
        ("clients that would be better elsewhere", found.clients),
    )
    return [
        f"{title}\n{table.head(SHOWN).to_string(index=False, float_format=shown) if len(table) else '  none'}"
        for title, table in parts
    ]


def shown(value: float) -> str:
    """Whole numbers as such: a message of a shared group counts for a part at each node."""
    return f"{round(value, 1):,.12g}"
