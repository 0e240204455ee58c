"""The log: both formats, levels, and values that cannot forge a line."""

from __future__ import annotations

import io
import json
import re

import pytest

from broker.config.settings import LogSettings
from broker.server.logging import get_logger, setup_logging

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_text() -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(), stream)
    get_logger("federation").info("peer connected", peer="node2", lag=3, empty="", words="a b")
    line = stream.getvalue()
    assert TIME.match(line)
    assert line[25:] == 'info  federation: peer connected peer=node2 lag=3 empty="" words="a b"\n'


def test_json() -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(format="json"), stream)
    get_logger("server").warning("odd", data=b"\xffx", text="ä\n")
    event = json.loads(stream.getvalue())
    assert TIME.fullmatch(event.pop("time"))
    assert event == {"part": "server", "event": "odd", "level": "warn", "data": "\\xffx", "text": "ä\n"}


def test_json_lines_begin_alike() -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(format="json"), stream)
    get_logger("server").info("odd", a=1, z={"b": 2})
    assert list(json.loads(stream.getvalue())) == ["time", "level", "part", "event", "a", "z"]


def test_lists_and_mappings_are_words_in_text() -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(), stream)
    get_logger("x").info("joined", hosts=["a:1"], errors={"b:2": "Connection refused", "c:3": ["no", b"\xff"]})
    assert stream.getvalue().endswith('x: joined hosts=a:1 errors="b:2: Connection refused, c:3: no, \\\\xff"\n'), (
        stream.getvalue()
    )


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("debug", ["debug", "info", "warn", "error"]),
        ("info", ["info", "warn", "error"]),
        ("warn", ["warn", "error"]),
        ("error", ["error"]),
    ],
)
def test_levels(level: str, shown: list[str]) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(level=level, format="json"), stream)
    log = get_logger("x")
    log.debug("a")
    log.info("a")
    log.warning("a")
    log.error("a")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == shown


def test_a_logger_follows_a_later_setup() -> None:
    log = get_logger("x")
    first, second = io.StringIO(), io.StringIO()
    setup_logging(LogSettings(), first)
    log.info("one")
    setup_logging(LogSettings(level="error", format="json"), second)
    log.info("two")
    log.error("three")
    assert "one" in first.getvalue()
    assert json.loads(second.getvalue())["event"] == "three"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        (r"a\b", r"a\b"),
        ('a"', r'"a\""'),
        ('x" level="error', r'"x\" level=\"error"'),
        ("ends \\", r'"ends \\"'),
        ('a \\" b=c', r'"a \\\" b=c"'),
        ("a b\n", r'"a b\n"'),
    ],
)
def test_a_value_cannot_make_a_field(value: str, shown: str) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(), stream)
    get_logger("x").info("refused", client_id=value, last=1)
    assert stream.getvalue().endswith(f"x: refused client_id={shown} last=1\n")


def test_a_value_cannot_make_a_line() -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(), stream)
    get_logger("x").info("client", client_id="a\n2026 error x: forged\x1b[2J\u2028", data=b"\r\n")
    assert stream.getvalue().count("\n") == 1
    assert "\\n2026" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_value_is_cut(form: str) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(format=form), stream)
    get_logger("x").info("packet", data="x" * 100_000)
    assert len(stream.getvalue()) < 2200
    assert "(100000 characters)" in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_written(form: str) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(format=form), stream)
    try:
        raise OSError("no such thing")
    except OSError as error:
        get_logger("x").error("failed", exc_info=error)
    assert "OSError: no such thing" in stream.getvalue()
    assert "Traceback" in stream.getvalue()
