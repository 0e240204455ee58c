"""A broker on virtual time for each test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker_world import World


@pytest.fixture
def world() -> World:
    """With the default limits."""
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    """With limits by name: make_world(max_inflight=3)."""
    return World
