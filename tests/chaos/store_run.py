"""`scripts/chaos store`: a node with a store, and Redis with it, is killed again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node_process import Nodes
from redis_process import RedisServer
from store_crashes import crash_again_and_again


@dataclass
class StoreReport:
    """faults  promises that were broken"""

    faults: list[str]

    @property
    def is_clean(self) -> bool:
        return not self.faults

    def lines(self) -> list[str]:
        return self.faults


async def run_store(directory: Path, kills: int, seed: int, has_redis: bool, say: Callable[[str], None]) -> StoreReport:
    nodes = Nodes(directory)
    redis = RedisServer(directory) if has_redis else None
    mqtt = {"max_queued_messages": 1_000_000, "max_queued_bytes": "1GiB"}  # one subscriber is away all the time
    config: dict[str, Any] = {"mqtt": mqtt, "log": {"clients": False}}
    if redis is None:
        config["data_dir"] = str(directory / "data")
    else:
        redis.start()
        config["persistence"] = {"type": "redis", "redis": {"addr": f"127.0.0.1:{redis.port}"}}
    try:
        node = await nodes.start(config)
        faults = await crash_again_and_again(node, kills, seed, say, redis)
        await node.finish()
        return StoreReport(faults + node.unclean)
    finally:
        for node in nodes.all:
            await node.finish()
        if redis is not None:
            redis.kill()
