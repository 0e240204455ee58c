"""JSON payloads as VARIANT values and chosen columns, with statistics of the numeric ones.

A payload that is no JSON is kept aside: in the partition `outcome=rejected`, with its bytes and what is wrong with it. The
statistics count it. Messages that come after their window was written have statistics of their own, with arrival `late`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from broker.config.durations import format_duration
from pipeline.errors import OptionError
from pipeline.jobs.archive import date_of
from pipeline.jobs.lateness import ARRIVAL, PLACED, arrival, place
from pipeline.registry import Context, Option, Query, Words, streams

FOLDER: Final = "payload"
STATISTICS: Final = "payload-statistics"
PARSED: Final = "parsed"
REJECTED: Final = "rejected"
MESSAGE_COLUMNS: Final = ("node", "log", "offset", "time", "ts", "topic", "client_id")
OWN_COLUMNS: Final = (*MESSAGE_COLUMNS, "value", "payload", "fault", "outcome", "date")
TYPES: Final = ("double", "bigint", "string", "boolean", "timestamp")
NUMERIC: Final = ("double", "bigint")
COLUMN: Final = re.compile(r"([A-Za-z_]\w*)=(\$[^:]*):(\w+)", re.ASCII)
PATH: Final = re.compile(r"""\$(?:\[\d+\]|\.[^.\[\]'"]+|\['[^']+'\]|\["[^"]+"\])*""")


@dataclass(frozen=True)
class PayloadOptions:
    columns: Annotated[Words, Option("NAME=PATH:TYPE of each column, such as temperature=$.t:double")] = ()
    levels: Annotated[int, Option("levels of the topic that make the prefix of the statistics", 1)] = 2
    window: Annotated[float, Option("length of a window of the statistics", 1.0, is_duration=True)] = 60.0
    delay: Annotated[float, Option("how long after its time a message still counts", 0.0, is_duration=True)] = 30.0


@dataclass(frozen=True)
class PayloadColumn:
    """`path` as in `variant_get`: $, then .name, ['name'] or [index]."""

    name: str
    path: str
    type: str


def read_columns(texts: tuple[str, ...]) -> list[PayloadColumn]:
    """Raises OptionError."""
    found: list[PayloadColumn] = []
    for text in texts:
        match = COLUMN.fullmatch(text)
        if match is None:
            raise OptionError("columns", text, "is not NAME=PATH:TYPE, such as temperature=$.t:double")
        column = PayloadColumn(*match.groups())
        if column.type not in TYPES:
            raise OptionError("columns", text, f"has type {column.type}, which is not one of {', '.join(TYPES)}")
        if PATH.fullmatch(column.path) is None:
            raise OptionError("columns", text, f"has path {column.path}; right are $.name, $['name'] and $[0], joined")
        # Spark's names ignore case.
        if column.name.lower() in {*OWN_COLUMNS, *(each.name.lower() for each in found)}:
            raise OptionError("columns", text, f"has name {column.name}, which another column has")
        found.append(column)
    return found


def parse(messages: DataFrame, columns: list[PayloadColumn]) -> DataFrame:
    """Each message with its `value`, the chosen columns (NULL where a value is missing or has another type), and `fault`,
    which is NULL when its payload is JSON. `payload` is there for rejected messages only."""
    text = F.try_validate_utf8(F.col("payload"))
    fault = (
        F.when(F.octet_length("payload") == 0, F.lit("empty"))
        .when(F.col("text").isNull(), F.lit("not UTF-8"))
        .when(F.col("value").isNull(), F.lit("not JSON"))
    )
    parsed = messages.withColumn("text", text).withColumn("value", F.try_parse_json("text")).withColumn("fault", fault)
    is_rejected = F.col("fault").isNotNull()
    return parsed.select(
        *MESSAGE_COLUMNS,
        "value",
        *(F.try_variant_get("value", each.path, each.type).alias(each.name) for each in columns),
        F.when(is_rejected, F.col("payload")).alias("payload"),
        "fault",
        F.when(is_rejected, F.lit(REJECTED)).otherwise(F.lit(PARSED)).alias("outcome"),
        date_of(F.col("time")).alias("date"),
    )


class Placing(StatefulProcessor):
    """Tells which messages are late; no state. Key: anything."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us

    def init(self, handle: StatefulProcessorHandle) -> None:
        """No state is kept."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        watermark_us = timerValues.getCurrentWatermarkInMs() * 1000
        for frame in rows:
            times = frame.pop("time_us").to_numpy(np.int64)
            yield frame.assign(**place(times, watermark_us, self._window_us))


def statistics(parsed: DataFrame, columns: list[PayloadColumn], options: PayloadOptions) -> DataFrame:
    """One row for each window, prefix, arrival and numeric column, and one with column "" for all messages. `parsed` is a
    stream."""
    names = {f"number{index}": each.name for index, each in enumerate(columns) if each.type in NUMERIC}
    numbers = [F.struct(F.lit(name).alias("column"), F.col(number).alias("number")) for number, name in names.items()]
    whole = F.struct(F.lit("").alias("column"), F.lit(None).cast("double").alias("number"))
    placed = (
        parsed.withWatermark("ts", f"{options.delay} seconds")
        .select(
            "ts",
            F.floor(F.col("time") / 1000).alias("time_us"),
            F.substring_index("topic", "/", options.levels).alias("prefix"),
            "fault",
            *(F.col(name).cast("double").alias(number) for number, name in names.items()),
        )
        # Spark drops late rows of a column with a watermark before `Placing` sees them.
        .drop("ts")
        .groupBy("prefix")
        .transformWithStateInPandas(
            Placing(round(options.window * 1e6)),
            ", ".join((PLACED, "prefix string", "fault string", *(f"{number} double" for number in names))),
            "Append",
            "EventTime",
            eventTimeColumnName="at",
        )
    )
    return (
        placed.select("at", "start", "late", "prefix", "fault", F.explode(F.array(whole, *numbers)).alias("each"))
        .groupBy(F.window("at", f"{options.window} seconds"), "prefix", "late", "start", "each.column")
        .agg(
            F.count("*").alias("messages"),
            F.count("fault").alias("rejected"),
            F.count("each.number").alias("numbers"),
            F.min("each.number").alias("min"),
            F.max("each.number").alias("max"),
            F.avg("each.number").alias("mean"),
            F.stddev_pop("each.number").alias("deviation"),
            F.kll_sketch_agg_double("each.number").alias("sketch"),
        )
        .select(
            "start",
            F.lit(options.window).alias("window"),
            "prefix",
            "column",
            "messages",
            "rejected",
            "numbers",
            "min",
            "max",
            "mean",
            "deviation",
            "sketch",
            arrival(F.col("late")),
            F.date_format("start", "yyyy-MM-dd").alias("date"),
        )
    )


@streams("payload", PayloadOptions)
def queries(context: Context, options: PayloadOptions) -> list[Query]:
    """JSON payloads as VARIANT values and chosen columns, with statistics; what does not parse is kept aside."""
    columns = read_columns(options.columns)
    name = f"{STATISTICS}-{options.levels}-{format_duration(options.window)}"
    return [
        context.table(FOLDER, parse(context.stream(FOLDER), columns), ("outcome", "date")),
        context.table(name, statistics(parse(context.stream(name), columns), columns, options), (ARRIVAL, "date")),
    ]
