"""Stores that a federation refuses: one that was copied to a second node, and one with records that no node has written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from broker.store.kinds import POSITION
from broker.store.sqlite_store import SqliteStore
from broker.store.store import pack_record
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Nodes


async def test_the_second_node_with_one_store_stops_and_says_so(nodes: Nodes, tmp_path: Path) -> None:
    first = nodes.make_federated([], {"data_dir": str(tmp_path / "first")})
    second = nodes.make_federated([first], {"data_dir": str(tmp_path / "second")})
    await first.start()
    await first.stop()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    await first.start()
    second.spawn()
    assert await second.wait_ended() == 1
    assert "two nodes have one store id" in second.log()
    await first.logged("two nodes have one store id")

    async def is_ready() -> bool:
        return (await first.rest_text("GET", "/readyz"))[0] == 200

    await eventually(is_ready, "the first node goes on, and is ready")


async def test_a_record_of_another_node_with_other_values_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.make_federated([], {"data_dir": str(tmp_path / "data")})
    await node.start()
    await node.stop()
    store = SqliteStore(tmp_path / "data")
    store.open()
    store.commit([(1_000, pack_record((POSITION, "store", "one", 0)))])
    store.close()
    node.spawn()
    assert await node.wait_ended() == 1
    assert "persistence: a record of another node" in node.log()
