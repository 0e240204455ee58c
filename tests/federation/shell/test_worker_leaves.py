"""When a worker that leaves ends: not while it has what the others do not have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from broker.session.group_queues import GroupQueues
from federation.membership import FederationMembership
from federation.sessions.drain import DRAINED
from federation.shell.drain import DrainControl
from federation.shell.worker_leaves import WorkerLeaves
from federation.tags import DRAINING_OVER, TAG_DRAINING
from simulator.federation import Federation
from simulator.node_store import Disk


class Log:
    def __init__(self) -> None:
        self.waits_for: list[str] = []

    def info(self, text: str, waits_for: str, **more: Any) -> None:
        self.waits_for.append(waits_for)


class Tags:
    """A membership that has all that is asked of it here."""

    def set_state_tags(self, tags: dict[str, str]) -> None:
        assert tags == {TAG_DRAINING: DRAINING_OVER}


async def test_it_waits_for_messages_that_stay_at_their_node() -> None:
    federation = Federation(1, 2, each=[{"disk": Disk()}, {"disk": Disk()}])
    federation.until_agreement(30.0, "the start")
    host = federation.hosts[0]
    process = federation.node(host)
    now = federation.world.now
    queue = GroupQueues(process.broker).declare(b"workers", b"jobs/#", 100, 10**6, 0.0, now)
    process.publish("jobs/1", b"1", now)
    drain = process.node.drain
    assert drain is not None
    process.begin_drain(500, now)
    federation.world.run_until(lambda: drain.state == DRAINED, 60.0, "the node is drained")
    ended: list[str] = []
    log = Log()
    control = DrainControl(process.node, cast("FederationMembership", Tags()), lambda: now, lambda: None, log)
    leaves = WorkerLeaves(control, ended.append, log)
    drain.since = asyncio.get_running_loop().time() - 60.0
    leaves.start()
    leaves.stop()
    assert not ended
    (text,) = log.waits_for
    assert queue.client_id in text
    assert queue.queue is not None
    queue.queue.clear()
    leaves.start()
    assert len(ended) == 1
