"""Signals within half a second are one request for a stop; a later one forces the end."""

from __future__ import annotations

from broker.server.stop_signals import SAME_REQUEST_SECONDS, StopSignals, Wish


def test_the_first_signal_asks_for_the_stop() -> None:
    assert StopSignals().receive(100.0) is Wish.STOP


def test_signals_that_come_together_are_one_request() -> None:
    signals = StopSignals()
    received = [signals.receive(at) for at in (100.0, 100.0, 100.0 + SAME_REQUEST_SECONDS * 0.9)]
    assert received == [Wish.STOP, Wish.NOTHING, Wish.NOTHING]


def test_a_later_signal_forces_the_end() -> None:
    signals = StopSignals()
    signals.receive(100.0)
    signals.receive(100.1)
    assert signals.receive(100.0 + SAME_REQUEST_SECONDS) is Wish.END_NOW
