"""The log: structured events on standard error, as lines of text or of JSON.

    log = get_logger("federation")
    log.info("peer connected", peer="node2", session_id="…")

`setup_logging` may be called again (a reload); it changes existing loggers too.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

if "rich" not in sys.modules:
    # structlog imports rich, where it is installed, for tracebacks in colours. A node prints none: an eighth of its start.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog
    finally:
        del sys.modules["rich"]
import structlog

from broker.config.settings import LogSettings
from broker.server.log_listeners import LOG_LISTENERS
from broker.server.log_output import LogOutput

LEVELS: Final = {"debug": 10, "info": 20, "warn": 30, "error": 40}
VALUE_CHARACTERS_MAX: Final = 2000  # of one value in a line; clients choose the length of some values

_process_fields: dict[str, Any] = {}  # in each line of this process
_standard_error: LogOutput | None = None  # one for the whole process, because it counts lost lines


def setup_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Write lines of the given level and above to the stream; None is standard error."""
    global _standard_error  # noqa: PLW0603
    if stream is not None:
        output = LogOutput(stream)
    else:
        output = _standard_error = _standard_error or LogOutput()

    def add_lost(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if output.lost > output.told:
            event["lines_lost_before"] = output.lost - output.told
        return event

    level = LEVELS[settings.level]

    def drop_lower(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Drop what listeners alone wanted."""
        if LEVELS[event["level"]] < level:
            raise structlog.DropEvent
        return event

    def filter_lines() -> None:
        if structlog.get_config()["processors"] is processors:  # else somebody else has set the log up since
            wrapper = structlog.make_filtering_bound_logger(LOG_LISTENERS.lowest(level))
            structlog.configure(wrapper_class=wrapper)  # the rest stays

    processors: list[Any] = [_add_level, _add_time, add_lost]
    if _process_fields:
        processors.insert(0, _add_process_fields)
    processors += [structlog.processors.format_exc_info, _tell_listeners, drop_lower]
    if settings.format == "json":
        json_renderer = structlog.processors.JSONRenderer(default=_plain)
        processors += [_order, json_renderer]
    else:
        processors.append(TextRenderer(colours=output.isatty()))
    structlog.configure(processors=processors, logger_factory=lambda *_: output, cache_logger_on_first_use=False)
    LOG_LISTENERS.changed = filter_lines
    filter_lines()


def get_logger(name: str) -> Any:
    """A logger that adds `part=name` to each event. Its methods take an event and keyword values."""
    return structlog.get_logger(part=name)


def name_process(**fields: Any) -> None:
    """Have each line from the next `setup_logging` on tell these fields, which say what process it is of."""
    _process_fields.update(fields)


def _add_process_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.update(_process_fields)
    return event


def _add_level(_logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    names = {"warning": "warn", "exception": "error", "critical": "error"}
    event["level"] = names.get(method, method)
    return event


def _add_time(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["time"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    return event


def _tell_listeners(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    listeners = LOG_LISTENERS.wanting(LEVELS[event["level"]], event.get("part", ""))
    if listeners:
        line = TextRenderer(colours=False)(logger, method, dict(event))
        for listener in listeners:
            listener(event["level"], line)
    return event


def _order(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put the same keys first in every JSON line, for people who read them, and cut long values."""
    first = {name: event.pop(name) for name in ("time", "level", "part", "event") if name in event}
    rest = {
        name: _cut(_plain(value)) if isinstance(value, str | bytes) and name != "exception" else value
        for name, value in event.items()
    }
    return first | rest


def _words(value: Any) -> str:
    """A value in a text line, without the punctuation of Python."""
    if isinstance(value, dict):
        return ", ".join(f"{_plain(name)}: {_words(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_words(inner) for inner in value)
    return _plain(value)


def _plain(value: Any) -> str:
    """A value that JSON does not know."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


class TextRenderer:
    """`TIME LEVEL PART: EVENT key=value …`, one line an event; only a traceback takes more."""

    COLOURS: Final = {"debug": "\x1b[2m", "info": "\x1b[32m", "warn": "\x1b[33m", "error": "\x1b[31m"}
    RESET: Final = "\x1b[0m"

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        level = event.pop("level")
        part = event.pop("part", "")
        traceback = event.pop("exception", None)
        shown_level = f"{level:<5}"
        if self._colours:
            shown_level = f"{self.COLOURS.get(level, '')}{shown_level}{self.RESET}"
        pieces = [event.pop("time"), shown_level, f"{part}:" if part else "", _one_line(str(event.pop("event", "")))]
        pieces += [f"{key}={quoted_text(value)}" for key, value in event.items()]
        line = " ".join(piece for piece in pieces if piece)
        return f"{line}\n{traceback}" if traceback else line


def short_text(value: Any) -> str:
    """A value without the punctuation of Python, at most VALUE_CHARACTERS_MAX of it."""
    if isinstance(value, bytes) and len(value) > VALUE_CHARACTERS_MAX:
        return f"{_plain(value[:VALUE_CHARACTERS_MAX])}… ({len(value)} bytes)"
    return _cut(_words(value))


def quoted_text(value: Any) -> str:
    """Return a value as a line of text has it: in quotes where its end would not be seen, with quotes and backslashes in it
    escaped then, so that a client cannot write fields of its own into a line."""
    text = _cut(_words(value))
    if text and not any(mark in text for mark in ' ="'):
        return _one_line(text)
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_one_line(text)}"'


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text)} characters)"


def _one_line(text: str) -> str:
    """Control characters as escapes, so that a client cannot write lines of its own into the log."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
