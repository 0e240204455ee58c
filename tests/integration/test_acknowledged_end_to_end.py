"""What was acknowledged reaches the durable sessions of all nodes, whichever nodes are killed while others stand still."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from node_process import LANE_WORKERS, gossip_address
from session_clients import SessionPublisher, SessionSubscriber
from waiting import DEADLINE, eventually, stand_still

if TYPE_CHECKING:
    from node_process import Node, Nodes

RATE: Final = 400.0  # messages a second of each publisher
# Of one publisher, until something happens to its node. A node that stands still has the first 64 blocks in its socket, and
# reads them when it goes on.
ENOUGH: Final = 600
# A client waits so long for the worker with its session, which a busy machine starts later.
STARTUP_WAIT: Final = "1s" if LANE_WORKERS == 1 else "5s"
CONFIG: Final = {
    "mqtt": {"max_queued_messages": 1_000_000, "publisher_hold_max": f"{DEADLINE:.0f}s"},
    "plugins": {"federation": {"startup_wait": STARTUP_WAIT}},
}


# By node. One of QoS 2 has the outbox stored, with all that is of QoS 1 in it: some node must have none.
LEVELS: Final = ((1,), (2,), (1, 2))


class Traffic:
    """One publisher and one durable subscriber on each node."""

    def __init__(self, nodes: list[Node]) -> None:
        # A publisher whose node was killed may come to another worker of it, and the first one has messages for the node
        # that stands still.
        is_ordered = LANE_WORKERS == 1
        self.subscribers = [SessionSubscriber(node.port, f"subscriber {node.name}", is_ordered) for node in nodes]
        self.publishers = [
            SessionPublisher(node.port, node.name, levels, RATE) for node, levels in zip(nodes, LEVELS, strict=True)
        ]

    async def start(self) -> None:
        for subscriber in self.subscribers:
            subscriber.start()
            await asyncio.wait_for(subscriber.subscribed.wait(), DEADLINE)
        for publisher in self.publishers:
            publisher.start()

    async def goes_on(self, *publishers: SessionPublisher) -> None:
        """Each of them gets acknowledgements from now on."""
        for publisher in publishers:
            stop = sum(publisher.sent.values()) + ENOUGH
            await eventually(
                lambda p=publisher, s=stop: sum(p.sent.values()) >= s,
                f"messages of {publisher.client_id} are acknowledged",
            )

    async def end(self) -> list[str]:
        """Publish no more. Returns the promises that were broken."""
        sent: dict[str, int] = {}
        for publisher in self.publishers:
            publisher.enough()
            await asyncio.wait_for(publisher.done.wait(), DEADLINE)
            sent.update(publisher.sent)
        faults = [fault for publisher in self.publishers for fault in publisher.faults]
        for subscriber in self.subscribers:
            try:
                await eventually(lambda s=subscriber: s.has_all(sent), f"{subscriber.client_id} has the last messages")
            except AssertionError as error:
                missing = [fault for other in self.subscribers for fault in other.broken_promises(sent)]
                raise AssertionError("\n".join([str(error), *missing])) from error
            faults += subscriber.broken_promises(sent)
        return faults

    async def stop(self) -> None:
        await asyncio.gather(*(client.stop() for client in (*self.subscribers, *self.publishers)))


async def start_nodes(nodes: Nodes, tmp_path: Path) -> list[Node]:
    """Three nodes with stores, which find each other whichever starts first."""
    made: list[Node] = []
    for number in range(3):
        config: dict[str, Any] = {**CONFIG, "data_dir": str(tmp_path / f"data{number}")}
        made.append(nodes.make_federated([], config))
    for node in made:
        others = [gossip_address(other) for other in made if other is not node]
        node.config["plugins"]["federation"]["retry_join"] = others
    await asyncio.gather(*(node.start() for node in made))
    await nodes.all_alive(made)
    return made


async def test_nodes_are_killed_while_another_one_stands_still_and_all_at_once(nodes: Nodes, tmp_path: Path) -> None:
    first, second, third = made = await start_nodes(nodes, tmp_path)
    clients = Traffic(made)
    try:
        await clients.start()
        await clients.goes_on(*clients.publishers)
        stopped = third.processes()
        for process in stopped:
            await stand_still(process)
        await clients.goes_on(*clients.publishers[:2])  # for the third node in the outboxes of these
        await first.kill()
        await clients.goes_on(clients.publishers[1])
        await second.kill()
        await asyncio.gather(first.start(), second.start())
        await clients.goes_on(*clients.publishers[:2])
        for process in stopped:
            os.kill(process, signal.SIGCONT)
        await clients.goes_on(*clients.publishers)
        await asyncio.gather(*(node.kill() for node in made))
        await asyncio.gather(*(node.start() for node in made))
        await clients.goes_on(*clients.publishers)
        assert await clients.end() == []
    finally:
        await clients.stop()
