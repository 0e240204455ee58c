"""The command `serf` of Debian's package against nodes of this project, over `rpc_addr`."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from node_process import free_port
from waiting import DEADLINE, eventually

if TYPE_CHECKING:
    from node_process import Node, Nodes

SERF = shutil.which("serf")

pytestmark = [
    pytest.mark.skipif(SERF is None, reason="the program `serf` (Debian package serf) is not installed"),
]

AUTH = "a key for tests"


class Operator:
    """Runs `serf` against one node."""

    def __init__(self, node: Node, rpc_port: int, auth: str) -> None:
        self.node = node
        self._options = [f"-rpc-addr=127.0.0.1:{rpc_port}", f"-rpc-auth={auth}"]

    async def begin(self, command: str, *arguments: str) -> asyncio.subprocess.Process:
        assert SERF is not None
        return await asyncio.create_subprocess_exec(
            SERF,
            command,
            *self._options,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def fails(self, command: str, *arguments: str) -> tuple[int, str]:
        process = await self.begin(command, *arguments)
        output, _ = await asyncio.wait_for(process.communicate(), DEADLINE)
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def run(self, command: str, *arguments: str) -> str:
        status, output = await self.fails(command, *arguments)
        assert status == 0, output
        return output

    async def members(self, *arguments: str) -> dict[str, dict[str, Any]]:
        found = json.loads(await self.run("members", "-format=json", *arguments))["members"] or []
        return {member["name"]: member for member in found}


async def operators(nodes: Nodes, count: int, **federation: object) -> list[Operator]:
    """Nodes in one cluster, and one operator for each."""
    made: list[Node] = []
    found: list[Operator] = []
    for _ in range(count):
        port = free_port()
        settings = {"rpc_addr": f"127.0.0.1:{port}", "rpc_auth": AUTH, **federation}
        node = nodes.make_federated(made[:1], {"plugins": {"federation": settings}})
        made.append(node)
        found.append(Operator(node, port, AUTH))
    for node in made:
        await node.start()
    await nodes.all_alive(made)
    return found


async def lines_until(process: asyncio.subprocess.Process, *wanted: str) -> list[str]:
    """Lines of a command that runs on, until each of these texts was in one."""
    assert process.stdout is not None
    missing = list(wanted)
    lines: list[str] = []
    async with asyncio.timeout(DEADLINE):
        while missing:
            line = (await process.stdout.readline()).decode()
            assert line, f"ended without {missing}: {lines}"
            lines.append(line)
            missing = [text for text in missing if text not in line]
    return lines


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


@pytest.mark.one_process("counts members, and each worker is one")
async def test_members_info_tags_rtt_and_reachability(nodes: Nodes) -> None:
    first, second, third = await operators(nodes, 3)
    members = await first.members()
    assert {name: member["status"] for name, member in members.items()} == dict.fromkeys(
        ("node1", "node2", "node3"), "alive"
    )
    assert members["node2"]["protocol"] == {"max": 5, "min": 2, "version": 4}
    assert members["node2"]["addr"] == second.node.config["plugins"]["federation"]["gossip_addr"]
    assert "node2" in await first.run("members", "-detailed")

    assert list(await first.members("-name=node[12]")) == ["node1", "node2"]
    assert list(await first.members(r"-name=[[:alpha:]]+2\z", "-status=(?i)ALIVE")) == ["node2"]
    assert list(await first.members("-name=node1|x")) == ["node1"]  # as an agent: `^node1` or `x$`
    assert await first.members("-status=failed") == {}
    assert "successfully" in (await second.run("tags", "-set=rack=b7", "-set=color=red")).lower()
    await eventually(lambda: tagged(first, "node2", {"rack": "b7", "color": "red"}), "node1 sees the tags")
    assert list(await first.members("-tag=rack=b.")) == ["node2"]
    await second.run("tags", "-delete=color")
    await eventually(lambda: tagged(first, "node2", {"rack": "b7", "color": None}), "the tag is gone")
    status, output = await second.fails("tags", "-set=fed_addr=127.0.0.1:1")
    assert (status, "node's own" in output) == (1, True)

    info = await first.run("info")
    for text in ("name = node1", "members = 3", "encrypted = false", "health_score = 0", "fed_addr = "):
        assert text in info
    assert "contacted all live nodes" in await third.run("reachability")

    async def estimates() -> bool:
        status, output = await first.fails("rtt", "node2", "node3")
        return status == 0 and "rtt: " in output

    await eventually(estimates, "node1 has coordinates of both")
    assert "rtt: " in await first.run("rtt", "node2")
    status, output = await first.fails("rtt", "nobody")
    assert (status, "nobody" in output) == (1, True)


async def tagged(operator: Operator, name: str, wanted: dict[str, str | None]) -> bool:
    tags = (await operator.members())[name]["tags"]
    return all(tags.get(tag) == value for tag, value in wanted.items())


@pytest.mark.one_process("counts members, and each worker is one")
async def test_events_queries_and_a_monitor(nodes: Nodes) -> None:
    first, second = await operators(nodes, 2)
    monitor = await second.begin("monitor", "-log-level=info")
    debugging = await second.begin("monitor", "-log-level=debug")
    try:
        await lines_until(debugging, "federation started")  # a join at once comes before the RPC listens
        fed_addr = second.node.config["plugins"]["federation"]["fed_addr"]
        host, _, port = fed_addr.rpartition(":")
        _, stranger = await asyncio.open_connection(host, int(port))
        stranger.write(b"no stream of events\r\n\r\n")
        await lines_until(debugging, "is not an event stream")  # the node's own log has the level info
        stranger.close()
        await lines_until(monitor, "federation started")  # of the backlog
        await first.run("event", "-coalesce=false", "deploy", "at noon")
        await first.run("event", "notice", "coalesced")
        told = await lines_until(monitor, "deploy", "notice")
        assert any("0x6e, 0x6f, 0x6f, 0x6e" in line for line in told), told  # "noon", as `serf` prints it
        output = await first.run("query", "-timeout=3s", "load", "1m")
        assert "Query 'load' dispatched" in output
        assert "Total Acks: 2" in output
        assert "Total Responses: 0" in output
        await lines_until(monitor, "load")
        output = await first.run("query", "-timeout=2s", "-node=node2", "-no-ack", "load")
        assert "Ack from" not in output
        output = await first.run("query", "-timeout=2s", "-tag=fed_addr=^nowhere", "load")
        assert "Total Acks: 0" in output
        status, output = await first.fails("query", "_serf_conflict", "node1")
        assert (status, "prefix" in output) == (1, True)
        status, output = await first.fails("event", "-coalesce=false", "long", "x" * 600)
        assert (status, "512" in output) == (1, True)
        assert "is not an event stream" not in second.node.log()
    finally:
        await ended(monitor)
        await ended(debugging)


@pytest.mark.one_process("lets a node leave, which one with workers refuses")
async def test_join_leave_and_force_leave(nodes: Nodes) -> None:
    first, second = await operators(nodes, 2)
    (third,) = await operators(nodes, 1)
    third_addr = third.node.config["plugins"]["federation"]["gossip_addr"]
    status, output = await first.fails("join", "127.0.0.1:1")
    assert (status, "refused" in output) == (1, True)
    assert "Successfully joined cluster by contacting 1 nodes" in await first.run("join", third_addr)
    await eventually(lambda: has_status(second, "node3", "alive"), "node2 knows node3")

    assert "Graceful leave complete" in await third.run("leave")
    await eventually(lambda: has_status(first, "node3", "left"), "node3 has left")
    assert (await third.members())["node3"]["status"] == "left"
    assert third.node.serves()  # its clients stay
    await third.run("join", str(first.node.config["plugins"]["federation"]["gossip_addr"]))
    await eventually(lambda: has_status(first, "node3", "alive"), "node3 is back")

    await third.node.kill()
    for operator in (first, second):
        await eventually(lambda one=operator: has_status(one, "node3", "failed"), "node3 has failed")
    await first.run("force-leave", "node3")
    for operator in (first, second):
        await eventually(lambda one=operator: has_status(one, "node3", "left"), "node3 is given up")
    await first.run("force-leave", "-prune", "node3")
    for operator in (first, second):
        await eventually(lambda one=operator: is_forgotten(one, "node3"), "node3 is forgotten")
    status, output = await first.fails("force-leave", "node1")
    assert (status, "itself" in output) == (1, True)


async def is_forgotten(operator: Operator, name: str) -> bool:
    return name not in await operator.members()


async def has_status(operator: Operator, name: str, status: str) -> bool:
    return (await operator.members()).get(name, {}).get("status") == status


@pytest.mark.one_process("counts members, and each worker is one")
async def test_keys_are_listed_and_rotated(nodes: Nodes) -> None:
    assert SERF is not None
    first_key, second_key = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    first, second = await operators(nodes, 2, encrypt_keys=[first_key])
    assert "encrypted = true" in await first.run("info")
    listed = await first.run("keys", "-list")
    assert [first_key, "[2/2]"] in [line.split() for line in listed.splitlines()]
    status, output = await first.fails("keys", "-use", second_key)
    assert (status, "2/2 nodes reported failure" in output) == (1, True)
    for command in ("-install", "-use"):
        await first.run("keys", command, second_key)
    await second.run("keys", "-remove", first_key)
    listed = await second.run("keys", "-list")
    assert [second_key, "[2/2]"] in [line.split() for line in listed.splitlines()]
    assert first_key not in listed
    assert "contacted all live nodes" in await first.run("reachability")
    status, output = await first.fails("keys", "-install", "bm8ga2V5")
    assert (status, "16, 24 or 32" in output) == (1, True)


async def test_a_wrong_key_and_none_are_refused(nodes: Nodes) -> None:
    (operator,) = await operators(nodes, 1)
    port = operator.node.config["plugins"]["federation"]["rpc_addr"].rpartition(":")[2]
    for auth, words in (("wrong", "Invalid authentication token"), ("", "Authentication required")):
        stranger = Operator(operator.node, int(port), auth)
        status, output = await stranger.fails("members")
        assert (status, words in output) == (1, True), output
    assert "node1" in await operator.members()
