"""Snapshots of members: a node finds its cluster again after a restart, without seeds; its file and Serf's are the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from federation.serf.snapshot import read_snapshot
from node_process import Node, gossip_address
from serf_agent import Agent, needs_serf, running_agent
from waiting import eventually

if TYPE_CHECKING:
    from node_process import Nodes


def with_snapshot(path: Path, rejoin: bool = False) -> dict[str, object]:
    return {"plugins": {"federation": {"snapshot_path": str(path), "rejoin_after_leave": rejoin}}}


def without_seeds(node: Node) -> None:
    node.config["plugins"]["federation"]["retry_join"] = []


async def has_member(path: Path, name: str) -> None:
    await eventually(lambda: name in read_snapshot(path.read_bytes(), False).members, f"{name} is in {path.name}")


async def test_a_node_that_crashed_finds_the_others_without_seeds(nodes: Nodes, tmp_path: Path) -> None:
    first = await nodes.make_federated().start()
    path = tmp_path / "serf.snapshot"
    second = await nodes.make_federated([first], with_snapshot(path)).start()
    await nodes.all_alive([first, second])
    await has_member(path, first.name)
    await second.kill()
    path.write_bytes(path.read_bytes() + b"alive: torn 127.0.")  # as a crash within a write leaves it
    without_seeds(second)
    await second.start()
    await nodes.all_alive([first, second])
    assert b"torn" not in path.read_bytes()


@pytest.mark.parametrize("rejoin", [False, True])
@pytest.mark.one_process("counts members, and each worker is one")
async def test_a_node_that_was_stopped_joins_again_if_it_is_to(nodes: Nodes, tmp_path: Path, rejoin: bool) -> None:
    first = await nodes.make_federated().start()
    path = tmp_path / "serf.snapshot"
    second = await nodes.make_federated([first], with_snapshot(path, rejoin)).start()
    await nodes.all_alive([first, second])
    await has_member(path, first.name)
    await second.stop()
    assert b"leave\n" in path.read_bytes()
    without_seeds(second)
    await second.start()
    if rejoin:
        await nodes.all_alive([first, second])
    else:
        assert read_snapshot(path.read_bytes(), False).members == {}
        assert list(await second.statuses()) == [second.name]


async def test_a_file_that_is_no_snapshot_ends_the_start(nodes: Nodes, tmp_path: Path) -> None:
    path = tmp_path / "other.yml"
    path.write_text("mqtt: {}\n")
    node = nodes.make_federated([], with_snapshot(path))
    node.spawn()
    assert await node.wait_ended() == 1
    assert "plugins.federation.snapshot_path" in node.log()
    assert path.read_text() == "mqtt: {}\n"


@needs_serf
async def test_a_node_reads_what_an_agent_wrote(nodes: Nodes, tmp_path: Path) -> None:
    async with running_agent("living") as living:
        written = tmp_path / "agent.snapshot"
        async with running_agent("dying", f"-snapshot={written}", f"-join=127.0.0.1:{living.port}") as dying:
            await dying.command("event", "deploy")
            # An agent writes its records when the next one comes, so it makes some until the other one is in the file.
            await eventually(lambda: _writes_through(dying, written), "the agent has written its file")
            dying.process.kill()
            await dying.process.wait()
        path = tmp_path / "serf.snapshot"
        shutil.copy(written, path)
        found = read_snapshot(path.read_bytes(), False)
        assert found.members["living"] == ("127.0.0.1", living.port)
        assert found.unknown == 0
        assert found.clocks[1] > 0
        node = await nodes.make_federated([], with_snapshot(path)).start()
        await nodes.all_alive([node], [node.name, "living"])
        await eventually(lambda: _lists(living, node.name), "the agent lists the node")


async def _writes_through(agent: Agent, path: Path) -> bool:
    await agent.command("event", "more")
    return _is_complete(path)


def _is_complete(path: Path) -> bool:
    if not path.exists():
        return False
    found = read_snapshot(path.read_bytes(), False)
    return "living" in found.members and found.clocks[1] > 0


async def _lists(agent: Agent, name: str) -> bool:
    return await agent.status(name) == "alive"


@needs_serf
async def test_an_agent_reads_what_a_node_wrote(nodes: Nodes, tmp_path: Path) -> None:
    first = await nodes.make_federated().start()
    path = tmp_path / "serf.snapshot"
    second = await nodes.make_federated([first], with_snapshot(path)).start()
    await nodes.all_alive([first, second])
    await has_member(path, first.name)
    await second.kill()
    async with running_agent("agent", f"-snapshot={path}") as agent:
        await nodes.all_alive([first], [first.name, "agent"])
        await eventually(lambda: _lists(agent, first.name), "the agent lists the node")
    assert gossip_address(first) in path.read_text()
