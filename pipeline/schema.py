"""The columns of data source `mqtt`: one record of an event log a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from gmqttctl.errors import OptionError

USER_PROPERTIES: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))

# time in Unix nanoseconds, `ts` the same instant in microseconds, expiry in seconds. What a publisher did not give is NULL.
# Spark checks names, types and nullability of the first batch only.
ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("log", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int32(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("client_id", pa.string()),
        pa.field("user_name", pa.string()),
        pa.field("content_type", pa.string()),
        pa.field("response_topic", pa.string()),
        pa.field("correlation_data", pa.binary()),
        pa.field("user_properties", USER_PROPERTIES),
        pa.field("expiry", pa.int64()),
        pa.field("origin", pa.string()),
    ]
)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The columns with these names, in the order of the source; () for all. Raises OptionError."""
    for name in columns:
        if name not in ARROW_SCHEMA.names:
            raise OptionError("columns", name, f"is no column; there are {', '.join(ARROW_SCHEMA.names)}")
    return pa.schema([field for field in ARROW_SCHEMA if field.name in columns]) if columns else ARROW_SCHEMA
