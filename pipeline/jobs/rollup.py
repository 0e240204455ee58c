"""Counts and sketches for each topic prefix and window.

A device's messages are compared with its last one by `transformWithState`, which also tells late messages: those whose
window was written already. They are counted in rows of their own, with arrival `late` and `start` of the window that they
belong to. The sketches of all rows merge, so a reader may add them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from broker.config.durations import format_duration
from pipeline.jobs.lateness import ARRIVAL, LATE, PLACED, arrival, place
from pipeline.registry import Context, Option, Query, streams

FOLDER: Final = "rollup"
MEASURED: Final = f"{PLACED}, prefix string, device string, size bigint, gap bigint"
NO_GAP: Final = -1


@dataclass(frozen=True)
class RollupOptions:
    levels: Annotated[int, Option("levels of the topic that make the prefix", 1)] = 2
    window: Annotated[float, Option("length of a window", 1.0, is_duration=True)] = 60.0
    delay: Annotated[
        float, Option("a message that comes so long after its time counts in its window", 0.0, is_duration=True)
    ] = 30.0
    forget: Annotated[float, Option("a device that is silent for so long begins anew", 1.0, is_duration=True)] = (
        86_400.0
    )


def gaps(times: npt.NDArray[np.int64], last: int | None) -> npt.NDArray[np.int64]:
    """Microseconds from the message before, for ascending `times`; NO_GAP for the first of a device and for messages that
    are older than `last`, the newest time of earlier batches."""
    found = np.full(len(times), NO_GAP, np.int64)
    begin = 0 if last is None else int(np.searchsorted(times, last))
    if begin == len(times):
        return found
    found[begin + 1 :] = np.diff(times[begin:])
    if last is not None:
        found[begin] = times[begin] - last
    return found


class Gaps(StatefulProcessor):
    """Times between the messages of each device, and which messages are late. State: the newest time of the device."""

    def __init__(self, window_us: int, forget_ms: int) -> None:
        self._window_us = window_us
        self._forget_ms = forget_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "time_us bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """One key in one batch: its rows fit into memory, as maxOffsetsPerTrigger bounds the batch."""
        device = str(key[0])
        found = pd.concat(list(rows)).sort_values("time_us", kind="stable")
        times = found["time_us"].to_numpy(np.int64)
        watermark_us = timerValues.getCurrentWatermarkInMs() * 1000
        last = self._newest() if self._last.exists() else None
        between = gaps(times, last) if device else np.full(len(times), NO_GAP, np.int64)
        self._last.update((max(int(times[-1]), last or 0),))
        if last is None:
            self._handle.registerTimer(max(int(times[-1]) // 1000, watermark_us // 1000) + self._forget_ms)
        yield pd.DataFrame(
            {
                **place(times, watermark_us, self._window_us),
                "prefix": found["prefix"].to_numpy(),
                "device": device,
                "size": found["size"].to_numpy(np.int64),
                "gap": pd.Series(between, dtype="Int64").mask(between == NO_GAP).array,
            }
        )

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Forget a device. One timer for each: it is set anew when the device was heard meanwhile."""
        due = self._newest() // 1000 + self._forget_ms
        if due > timerValues.getCurrentWatermarkInMs():
            self._handle.registerTimer(due)
        else:
            self._last.clear()
        return iter(())

    def _newest(self) -> int:
        (time_us,) = self._last.get() or (0,)
        return int(time_us)


def rollup(messages: DataFrame, options: RollupOptions) -> DataFrame:
    """One row for each window, prefix and arrival. `messages` is a stream."""
    device = F.coalesce(F.col("client_id"), F.lit(""))
    measured = (
        messages.select(
            "ts",
            F.floor(F.col("time") / 1000).alias("time_us"),
            F.substring_index("topic", "/", options.levels).alias("prefix"),
            F.octet_length("payload").cast("bigint").alias("size"),
            device.alias("device"),
        )
        .withWatermark("ts", f"{options.delay} seconds")
        # Spark drops late rows of a column with a watermark before `Gaps` sees them.
        .drop("ts")
        .groupBy("device")
        .transformWithStateInPandas(
            Gaps(round(options.window * 1e6), round(options.forget * 1e3)),
            MEASURED,
            "Append",
            "EventTime",
            eventTimeColumnName="at",
        )
    )
    return (
        measured.groupBy(F.window("at", f"{options.window} seconds"), "prefix", "late", "start")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.hll_sketch_agg(F.nullif("device", F.lit(""))).alias("publisher_sketch"),
            F.kll_sketch_agg_bigint("size").alias("size_sketch"),
            F.kll_sketch_agg_bigint("gap").alias("gap_sketch"),
            F.count("gap").alias("gaps"),
        )
        .select(
            "start",
            F.lit(options.window).alias("window"),
            "prefix",
            "messages",
            "bytes",
            F.hll_sketch_estimate("publisher_sketch").alias("publishers"),
            "gaps",
            "publisher_sketch",
            "size_sketch",
            "gap_sketch",
            arrival(F.col("late")),
            F.date_format("start", "yyyy-MM-dd").alias("date"),
        )
    )


def merge(rows: DataFrame, levels: int, window: float) -> DataFrame:
    """The rows of a rollup with fewer levels and longer windows. Late messages are added to the windows that they belong to."""
    return (
        rows.groupBy(
            F.window("start", f"{window} seconds").start.alias("start"),
            F.substring_index("prefix", "/", levels).alias("prefix"),
        )
        .agg(
            F.sum("messages").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.sum(F.when(F.col(ARRIVAL) == LATE, F.col("messages")).otherwise(0)).alias("late_messages"),
            F.hll_sketch_estimate(F.hll_union_agg("publisher_sketch")).alias("publishers"),
            F.kll_merge_agg_bigint("size_sketch").alias("sizes"),
            F.kll_merge_agg_bigint("gap_sketch").alias("between"),
            F.sum("gaps").alias("gaps"),
        )
        .select(
            "start",
            "prefix",
            "messages",
            "bytes",
            "late_messages",
            "publishers",
            F.kll_sketch_get_quantile_bigint("sizes", F.lit(0.5)).alias("size_median"),
            F.kll_sketch_get_quantile_bigint("sizes", F.lit(0.99)).alias("size_p99"),
            F.when(F.col("gaps") > 0, F.kll_sketch_get_quantile_bigint("between", F.lit(0.5))).alias("gap_median_us"),
            F.when(F.col("gaps") > 0, F.kll_sketch_get_quantile_bigint("between", F.lit(0.99))).alias("gap_p99_us"),
        )
    )


@streams("rollup", RollupOptions)
def queries(context: Context, options: RollupOptions) -> list[Query]:
    """Messages, bytes, publishers, sizes and gaps for each topic prefix and window."""
    # Another length of windows or of prefixes is another table.
    name = f"{FOLDER}-{options.levels}-{format_duration(options.window)}"
    return [context.table(name, rollup(context.stream(name), options), (ARRIVAL, "date"))]
