"""Fixtures of brokers that know links."""

import pytest

from broker_world import World
from federation.links.bridging.bridging import bridging_of


@pytest.fixture
def world() -> World:
    """With the default limits, and without a name of its domain."""
    made = World()
    bridging_of(made.broker)
    return made
