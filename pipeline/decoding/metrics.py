"""Values of Sparkplug B payloads whose metrics have names and data types (see births.py).

Source: Sparkplug 3.0, 6.4 (metrics and data types).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import DecodeError

from pipeline.decoding.paths import TWICE, Undecodable
from pipeline.decoding.pb.sparkplug_pb2 import Payload

COMPRESSED: Final = "SPBV1.0_COMPRESSED"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGERS: Final = ("int_value", "long_value")
_BYTES: Final = ("bytes_value", "dataset_value", "template_value")


def read_payload(payload: bytes) -> Payload:
    """Raises Undecodable."""
    try:
        found = Payload.FromString(payload)
    except DecodeError:
        raise Undecodable("no payload of Sparkplug B") from None
    if found.uuid == COMPRESSED:
        raise Undecodable("a compressed payload, which is not read")
    for metric in found.metrics:
        if type(metric.name) is not str:  # protobuf gives bytes for what is not UTF-8
            raise Undecodable(f"the metric name {metric.name!r} is not UTF-8")
    return found


def decode_metrics(payload: bytes) -> dict[str, Any]:
    """{"timestamp", "seq", "metrics": {name: value}}. Raises Undecodable."""
    found = read_payload(payload)
    metrics: dict[str, Any] = {}
    for metric in found.metrics:
        metrics[metric.name] = TWICE if metric.name in metrics else value_of(metric)
    tree: dict[str, Any] = {"metrics": metrics}
    if found.HasField("timestamp"):
        tree["timestamp"] = _instant(found.timestamp)
    if found.HasField("seq"):
        tree["seq"] = found.seq
    return tree


def value_of(metric: Payload.Metric) -> Any:
    """None for a metric that is null. Raises Undecodable where the value is not of its data type."""
    if metric.is_null:
        return None
    field = metric.WhichOneof("value")
    wanted, read = _TYPES.get(metric.datatype, ((), _same))
    if field not in wanted:
        raise Undecodable(f"metric {metric.name!r} of data type {metric.datatype} has {field or 'no value'}")
    return read(getattr(metric, field))


def _same(value: Any) -> Any:
    return value


def _signed(bits: int) -> Callable[[int], int]:
    """Two's complement: encoders widen a negative number to 32 or 64 bits, or do not."""

    def read(value: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if value >> (bits - 1) else value

    return read


def _instant(milliseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise Undecodable(f"the time of {milliseconds} milliseconds is not in the years 1 to 9999") from None


def _numbers(code: str) -> Callable[[bytes], list[Any]]:
    """Little-endian numbers without a length."""

    def read(value: bytes) -> list[Any]:
        found = array(code)
        if len(value) % found.itemsize:
            raise Undecodable(f"an array of {len(value)} bytes, whose elements have {found.itemsize}")
        found.frombytes(value)
        return found.tolist()

    return read


# Data type -> the fields that may hold it, and what reads them. Data sets, templates, arrays of booleans, texts and
# times stay bytes.
_TYPES: Final[dict[int, tuple[tuple[str, ...], Callable[[Any], Any]]]] = {
    1: (_INTEGERS, _signed(8)),
    2: (_INTEGERS, _signed(16)),
    3: (_INTEGERS, _signed(32)),
    4: (_INTEGERS, _signed(64)),
    **dict.fromkeys((5, 6, 7, 8), (_INTEGERS, _same)),
    9: (("float_value",), _same),
    10: (("double_value",), _same),
    11: (("boolean_value",), _same),
    **dict.fromkeys((12, 14, 15), (("string_value",), _same)),
    13: (("long_value",), _instant),
    **dict.fromkeys((16, 17, 18, 19, 32, 33, 34), (_BYTES, _same)),
    **{22 + at: (("bytes_value",), _numbers(code)) for at, code in enumerate("bhiqBHIQfd")},
}
