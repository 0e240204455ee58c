"""Event logs and their records as text for people, and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from broker.event_log.records import Record

PAYLOAD_SHOWN: Final = 200  # characters of a payload on a line for people


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, the first row its heading. Columns are two blanks apart; numbers stand right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    is_number = [
        all(row[column].replace(",", "").isdigit() for row in rows[1:]) and len(rows) > 1
        for column in range(len(rows[0]))
    ]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def instant(time_ns: int) -> str:
    """ISO 8601 in UTC with milliseconds; "-" for 0."""
    if not time_ns:
        return "-"
    return (
        datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{time_ns // 10**6 % 1000:03d}Z"
    )


def size(count: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float) -> str:
    """The two largest units: `3d 4h`, `5m 12s`."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def printable(text: str) -> str:
    """Text of a client for a terminal: control characters are escaped."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def record_line(node: str, record: Record) -> str:
    """One record for people: time, node, offset, QoS, topic, payload."""
    try:
        payload = printable(record.payload.decode())
    except UnicodeDecodeError:
        payload = f"0x{record.payload[: PAYLOAD_SHOWN // 2].hex()}"
    if len(payload) > PAYLOAD_SHOWN or len(record.payload) > PAYLOAD_SHOWN:
        payload = f"{payload[:PAYLOAD_SHOWN]}… ({len(record.payload)} bytes)"
    retain = " retain" if record.retain else ""
    place = f"{instant(record.time_ns)} {node} {record.offset} qos {record.qos}{retain}"
    return f"{place} {printable(record.topic)} {payload}"


def record_fields(node: str, log_id: str, record: Record) -> dict[str, Any]:
    """One record for JSON, with the columns of the data source. `payload` is text; a payload or correlation data that is
    not UTF-8 is base64 in `payload_base64`, `correlation_data_base64`. What the publisher did not give is left out."""
    fields: dict[str, Any] = {
        "node": node,
        "log": log_id,
        "offset": record.offset,
        "time": record.time_ns,
        "ts": instant(record.time_ns),
        "topic": record.topic,
        **_binary("payload", record.payload),
        "qos": record.qos,
        "retain": record.retain,
    }
    given = {
        "client_id": record.client_id,
        "user_name": record.user_name,
        "content_type": record.content_type,
        "response_topic": record.response_topic,
        "expiry": record.expiry,
        "origin": record.origin,
    }
    fields.update({name: value for name, value in given.items() if value is not None})
    if record.correlation_data is not None:
        fields.update(_binary("correlation_data", record.correlation_data))
    if record.user_properties:
        fields["user_properties"] = [{"key": key, "value": value} for key, value in record.user_properties]
    return fields


def _binary(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
