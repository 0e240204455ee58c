"""Kills at random moments, the short form of `scripts/chaos store`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redis_process import REDIS_MISSING, REDIS_SERVER, RedisServer
from store_crashes import crash_again_and_again

if TYPE_CHECKING:
    from node_process import Nodes

LARGE_QUEUE = {"max_queued_messages": 1_000_000}


async def test_kills_break_no_promise(nodes: Nodes, tmp_path: Path) -> None:
    node = await nodes.start({"data_dir": str(tmp_path / "data"), "mqtt": LARGE_QUEUE})
    assert await crash_again_and_again(node, 4, 1, print) == []


@pytest.mark.skipif(REDIS_SERVER is None, reason=REDIS_MISSING)
@pytest.mark.slow
async def test_kills_of_node_and_redis_break_no_promise(nodes: Nodes, tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    redis.start()
    try:
        store = {"type": "redis", "redis": {"addr": f"127.0.0.1:{redis.port}"}}
        node = await nodes.start({"persistence": store, "mqtt": LARGE_QUEUE})
        assert await crash_again_and_again(node, 4, 2, print, redis) == []
        await node.stop()
    finally:
        redis.kill()
