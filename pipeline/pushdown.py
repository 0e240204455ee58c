"""Filters that Spark pushes down to a reader -> what the reader and the nodes leave out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pipeline.narrow import END, Bounds, Narrow

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
TS_NS: Final = 1000  # nanoseconds in a unit of column ts


def narrow(filters: Iterable[Filter]) -> Narrow:
    """The records that pass all of these filters, as far as Narrow can say it."""
    found = Narrow()
    for each in filters:
        found = _narrowed(found, each)
    return found


def _narrowed(found: Narrow, wanted: Filter) -> Narrow:
    match wanted:
        case EqualTo(("node",), str(name)) | EqualNullSafe(("node",), str(name)):
            return found.with_names(frozenset((name,)), None)
        case EqualTo(("topic",), str(name)) | EqualNullSafe(("topic",), str(name)):
            return found.with_names(None, frozenset((name,)))
        case In(("node",), names):
            return found.with_names(_texts(names), None)
        case In(("topic",), names):
            return found.with_names(None, _texts(names))
        case StringStartsWith(("topic",), str(prefix)):
            return replace(found, prefixes=(*found.prefixes, prefix))
        case EqualTo(("retain",), bool(value)) | EqualNullSafe(("retain",), bool(value)):
            return replace(found, retain=value)
        case Not(EqualTo(("retain",), bool(value))):
            return replace(found, retain=not value)
    bounds = _bounds(wanted)
    if bounds is None:
        return found
    match getattr(wanted, "attribute", None):
        case ("offset",):
            return replace(found, offsets=found.offsets.both(bounds))
        case ("qos",):
            return replace(found, qos=found.qos.both(bounds))
        case ("time",):
            return replace(found, times_ns=found.times_ns.both(bounds))
        case ("ts",):
            times_ns = Bounds(bounds.low * TS_NS, min(bounds.high * TS_NS, END))
            return replace(found, times_ns=found.times_ns.both(times_ns))
    return found


def _texts(values: Iterable[Any]) -> frozenset[str]:
    """NULL is equal to nothing."""
    return frozenset(value for value in values if isinstance(value, str))


def _bounds(wanted: Filter) -> Bounds | None:
    """In units of the column; None for a filter that is none of these."""
    if isinstance(wanted, In):
        numbers = [_number(value) for value in wanted.value if value is not None]
        known = [number for number in numbers if number is not None]
        return Bounds(min(known), max(known) + 1) if known and len(known) == len(numbers) else None
    number = _number(getattr(wanted, "value", None))
    if number is None:
        return None
    match wanted:
        case EqualTo() | EqualNullSafe():
            return Bounds(number, number + 1)
        case GreaterThan():
            return Bounds(number + 1)
        case GreaterThanOrEqual():
            return Bounds(number)
        case LessThan():
            return Bounds(0, number)
        case LessThanOrEqual():
            return Bounds(0, number + 1)
    return None


def _number(value: object) -> int | None:
    """A whole number, or the Unix microseconds of an instant."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - EPOCH) // MICROSECOND
    return value if isinstance(value, int) and not isinstance(value, bool) else None
