"""The types of declared columns, and which decoded values fit them. No value is rounded, cut or read as another type; but
times are kept in microseconds, as all tables have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipeline.decoding.paths import Undecodable, kind_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Years 1 to 9999, as Spark, Delta and Python have them.
_FIRST_US: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST_US: Final = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_INT64: Final = range(-(2**63), 2**63)
_EXACT: Final = 2**53  # from here on a double may stand for a whole number next to it
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            found = float(value)
        except OverflowError:
            found = float("inf")
        if found == value:
            return found
        raise Undecodable(f"the whole number {short(value)} has no exact double")
    raise _misfit(value)


def _bigint(value: Any) -> int:
    found = int(value) if type(value) is float and value.is_integer() else value
    if type(found) is not int:
        raise _misfit(value)
    if type(value) is float and abs(value) >= _EXACT:
        raise Undecodable(f"the number {short(value)} may be rounded: it is not below 2**53")
    if found not in _INT64:
        raise Undecodable(f"{short(value)} is beyond 64 bits")
    return found


def _string(value: Any) -> str:
    if type(value) is not str:
        raise _misfit(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Undecodable("the text has half a surrogate pair") from None
    return value


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _misfit(value)
    return value


def _binary(value: Any) -> bytes:
    if type(value) is not bytes:
        raise _misfit(value)
    return value


def _timestamp(value: Any) -> int:
    """An instant of the format, or a text of RFC 3339."""
    text = value
    if type(value) is str:
        try:
            value = datetime.fromisoformat(value.upper()) if _RFC3339.fullmatch(value) else None
        except ValueError:
            value = None
        if value is None:
            raise Undecodable(f"the text {short(text)} is no time of RFC 3339, such as 2026-11-22T12:00:00Z")
    if not isinstance(value, datetime):
        raise _misfit(value)
    if value.tzinfo is None:
        raise Undecodable(f"the time {value} has no zone")
    return _in_years((value - _EPOCH) // _MICROSECOND, value)


def _in_years(microseconds: int, value: Any) -> int:
    if not _FIRST_US <= microseconds <= _LAST_US:
        raise Undecodable(f"{short(value)} is not in the years 1 to 9999 (UTC)")
    return microseconds


def _number_of(microseconds: int) -> Callable[[Any], int]:
    """Of a type whose numbers count units of so many microseconds since 1970."""

    def instant(value: Any) -> int:
        if type(value) is not int and type(value) is not float:
            raise _misfit(value)
        try:
            found = round(value * microseconds)
        except (OverflowError, ValueError):  # infinite, or no number
            found = _LAST_US + 1
        return _in_years(found, value)

    return instant


def _misfit(value: Any) -> Undecodable:
    return Undecodable(f"{kind_of(value)} does not fit")


def short(value: Any) -> str:
    """A value for people, at most about 40 characters."""
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 128 else f"of {value.bit_length()} bits"
    return text if len(text) <= 40 else f"{text[:37]}..."


class ColumnType(NamedTuple):
    """fit  returns the value for an Arrow array of this type, instants as Unix microseconds; raises Undecodable"""

    arrow: pa.DataType
    fit: Callable[[Any], Any]


_INSTANT: Final = pa.timestamp("us", tz="UTC")
TYPES: Final = {
    "double": ColumnType(pa.float64(), _double),
    "bigint": ColumnType(pa.int64(), _bigint),
    "string": ColumnType(pa.string(), _string),
    "boolean": ColumnType(pa.bool_(), _boolean),
    "binary": ColumnType(pa.binary(), _binary),
    "timestamp": ColumnType(_INSTANT, _timestamp),
    "timestamp_seconds": ColumnType(_INSTANT, _number_of(1_000_000)),
    "timestamp_millis": ColumnType(_INSTANT, _number_of(1_000)),
}
