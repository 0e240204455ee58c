"""The event loop of a node: that of uvloop, where a timer does not fire before the millisecond of its time."""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Callable
from contextvars import Context
from typing import Final, TypeVarTuple, Unpack

import uvloop

Arguments = TypeVarTuple("Arguments")

TIMER_ROUNDING: Final = 0.0005
"""uvloop rounds delays to whole milliseconds, those below a half to none. A core that is asked before its time names the same
time again: the loop would turn some hundred times until its clock moves, also for `now + 0.001`, which may be more than the
next millisecond by a rounding error."""


class NodeLoop(uvloop.Loop):
    """A callback of `call_at` that comes a rounding error early, and sets itself for the same time again, comes once more."""

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> TimerHandle:
        return super().call_at(when + TIMER_ROUNDING, callback, *args, context=context)
