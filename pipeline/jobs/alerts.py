"""Alerts, published back to topics: devices that fell silent, and values that left their usual range.

Both keep their state in RocksDB (`transformWithState`) and publish through sink `mqtt`: one message when an episode
begins and one when it ends, each once. Timers are of processing time, so an alert comes also when every device is silent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from broker.errors import MqttError
from broker.routing.names import check_topic_name
from pipeline.errors import OptionError
from pipeline.jobs.episodes import (
    BEGAN,
    ENDED,
    Limits,
    Silence,
    Usual,
    due_ms,
    half_range,
    hear,
    look,
    topic_part,
    watch,
)
from pipeline.jobs.payload import PATH
from pipeline.registry import Context, Option, Query, streams

SILENT: Final = "alerts-silent"
RANGE: Final = "alerts-range"
ALERT: Final = "topic string, payload string, qos int, retain boolean"
SILENCE_STATE: Final = "heard_ms bigint, last_ns bigint, topic string, episode bigint, is_silent boolean"
USUAL_STATE: Final = "seen bigint, mean double, variance double, streak bigint, episode bigint, is_outside boolean"
NANOSECONDS: Final = 1_000_000_000
NO_WORD: Final = re.compile(r"\W+")


@dataclass(frozen=True)
class AlertOptions:
    topic: Annotated[str, Option("alerts go to TOPIC/silent/DEVICE and TOPIC/range/TOPIC-OF-THE-VALUE")] = "alerts"
    qos: Annotated[int, Option("of the alerts", 0, words=(0, 1, 2))] = 1
    retain: Annotated[str, Option("whether alerts are retained messages", words=("true", "false"))] = "false"
    silent_after: Annotated[float, Option("a device is silent after so long; 0 for never", 0.0, is_duration=True)] = (
        60.0
    )
    device_levels: Annotated[int, Option("levels of the topic that name a device; 0: the client id names it", 0)] = 0
    forget: Annotated[
        float, Option("a device or value that is away for so long is forgotten", 1.0, is_duration=True)
    ] = 604_800.0
    value: Annotated[str, Option("path of a number in JSON payloads, such as $.t; empty: no ranges")] = ""
    width: Annotated[float, Option("the usual range is the mean and so many deviations", 0.0)] = 4.0
    least: Annotated[float, Option("the usual range is the mean and at least this", 0.0)] = 0.0
    learn_after: Annotated[int, Option("values of a topic before one can be unusual", 1)] = 30
    memory: Annotated[int, Option("values after which an old one counts for a third", 2)] = 200
    confirm: Annotated[int, Option("values in a row that begin or end an episode", 1)] = 3


def alert(kind: str, name: str, state: str, options: AlertOptions, **fields: Any) -> dict[str, Any]:
    """A row for the sink."""
    return {
        "topic": f"{options.topic}/{kind}/{topic_part(name)}",
        "payload": json.dumps({"alert": kind, "state": state, **fields}),
        "qos": options.qos,
        "retain": options.retain == "true",
    }


def rows_of(alerts: list[dict[str, Any]]) -> Iterator[pd.DataFrame]:
    """Nothing for no alerts: Spark takes no frame without columns."""
    if alerts:
        yield pd.DataFrame(alerts)


class SilenceProcessor(StatefulProcessor):
    """Key: a device. One timer for each that is known; it is set anew when it fires."""

    def __init__(self, options: AlertOptions) -> None:
        self._options = options
        self._after_ms = round(options.silent_after * 1000)
        self._forget_ms = round(options.forget * 1000)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("silence", SILENCE_STATE)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        newest = max(rows_newest(frame) for frame in rows)
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        before = self._read()
        state, has_ended = hear(before, *newest, now_ms)
        self._state.update(tuple(state))
        if before is None:
            self._handle.registerTimer(due_ms(state, self._after_ms, self._forget_ms))
        elif has_ended:
            # The timer of the episode was to forget the device.
            self._handle.deleteTimer(due_ms(before, self._after_ms, self._forget_ms))
            self._handle.registerTimer(due_ms(state, self._after_ms, self._forget_ms))
            yield from rows_of([self._alert(key[0], state, ENDED, before.last_ns)])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        before = self._read()
        if before is None:
            return
        state, has_begun = look(before, timerValues.getCurrentProcessingTimeInMs(), self._after_ms, self._forget_ms)
        if state is None:
            self._state.clear()
            return
        self._state.update(tuple(state))
        self._handle.registerTimer(due_ms(state, self._after_ms, self._forget_ms))
        if has_begun:
            yield from rows_of([self._alert(key[0], state, BEGAN, state.last_ns)])

    def _alert(self, device: str, state: Silence, what: str, since_ns: int) -> dict[str, Any]:
        return alert(
            "silent",
            device,
            what,
            self._options,
            device=device,
            episode=state.episode,
            since=since_ns / NANOSECONDS,
            topic=state.topic,
        )

    def _read(self) -> Silence | None:
        found = self._state.get() if self._state.exists() else None
        return None if found is None else Silence(*found)


def rows_newest(frame: pd.DataFrame) -> tuple[int, str]:
    """(time, topic) of the newest message."""
    newest = frame.loc[frame["time"].idxmax()]
    return int(newest["time"]), str(newest["topic"])


class RangeProcessor(StatefulProcessor):
    """Key: a topic. State ends `forget` after the last value."""

    def __init__(self, options: AlertOptions) -> None:
        self._options = options
        self._limits = Limits(options.width, options.least, options.learn_after, options.memory, options.confirm)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("usual", USUAL_STATE, ttlDurationMs=round(self._options.forget * 1000))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        found = self._state.get() if self._state.exists() else None
        usual = Usual() if found is None else Usual(*found)
        alerts = []
        values = pd.concat(list(rows)).sort_values(["time", "offset"])
        for time_ns, device, value in zip(values["time"], values["client_id"], values["value"], strict=True):
            before = usual
            usual, event = watch(usual, float(value), self._limits)
            if event:
                alerts.append(
                    alert(
                        "range",
                        key[0],
                        event,
                        self._options,
                        topic=key[0],
                        device=device,
                        episode=usual.episode,
                        at=int(time_ns) / NANOSECONDS,
                        value=float(value),
                        usual=[
                            before.mean - half_range(before, self._limits),
                            before.mean + half_range(before, self._limits),
                        ],
                    )
                )
        self._state.update(tuple(usual))
        yield from rows_of(alerts)


def silent_devices(messages: DataFrame, options: AlertOptions) -> DataFrame:
    """Rows for the sink about devices that fell silent or came back. `messages` is a stream."""
    levels = options.device_levels
    device = F.substring_index("topic", "/", levels) if levels else F.col("client_id")
    return (
        messages.select(device.alias("device"), "time", "topic")
        .where("device IS NOT NULL AND device <> ''")
        .groupBy("device")
        .transformWithStateInPandas(SilenceProcessor(options), ALERT, "Append", "ProcessingTime")
    )


def unusual_values(messages: DataFrame, options: AlertOptions) -> DataFrame:
    """Rows for the sink about values that left their usual range or came back to it. `messages` is a stream."""
    value = F.try_variant_get(F.try_parse_json(F.try_validate_utf8("payload")), options.value, "double")
    return (
        messages.select("topic", "time", "offset", "client_id", value.alias("value"))
        .where("value IS NOT NULL")
        .groupBy("topic")
        .transformWithStateInPandas(RangeProcessor(options), ALERT, "Append", "ProcessingTime")
    )


def check(options: AlertOptions) -> None:
    """Raise OptionError for options that do not fit together."""
    try:
        check_topic_name(options.topic.encode())
    except MqttError as error:
        raise OptionError("topic", options.topic, f"is no topic name: {error}") from None
    if options.value and PATH.fullmatch(options.value) is None:
        raise OptionError("value", options.value, "is no path; right are $.name, $['name'] and $[0], joined")
    if not options.silent_after and not options.value:
        raise OptionError("silent_after", 0, "and no value: there is nothing to watch")


@streams("alerts", AlertOptions, runs_once=False)
def queries(context: Context, options: AlertOptions) -> list[Query]:
    """Alerts to topics: devices that fell silent, and values that left their usual range."""
    check(options)
    # State of other devices or values is another query.
    found = []
    for name, rows, is_wanted in (
        (f"{SILENT}-{options.device_levels}", silent_devices, options.silent_after > 0),
        (f"{RANGE}{NO_WORD.sub('-', options.value)}", unusual_values, options.value != ""),
    ):
        if is_wanted:
            messages = context.stream(name, {"startingOffsets": "latest"})
            found.append(Query(name, rows(messages, options), format="mqtt", options=context.sink()))
    return found
