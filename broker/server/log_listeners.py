"""Listeners to the lines of the log, beside its output: plugins that show them to an operator."""

from __future__ import annotations

from collections.abc import Callable, Container

LogListener = Callable[[str, str], None]
"""Is called with the level (debug, info, warn, error) and the line without its end, on the thread that wrote it. It must not
log, and must not raise."""


class LogListeners:
    """Each listener with its lowest level, a number of `logging.LEVELS`, and the parts of the node that it is not told of.
    `changed` is called after each change: the log makes no line that neither its output nor a listener wants."""

    def __init__(self) -> None:
        self._levels: dict[LogListener, int] = {}
        self._unwanted: dict[LogListener, Container[str]] = {}
        self.changed: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._levels)

    def lowest(self, level: int) -> int:
        """The lowest level that a listener wants, or `level` where that is lower."""
        return min((level, *self._levels.values()))

    def listen(self, listener: LogListener, level: int, unwanted: Container[str] = ()) -> None:
        """Tell lines of this level and above from now on, but those of the parts `unwanted`."""
        self._unwanted[listener] = unwanted
        if self._levels.get(listener) != level:
            self._levels[listener] = level
            self.changed()

    def remove(self, listener: LogListener) -> None:
        self._unwanted.pop(listener, None)
        if self._levels.pop(listener, None) is not None:
            self.changed()

    def wanting(self, level: int, part: str) -> list[LogListener]:
        """Those that are to be told of a line of this level and part."""
        return [
            listener
            for listener, lowest in self._levels.items()
            if level >= lowest and part not in self._unwanted[listener]
        ]


LOG_LISTENERS = LogListeners()
