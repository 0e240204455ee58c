"""Brokers whose durable state is restored into another broker, with another monotonic clock."""

from __future__ import annotations

import random
from typing import Any

from broker.hooks import Forwarder
from broker.store.journal import Journal
from broker.store.restoring import Restoring
from broker.store.store import pack_record, unpack_record
from federation.links.bridging.bridging import bridging_of

WALL_OFFSET = 1_700_000_000.0  # of the first process; an exact number, as all times here, so that floats compare
LATER_BY = 896.0  # how much younger the second monotonic clock is: its machine was started anew


def kept(make_world: Any, **limits: Any) -> Any:
    world = make_world(**limits)
    bridging_of(world.broker)
    world.keep(Journal(), {}, WALL_OFFSET)
    return world


def restored(
    make_world: Any,
    world: Any,
    downtime: float = 0.0,
    set_back: float = 0.0,
    forwarder: Forwarder | None = None,
    **limits: Any,
) -> Any:
    """A new broker that starts `downtime` seconds after the other one stood still. Its wall clock was set back."""
    after = make_world(**limits)
    after.now = world.now - LATER_BY + downtime
    after.broker = type(after.broker)(after.broker.settings, random.Random(1), after.now)
    after.broker.forwarder = forwarder or Forwarder()
    bridging_of(after.broker)
    offset = WALL_OFFSET + LATER_BY - set_back
    restoring = Restoring(after.broker, offset, after.now)
    stored = {number: unpack_record(number, pack_record(record)) for number, record in sorted(world.stored.items())}
    for number, record in stored.items():
        restoring.add(number, record)
    after.keep(restoring.end(), stored, offset)
    return after


def restarted(make_world: Any, world: Any, downtime: float = 0.0, **limits: Any) -> Any:
    after = restored(make_world, world, downtime, **limits)
    after.advance(0.0)
    return after


def member(world: Any, version: int = 5, **options: Any) -> Any:
    """A client whose session stays."""
    if version == 5:
        options = {"expiry": 1000, **options}
    return world.connect("c", version, clean_start=False, auto=False, **options)
