"""The schedule of crashes for a node with a store: kills at random moments under QoS 1 and 2 traffic with durable sessions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from node_process import LANE_WORKERS, Node
from redis_process import RedisServer
from session_clients import SessionPublisher, SessionSubscriber
from waiting import DEADLINE, eventually

PUBLISHERS: Final = 3
SUBSCRIBERS: Final = 2  # beside one that is away until the end
TRAFFIC_SECONDS: Final = (0.02, 0.6)  # between a start and the next kill


async def crash_again_and_again(
    node: Node, kills: int, seed: int, say: Callable[[str], None], redis: RedisServer | None = None
) -> list[str]:
    """Kill the node `kills` times, and Redis by turns with it. Returns the promises that were broken."""
    rng = random.Random(seed)
    # A publisher may come to another worker with each start, and the former one has messages for sessions of the others.
    is_ordered = LANE_WORKERS == 1
    subscribers = [SessionSubscriber(node.port, f"subscriber{number}", is_ordered) for number in range(SUBSCRIBERS)]
    away = SessionSubscriber(node.port, "away", is_ordered)
    publishers = [SessionPublisher(node.port, f"publisher{number}") for number in range(PUBLISHERS)]
    clients = [*subscribers, away, *publishers]
    try:
        for subscriber in (*subscribers, away):
            subscriber.start()
            await asyncio.wait_for(subscriber.subscribed.wait(), DEADLINE)
        await away.stop()
        for publisher in publishers:
            publisher.start()
        for kill in range(kills):
            await asyncio.sleep(rng.uniform(*TRAFFIC_SECONDS))
            await node.kill()
            if redis is not None and kill % 2:
                redis.kill()
                redis.start()
            await node.start()
            say(
                f"kill {kill + 1} of {kills}: {sum(sum(publisher.sent.values()) for publisher in publishers)} published"
            )
        sent: dict[str, int] = {}
        for publisher in publishers:
            publisher.enough()
            await asyncio.wait_for(publisher.done.wait(), DEADLINE)
            sent.update(publisher.sent)
        away.start()
        for subscriber in (*subscribers, away):
            await eventually(lambda s=subscriber: s.has_all(sent), f"{subscriber.client_id} has the last messages")
    finally:
        for client in clients:
            await client.stop()
    faults = [fault for publisher in publishers for fault in publisher.faults]
    for subscriber in (*subscribers, away):
        faults += subscriber.broken_promises(sent)
    say(
        f"{sum(sent.values())} messages to {len(subscribers) + 1} subscribers, {kills} kills, {len(faults)} broken promises"
    )
    return faults
