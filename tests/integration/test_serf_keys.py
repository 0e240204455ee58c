"""Encrypted clusters of real agents and members of this project: rotation from both sides, and who is refused."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from federation.gossip.counters import DropReason
from federation.gossip.keyring import key_text
from federation.serf.events import MemberStatus
from keyed_member import KeyedMember, running
from serf_agent import Agent, needs_serf, running_agent
from waiting import eventually

pytestmark = [needs_serf]

KEYS = [bytes((number,)) * (16, 24, 32)[number % 3] for number in range(3)]


async def listed_by(agent: Agent) -> dict[str, str]:
    """Key -> "members of all", as `serf keys -list` says."""
    return dict(re.findall(r"^(\S+)\s+\[(\d+/\d+)\]$", await agent.command("keys", "-list"), re.MULTILINE))


async def agree(agents: list[Agent], members: list[KeyedMember], *keys: bytes) -> None:
    """Both sides list these keys, all members have them, and each member encrypts with the first one."""
    count = len(agents) + len(members)
    for agent in agents:
        assert await listed_by(agent) == {key_text(key): f"{count}/{count}" for key in keys}
    for member in members:
        status, found = await member.call("GET", "keys")
        assert (status, found["num_responses"], found["num_errors"]) == (200, count, 0)
        assert found["keys"] == {key_text(key): count for key in keys}
        assert member.keys[0] == keys[0]
        assert set(member.keys) == set(keys)
        # Agents before Serf 0.10 do not tell their primary key.
        assert found["primary_keys"].get(key_text(keys[0]), 0) >= len(members)


async def all_alive(agents: list[Agent], members: list[KeyedMember]) -> None:
    names = sorted([agent.name for agent in agents] + [member.name for member in members])

    async def are_listed() -> bool:
        for agent in agents:
            found = await agent.members()
            if sorted(name for name, member in found.items() if member["status"] == "alive") != names:
                return False
        for member in members:
            alive = [found.name for found in member.serf.members() if found.status == MemberStatus.ALIVE]
            if alive != names:
                return False
        return True

    await eventually(are_listed, "all list all as alive")


async def test_keys_are_rotated_from_both_sides(tmp_path: Path) -> None:
    old, new, last = KEYS
    file = tmp_path / "agent.json"
    file.write_text(json.dumps([key_text(old)]))
    file.chmod(0o600)
    first = KeyedMember("ours1", old, path=tmp_path / "ours1.json")
    second = KeyedMember("ours2", old, compression=True)
    members = [first, second]
    async with (
        running_agent("agent1", f"-encrypt={key_text(old)}") as agent1,
        running_agent("agent2", f"-keyring-file={file}") as agent2,
        running(first, second),
    ):
        agents = [agent1, agent2]
        await agent1.command("join", first.address)
        await second.membership.join([f"127.0.0.1:{agent2.port}"])
        await all_alive(agents, members)
        await agree(agents, members, old)

        for path, key in (("keys/install", new), ("keys/use", new), ("keys/remove", old)):
            status, found = await first.call("POST", path, key=key_text(key))
            assert (status, found["num_nodes"], found["num_responses"], found["num_errors"]) == (200, 4, 4, 0), found
        await agree(agents, members, new)

        for option, key in (("-install", last), ("-use", last)):
            assert "uccess" in await agent1.command("keys", f"{option}={key_text(key)}")
        await agree(agents, members, last, new)
        refused = await agent2.command("keys", f"-remove={key_text(last)}")
        assert "4/4 nodes reported failure" in refused
        assert "ours1" in refused
        assert "uccess" in await agent2.command("keys", f"-remove={key_text(new)}")
        await agree(agents, members, last)

        await all_alive(agents, members)
        assert json.loads(file.read_text()) == first.kept() == [key_text(last)]
        for member in members:
            assert member.serf.counters.drops == 0
            assert member.serf.counters.probes_failed == 0


async def test_who_has_no_key_or_another_one_is_refused() -> None:
    async with AsyncExitStack() as stack:
        ours = KeyedMember("ours", KEYS[0])
        await stack.enter_async_context(running(ours))
        agent = await stack.enter_async_context(running_agent("agent", f"-encrypt={key_text(KEYS[0])}"))
        plain = await stack.enter_async_context(running_agent("plain"))
        other = await stack.enter_async_context(running_agent("other", f"-encrypt={key_text(KEYS[2])}"))
        await agent.command("join", ours.address)
        await all_alive([agent], [ours])
        assert ours.serf.counters.drops == 0
        for stranger, reason in ((plain, DropReason.PLAIN), (other, DropReason.WRONG_KEY)):
            assert "Error joining" in await stranger.command("join", ours.address)
            assert ours.serf.counters.dropped[reason] > 0
            assert sorted(await stranger.members()) == [stranger.name]
        await all_alive([agent], [ours])


async def test_an_encrypted_agent_is_refused_by_a_plain_node() -> None:
    ours = KeyedMember("ours")
    async with running(ours), running_agent("agent", f"-encrypt={key_text(KEYS[0])}") as agent:
        assert "Error joining" in await agent.command("join", ours.address)
        assert ours.serf.counters.dropped[DropReason.ENCRYPTED] > 0
        assert ours.serf.alive_others() == 0


@pytest.mark.slow
async def test_an_encrypted_cluster_notices_an_agent_that_is_gone_and_takes_it_back() -> None:
    ours, second = KeyedMember("ours", KEYS[1]), KeyedMember("second", KEYS[1])
    async with running(ours, second), running_agent("stays", f"-encrypt={key_text(KEYS[1])}") as stays:
        await stays.command("join", ours.address)
        async with running_agent("goes", f"-encrypt={key_text(KEYS[1])}") as goes:
            await goes.command("join", ours.address)
            await all_alive([stays, goes], [ours, second])

        def failed() -> bool:
            found = {member.name: member.status for member in ours.serf.members()}
            return found["goes"] == MemberStatus.FAILED and found["stays"] == MemberStatus.ALIVE

        await eventually(failed, "the agent that was killed has failed")
        assert ours.serf.counters.drops == 0
