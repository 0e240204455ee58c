"""Logs and records as text and as JSON."""

from __future__ import annotations

import json

import pytest

from broker.event_log.records import Record
from gmqttctl.text import printable
from pipeline.log_text import record_fields, record_line

TIME = 1_700_000_000_123_456_789
BARE = Record(7, TIME, "a/b", b"hello", 1, False, None, None, None, None, None, [], None, None)
FULL = Record(
    8, TIME, "a/b", b"\xff", 0, True, "c", "u", "text/plain", "re", b"\xfe", [("k", "1"), ("k", "2")], 60, "upstream"
)


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert printable("ä\x1b[31m\n") == "ä\\x1b[31m\\n"
    line = record_line("n", BARE._replace(payload=b"\x1b]0;x\x07"))
    assert "\x1b" not in line
    assert "\x07" not in line


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (BARE, "2023-11-14T22:13:20.123Z n 7 qos 1 a/b hello"),
        (FULL, "2023-11-14T22:13:20.123Z n 8 qos 0 retain a/b 0xff"),
        (BARE._replace(payload=b"x" * 300), f"2023-11-14T22:13:20.123Z n 7 qos 1 a/b {'x' * 200}… (300 bytes)"),
    ],
)
def test_a_record_is_one_line(record: Record, line: str) -> None:
    assert record_line("n", record) == line


def test_json_of_a_record_leaves_out_missing_fields() -> None:
    assert record_fields("n", "log", BARE) == {
        "node": "n",
        "log": "log",
        "offset": 7,
        "time": TIME,
        "ts": "2023-11-14T22:13:20.123Z",
        "topic": "a/b",
        "payload": "hello",
        "qos": 1,
        "retain": False,
    }
    full = record_fields("n", "log", FULL)
    assert (full["payload_base64"], full["correlation_data_base64"]) == ("/w==", "/g==")
    assert "payload" not in full
    assert full["user_properties"] == [{"key": "k", "value": "1"}, {"key": "k", "value": "2"}]
    assert [
        full[name] for name in ("client_id", "user_name", "content_type", "response_topic", "expiry", "origin")
    ] == [
        "c",
        "u",
        "text/plain",
        "re",
        60,
        "upstream",
    ]
    json.dumps(full)
