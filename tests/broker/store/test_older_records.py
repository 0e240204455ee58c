"""Records that older nodes have written."""

from __future__ import annotations

from typing import Any

import pytest

from broker.store.offline import import_lines
from broker.store.restoring import Restoring
from broker.store.store import pack_record, unpack_record
from federation.links.bridging.bridging import bridging_of
from repository import ROOT

WALL_OFFSET = 1_700_000_000.0  # of the first process; an exact number, as all times here, so that floats compare


@pytest.mark.parametrize(("name", "links", "wants", "headers"), [("version1", 0, 0, 0), ("version1-links", 1, 1, 2)])
def test_the_records_of_older_nodes_are_restored(
    make_world: Any, name: str, links: int, wants: int, headers: int
) -> None:
    """Files that stay as a node of that time has exported them. Those of before there were links have none."""
    world = make_world()
    bridging_of(world.broker)
    restoring = Restoring(world.broker, WALL_OFFSET, world.now)
    lines = (ROOT / "tests" / "data" / "stores" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for number, record in import_lines(lines):
        restoring.add(number, unpack_record(number, pack_record(record)))
    restoring.end()
    sessions = list(world.broker.sessions.values())
    subscriptions = [subscription for session in sessions for subscription in session.subscriptions.values()]
    waiting = {out.message for session in sessions for out in session.queued() if out.message is not None}
    for session in sessions:
        if session.inflight is not None:
            waiting |= {out.message for out in session.inflight.messages() if out.message is not None}
    assert sessions
    assert sum(session.bridge_end is not None for session in sessions) == links
    assert sum(subscription.along != () for subscription in subscriptions) == wants
    assert sum(message.origin is not None for message in [*waiting, *world.broker.retained.messages()]) == headers
