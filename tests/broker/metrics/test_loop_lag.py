"""The lateness of a loop whose time the test sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from broker.metrics.plugin import WINDOW_SECONDS, LoopLag


class Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """The part of an event loop that is used."""

    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Callable[..., Any], tuple[Any, ...], Handle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        handle = Handle()
        self.calls.append((when, callback, args, handle))
        return handle

    def fire(self, late: float) -> None:
        """Call the timer `late` seconds after it is due."""
        when, callback, args, _ = self.calls.pop()
        self.now = when + late
        callback(*args)


def test_the_longest_lateness_is_shown_for_one_to_two_windows() -> None:
    loop = Loop()
    lag = LoopLag(cast(Any, loop))
    lag.start()
    loop.fire(0.25)
    assert (lag.last, lag.longest) == (0.25, 0.25)
    shown_until = loop.now
    while lag.longest == 0.25:
        shown_until = loop.now
        loop.fire(0.0)
        assert lag.last == 0.0
    assert WINDOW_SECONDS <= shown_until - 101.25 <= 2 * WINDOW_SECONDS
    assert lag.longest == 0.0


def test_a_stop_ends_the_timer() -> None:
    loop = Loop()
    lag = LoopLag(cast(Any, loop))
    lag.stop()
    lag.start()
    lag.stop()
    assert [handle.cancelled for *_, handle in loop.calls] == [True]
