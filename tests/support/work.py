"""Work in executed lines: a measure of cost that is the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(action: Callable[[], object]) -> int:
    """Lines of Python that the call executes, including those of called functions. Compiled code has none."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    collects = gc.isenabled()
    gc.disable()  # the lines of finalizers are not those of the call
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
