"""What a real `serf agent` takes, drops and writes: rules that the pages of the wire tell, held against the agent alone."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from federation.gossip.counters import Counters
from federation.gossip.keyring import VERSION_PADDED, VERSION_PLAIN, Keyring, key_text
from federation.gossip.messages import ACK, OUR_VERSIONS, Ack, Alive, Ping
from federation.gossip.sealing import PLAIN, Sealing
from federation.gossip.wire import COMPOUND_PARTS_MAX, make_compound, open_packet
from federation.serf.asked_queries import QueryParameters
from federation.serf.messages import ConflictResponse
from federation.serf.snapshot import COMPACT_BYTES_MIN, read_snapshot
from our_member import running_node
from serf_agent import Agent, needs_serf, running_agent
from waiting import DEADLINE, eventually

pytestmark = [needs_serf]

KEY: Final = bytes(range(32))


class Peer:
    """A socket that sends single packets to an agent. `form`: of the last packet that came, its first byte."""

    def __init__(self, agent: Agent, sending: socket.socket, sealing: Sealing) -> None:
        self._agent = agent
        self._socket = sending
        self._sealing = sealing
        self.port: int = sending.getsockname()[1]
        self.form = -1

    def send(self, packet: bytes) -> None:
        self._socket.sendto(packet, ("127.0.0.1", self._agent.port))

    def ping(self, sequence: int, source: str = "") -> bytes:
        return Ping(sequence, self._agent.name, bytes((127, 0, 0, 1)), self.port, source).encode()

    async def acknowledged(self) -> int:
        """The number of the next ack. News of the agent may come with it."""
        loop = asyncio.get_running_loop()
        while True:
            packet = await asyncio.wait_for(loop.sock_recv(self._socket, 65_536), DEADLINE)
            self.form = packet[0]
            for message in open_packet(packet, Counters(), self._sealing):
                if message[0] == ACK:
                    return Ack.decode(message[1:]).sequence


@contextmanager
def peer_of(agent: Agent, sealing: Sealing = PLAIN) -> Iterator[Peer]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.bind(("127.0.0.1", 0))
        sending.setblocking(False)
        yield Peer(agent, sending, sealing)


async def test_an_alive_message_whose_versions_make_no_sense_is_dropped() -> None:
    """Of all other wrong lengths an agent of memberlist before 0.5.4 ends; one without versions it takes. A node drops both."""
    wrong = {"no lowest": (0, 5, 2, 2, 5, 4), "no highest": (1, 0, 2, 2, 5, 4), "upside down": (5, 2, 2, 2, 5, 4)}
    async with running_agent("agent") as agent:
        with peer_of(agent) as peer:
            for name, versions in {**wrong, "right": tuple(OUR_VERSIONS)}.items():
                peer.send(Alive(1, name, bytes((127, 0, 0, 1)), peer.port, b"\xff\x80", bytes(versions)).encode())
            await eventually(lambda: is_listed(agent, "right"), "the agent has read all four")
        assert sorted(await agent.members()) == ["agent", "right"]


async def is_listed(agent: Agent, name: str) -> bool:
    return name in await agent.members()


async def test_an_agent_reads_as_many_parts_of_a_compound_as_a_node_sends_at_most() -> None:
    async with running_agent("agent") as agent:
        with peer_of(agent) as peer:
            count = COMPOUND_PARTS_MAX
            peer.send(make_compound([peer.ping(number) for number in range(count)]))
            assert sorted([await peer.acknowledged() for _ in range(count)]) == list(range(count))
            parts = [peer.ping(number) for number in range(count, 2 * count + 1)]
            lengths = b"".join(len(part).to_bytes(2, "big") for part in parts)
            peer.send(bytes((7, len(parts))) + lengths + b"".join(parts))
            peer.send(peer.ping(1000))
            # memberlist 0.2.2 computes twice the number of parts in eight bits; later releases read up to 255.
            assert await peer.acknowledged() in (1000, count)


async def test_an_agent_opens_what_is_padded_and_seals_without() -> None:
    ring = Keyring([KEY], Random(1))
    async with running_agent("agent", f"-encrypt={key_text(KEY)}") as agent:
        with peer_of(agent, Sealing(ring)) as peer:
            for length in range(16):  # each length of padding
                peer.send(ring.seal(peer.ping(length, "x" * length), b"", VERSION_PADDED))
                assert (await peer.acknowledged(), peer.form) == (length, VERSION_PLAIN)


async def test_an_agent_that_does_not_know_a_name_in_conflict_says_so() -> None:
    async with running_agent("agent") as agent, running_node("ours") as node:
        await node.shell.join([f"127.0.0.1:{agent.port}"])

        async def answers() -> dict[str, bytes]:
            now = asyncio.get_running_loop().time()
            asked = node.serf.query("_serf_conflict", b"nobody", now, QueryParameters(timeout=1.0))
            node.shell.flush()
            await eventually(lambda: asked.is_over or "agent" in asked.responses, "an answer, or the end")
            return asked.responses

        found = await eventually(answers, "the agent answers")
        assert ConflictResponse.decode(found["agent"][1:]) is None


async def _event_comes(lines: asyncio.StreamReader) -> None:
    while b"Event Info" not in await lines.readline():
        pass


async def test_an_agent_tells_of_events_that_may_be_coalesced_the_latest() -> None:
    """So does a node: test_coalescing.py."""
    async with running_agent("agent") as agent, running_node("ours") as node:
        await node.shell.join([f"127.0.0.1:{agent.port}"])
        monitor = await agent.begin("monitor")
        try:
            assert monitor.stdout is not None
            ready = asyncio.create_task(_event_comes(monitor.stdout))
            async with asyncio.timeout(DEADLINE):
                while not ready.done():  # a stream tells nothing of before it began: another event each second
                    node.serf.user_event("ready", b"")
                    node.shell.flush()
                    await asyncio.wait([ready], timeout=1)
            for payload in (b"one", b"two", b"three"):
                node.serf.user_event("deploy", payload, coalesce=True)
                node.serf.user_event("single", payload)
            node.shell.flush()
            events = [""]
            while not ('Name: "deploy"' in events[-1] and "Payload" in events[-1]):  # its values come in any order
                line = (await asyncio.wait_for(monitor.stdout.readline(), DEADLINE)).decode()
                if "Event Info" in line:
                    events.append("")
                events[-1] += line
            assert "".join(events).count('Name: "single"') == 3
            assert f"Payload: []byte{{{', '.join(hex(byte) for byte in b'three')}}}\n" in events[-1]
        finally:
            monitor.kill()
            await monitor.wait()


async def test_a_node_reads_the_snapshot_that_an_agent_has_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "agent.snapshot"
    async with running_agent("living") as living:
        line = f"alive: living 127.0.0.1:{living.port}\n"
        path.write_text(line * (2 * COMPACT_BYTES_MIN // len(line)) + "clock: 7\n")
        async with running_agent("agent", f"-snapshot={path}") as agent:
            await eventually(lambda: is_listed(agent, "living"), "the agent has joined the member of its file")
            await agent.command("event", "deploy")
            await eventually(lambda: path.stat().st_size < COMPACT_BYTES_MIN, "the agent has written its file anew")
            copy = tmp_path / "copy"
            shutil.copy(path, copy)
        found = read_snapshot(copy.read_bytes(), False)
        assert found.members["living"] == ("127.0.0.1", living.port)
        assert found.unknown == 0
        assert found.clocks[0] >= 7


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
async def test_an_agent_and_a_node_at_addresses_of_ipv6() -> None:
    async with running_agent("agent", host="::1") as agent, running_node("ours", host="::1") as node:
        assert await node.shell.join([f"[::1]:{agent.port}"]) == {}
        await eventually(lambda: is_listed(agent, "ours"), "the agent lists the node")
        assert (await agent.members())["ours"]["addr"] == f"[::1]:{node.port}"
        member = node.serf.member("agent")
        assert member is not None
        assert (member.ip, member.port) == ("::1", agent.port)
