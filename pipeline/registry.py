"""The pipelines by name: what `gmqttctl pipeline` lists and runs.

A job is a plain function of DataFrames. A pipeline says which queries make of it, and which options it takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_type_hints

from pyspark.sql import DataFrame, SparkSession

from broker.config.durations import DurationError, format_duration, parse_duration
from gmqttctl.connection import CONNECTION_NAMES
from pipeline.delta_sink import NAME as DELTA_SINK
from pipeline.delta_table import check_installed
from pipeline.errors import OptionError

# Each module of this name registers a pipeline of this name.
JOBS: Final = ("archive", "compact", "rollup", "payload", "decode", "alerts", "snapshots", "matrix")
# A batch of a million messages shows progress, and bounds what a task has in memory.
STREAM_DEFAULTS: Final = {"startingOffsets": "earliest", "groupId": "pipeline", "maxOffsetsPerTrigger": "1000000"}
PARQUET: Final = "parquet"
DELTA: Final = "delta"
TABLE_FORMATS: Final = (PARQUET, DELTA)
Words: TypeAlias = tuple[str, ...]  # written with commas


@dataclass(frozen=True)
class Option:
    """The annotation of one option: a field of a pipeline's dataclass.

    minimum      of a number
    words        the values that a text may have; () for all
    is_duration  seconds, written as 90s or 1h30m
    """

    doc: str
    minimum: float | None = None
    words: tuple[object, ...] = ()
    is_duration: bool = False


@dataclass(frozen=True)
class Context:
    """start    gives the Spark session, which is started by the first call
    folder  holds the tables, checkpoints and pictures of all pipelines; a path that driver and workers share
    source   options of data source `mqtt`
    """

    start: Callable[[], SparkSession]
    folder: Path
    source: Mapping[str, str]

    @property
    def spark(self) -> SparkSession:
        return self.start()

    def stream(self, query: str, defaults: Mapping[str, str] | None = None) -> DataFrame:
        """All messages as a stream, from the first one that is kept unless `defaults` or the user's options say otherwise."""
        options = stream_options(self.source, {"queryName": query, **(defaults or {})})
        return self.spark.readStream.format("mqtt").options(**options).load()

    def batch(self, **options: str) -> DataFrame:
        """Return what the logs have now."""
        return self.spark.read.format("mqtt").options(**{**self.source, **options}).load()

    def sink(self) -> dict[str, str]:
        """Options of sink `mqtt`: how to reach the nodes."""
        names = {name.lower() for name in CONNECTION_NAMES}
        return {name: value for name, value in self.source.items() if name.lower() in names}

    def place(self, name: str) -> str:
        """The folder of a table."""
        return str(self.folder / name)

    def table(
        self,
        name: str,
        rows: DataFrame,
        partition_by: tuple[str, ...],
        compression: str = "zstd",
        table_format: str = PARQUET,
    ) -> Query:
        """The query that adds rows to a table of this folder."""
        options = {"path": self.place(name), "compression": compression}
        if table_format == DELTA:
            return Query(name, rows, DELTA_SINK, (), {**options, "partitionBy": ",".join(partition_by)})
        return Query(name, rows, PARQUET, partition_by, options)

    def checkpoint(self, query: str) -> Path:
        return self.folder / "checkpoints" / query


def table_name(name: str, table_format: str) -> str:
    """Name of a table's folder and query: both formats of a table may be written side by side. Raises PipelineError where
    a package for the format is missing."""
    if table_format == DELTA:
        check_installed()
    return name if table_format == PARQUET else f"{name}-{table_format}"


def stream_options(given: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> dict[str, str]:
    """The options of data source `mqtt` for a stream: what the user gave, whose names ignore case, and defaults."""
    names = {name.lower() for name in given}
    if "startingtimestamp" in names:
        names.add("startingoffsets")
    left = {name: value for name, value in {**STREAM_DEFAULTS, **(defaults or {})}.items() if name.lower() not in names}
    return {**left, **given}


@dataclass(frozen=True)
class Query:
    """A streaming query in append mode. `options` are those of its sink."""

    name: str
    rows: DataFrame
    format: str = PARQUET
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


Queries = Callable[[Context, Any], list[Query]]
Work = Callable[[Context, Any], list[str]]
Function = TypeVar("Function")


@dataclass(frozen=True)
class Pipeline:
    """queries  of a pipeline that streams
    work     of one that runs over what there is, and returns lines for people
    runs_once  False for queries that wait for time to pass: a run over what there is would never end
    """

    name: str
    summary: str
    options: type[Any]
    queries: Queries | None = None
    work: Work | None = None
    runs_once: bool = True

    def read_options(self, given: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
        """(the pipeline's own options, the others, which are the data source's). Raises OptionError."""
        known = {name: (kind, each) for name, kind, each, _ in options_of(self.options)}
        own = {name: parse(name, text, *known[name]) for name, text in given.items() if name in known}
        return self.options(**own), {name: text for name, text in given.items() if name not in known}

    def documentation(self) -> list[tuple[str, str, str]]:
        """(name, default, meaning) of each option."""
        return [(name, show(default, each), each.doc) for name, _, each, default in options_of(self.options)]


def options_of(options: type[Any]) -> list[tuple[str, Any, Option, Any]]:
    """(name, type, annotation, default) of each field."""
    hints = get_type_hints(options, include_extras=True)
    found = []
    for field_ in dataclasses.fields(options):
        kind, annotation = get_args(hints[field_.name])
        found.append((field_.name, kind, annotation, field_.default))
    return found


def parse(name: str, text: str, kind: Any, each: Option) -> Any:
    """The value of an option. Raises OptionError."""
    if kind == Words:
        return tuple(word.strip() for word in text.split(",") if word.strip())
    value: Any = text
    if each.is_duration:
        try:
            value = parse_duration(text)
        except DurationError as error:
            raise OptionError(name, text, f"is not right: {error}") from None
    elif kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise OptionError(name, text, f"is not {what}") from None
    if each.minimum is not None and not value >= each.minimum:
        least = format_duration(each.minimum) if each.is_duration else f"{each.minimum:g}"
        raise OptionError(name, text, f"is below {least}, the least value")
    if each.words and value not in each.words:
        raise OptionError(name, text, f"is not one of {', '.join(map(str, each.words))}")
    return value


def show(value: Any, each: Option) -> str:
    """The text that `parse` reads as this value."""
    if each.is_duration:
        return format_duration(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


_pipelines: Final[dict[str, Pipeline]] = {}


def streams(name: str, options: type[Any], runs_once: bool = True) -> Callable[[Queries], Queries]:
    """Register a pipeline of streaming queries. The docstring's first line is its summary."""
    return lambda queries: _add(
        Pipeline(name, _summary(queries), options, queries=queries, runs_once=runs_once), queries
    )


def works(name: str, options: type[Any]) -> Callable[[Work], Work]:
    """Register a pipeline that works over what there is. The docstring's first line is its summary."""
    return lambda work: _add(Pipeline(name, _summary(work), options, work=work), work)


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").partition("\n")[0]


def _add(pipeline: Pipeline, function: Function) -> Function:
    _pipelines[pipeline.name] = pipeline
    return function


def pipelines() -> dict[str, Pipeline]:
    """All pipelines by name."""
    for job in JOBS:
        import_module(f"pipeline.jobs.{job}")
    return {job: _pipelines[job] for job in JOBS}


def find(name: str) -> Pipeline:
    """Raises OptionError for an unknown name."""
    known = pipelines()
    if name not in known:
        raise OptionError("NAME", name, f"is no pipeline. There are {', '.join(known)}")
    return known[name]
