"""Listeners to the lines of the log, beside its output: plugins that show them to an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LOG_LISTENERS: Final[list[Callable[[str, str], None]]] = []
"""Each is called with the level (debug, info, warn, error) and the line without its end, on the thread that wrote it. It must
not log, and must not raise."""
