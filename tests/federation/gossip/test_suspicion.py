"""The timeout of a suspicion and its confirmations."""

from __future__ import annotations

import pytest

from federation.gossip.suspicion import Suspicion, confirmations_wanted, suspicion_timeout


@pytest.mark.parametrize(("count", "timeout"), [(1, 4.0), (3, 4.0), (10, 4.0), (100, 8.0), (50, 6.792), (1000, 12.0)])
def test_suspicion_timeout_grows_with_the_logarithm(count: int, timeout: float) -> None:
    assert suspicion_timeout(4, count, 1.0) == pytest.approx(timeout)  # LAN; wire-gossip 6.3


@pytest.mark.parametrize(("count", "wanted"), [(2, 0), (3, 0), (4, 2), (5, 2), (100, 2)])
def test_confirmations_wanted(count: int, wanted: int) -> None:
    assert confirmations_wanted(4, count) == wanted


def test_confirmations_shorten_a_suspicion() -> None:
    suspicion = Suspicion(1, "a", 2, 4.0, 24.0, 100.0)
    assert suspicion.deadline == 124.0
    assert not suspicion.confirm("a")
    assert suspicion.confirm("b")
    assert suspicion.deadline == pytest.approx(100 + 11.381)
    assert suspicion.confirm("c")
    assert suspicion.deadline == 104.0
    assert not suspicion.confirm("d")


def test_suspicion_without_wanted_confirmations_is_short() -> None:
    suspicion = Suspicion(1, "a", 0, 4.0, 24.0, 0.0)
    assert suspicion.deadline == 4.0
    assert not suspicion.confirm("b")
