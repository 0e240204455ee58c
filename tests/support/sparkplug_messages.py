"""Payloads of Sparkplug B, as an edge node makes them."""

from __future__ import annotations

from typing import Any

from pipeline.decoding.pb.sparkplug_pb2 import Payload

INT8, INT32, UINT64, DOUBLE, BOOLEAN, STRING, DATETIME, INT16_ARRAY = 1, 3, 8, 10, 11, 12, 13, 23
TIME_MS = 1_795_341_600_000


def metric(
    name: str | None = None, alias: int | None = None, datatype: int | None = None, **value: Any
) -> Payload.Metric:
    """`value`: one of the fields of the oneof, or is_null=True."""
    given = {"name": name, "alias": alias, "datatype": datatype, **value}
    return Payload.Metric(**{key: each for key, each in given.items() if each is not None})


def payload(*metrics: Payload.Metric, **fields: Any) -> bytes:
    return Payload(timestamp=TIME_MS, metrics=metrics, **fields).SerializeToString()
