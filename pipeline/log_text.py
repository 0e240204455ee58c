"""The records of event logs as text for people, and as JSON."""

from __future__ import annotations

import base64
from typing import Any, Final

from broker.event_log.records import Record
from gmqttctl.text import instant, printable

PAYLOAD_SHOWN: Final = 200  # characters of a payload on a line for people


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
