"""The gossip shell over real loopback sockets: joins, bad input, ports in use, retry_join, a killed stream."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from federation.errors import JoinFailed
from federation.gossip.addresses import Networks
from federation.gossip.config import GossipConfig
from federation.gossip.counters import Counters, DropReason
from federation.gossip.exchange import IncomingStream
from federation.gossip.members import STATE_ALIVE
from federation.gossip.merging import SLICE_NODES as MERGED_NODES
from federation.gossip.messages import OUR_VERSIONS, PUSH_PULL, Ping, PushPullNode
from federation.gossip.msgpack_fields import encode
from federation.gossip.streams import SLICE_NODES
from federation.gossip.wire import open_packet
from federation.serf.config import SerfConfig
from federation.serf.events import Event, MemberEvent, MemberFailed, MemberJoin, MemberLeave
from federation.serf.leaving import SerfPhase
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import GossipSockets, bind_gossip
from waiting import DEADLINE, eventually

FAST = GossipConfig(
    probe_interval=0.2,
    probe_timeout=0.1,
    indirect_checks=1,
    suspicion_mult=2,
    gossip_interval=0.02,
    push_pull_interval=15.0,
    gossip_to_the_dead_time=15.0,
    tcp_timeout=2.0,
)


class Log:
    """Gives level, event and details of each line to `write`."""

    def __init__(self, write: Callable[[str, str, dict[str, object]], None]) -> None:
        self._write = write

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **details: self._write(level, event, details)


class Node:
    def __init__(
        self,
        name: str,
        profile: GossipConfig,
        retry: list[str] | None = None,
        sockets: GossipSockets | None = None,
    ) -> None:
        if sockets is None:
            sockets = bind_gossip("127.0.0.1", 0)
        self.port = sockets.port
        self.events: list[Event] = []
        self.logged: list[tuple[str, str, dict[str, object]]] = []
        self.on_events: Callable[[int], None] = lambda _count: None
        self._happened = asyncio.Event()
        now = asyncio.get_running_loop().time()
        config = SerfConfig(name, "127.0.0.1", sockets.port, {"name": name}, profile, leave_propagate_delay=0.1)
        self.serf = Serf(config, random.Random(name), now)
        retry_join = RetryJoin(retry, 0.1, 0.3, now) if retry else None
        self.shell = GossipShell(self.serf, sockets, self._on_events, Log(self._log), retry_join)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _log(self, level: str, event: str, details: dict[str, object]) -> None:
        self.logged.append((level, event, details))
        self._happened.set()

    def _on_events(self, events: list[Event]) -> None:
        self.events += events
        self.on_events(len(events))
        self._happened.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for events or log lines until the condition holds."""
        async with asyncio.timeout(DEADLINE):
            while not condition():
                self._happened.clear()
                await self._happened.wait()

    async def event(self, kind: type[MemberEvent], name: str) -> None:
        await self.until(lambda: any(isinstance(event, kind) and event.member.name == name for event in self.events))

    def statuses(self) -> dict[str, str]:
        return {member.name: member.status.name for member in self.serf.members()}


@asynccontextmanager
async def running(
    *names: str, retry: list[str] | None = None, profile: GossipConfig = FAST
) -> AsyncIterator[list[Node]]:
    nodes = [Node(name, profile, retry) for name in names]
    try:
        for node in nodes:
            await node.shell.start()
        yield nodes
    finally:
        for node in nodes:
            await node.shell.stop()


async def test_join_leave_rejoin_and_failure() -> None:
    async with running("a", "b", "c") as (a, b, c):
        assert await b.shell.join([a.address]) == {}
        assert await c.shell.join([b.address, a.address]) == {}
        await a.event(MemberJoin, "c")
        await b.event(MemberJoin, "c")
        assert await c.shell.leave(5.0)
        assert c.statuses()["c"] == "LEFT"
        await a.until(lambda: a.statuses()["c"] == "LEFT")
        assert await c.shell.join([a.address]) == {}
        await a.until(lambda: a.statuses()["c"] == "ALIVE")
        await b.shell.stop()
        await a.event(MemberFailed, "b")
        assert a.statuses() == {"a": "ALIVE", "b": "FAILED", "c": "ALIVE"}


async def test_join_names_each_host_that_did_not_answer() -> None:
    with socket.socket() as silent, socket.socket() as refusing:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # connections are accepted and never answered
        refusing.bind(("127.0.0.1", 0))
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        closed = f"127.0.0.1:{refusing.getsockname()[1]}"
        async with running("a", "b") as (a, b):
            with pytest.raises(JoinFailed) as raised:
                await a.shell.join([mute, closed, "127.0.0.1:99999", "a b"])
            errors = raised.value.errors
            assert errors[mute] == "no answer within 2 s"
            assert errors[closed] == "Connection refused"
            assert 'the port "99999", which is not a number of 0..65535' in errors["127.0.0.1:99999"]
            assert 'the host "a b", which is neither' in errors["a b"]
            for host in errors:
                assert host in str(raised.value)
            # one answer is enough; the errors name the other hosts
            assert list(await a.shell.join([closed, b.address])) == [closed]
            assert a.statuses() == {"a": "ALIVE", "b": "ALIVE"}


async def test_joining_oneself_is_nothing() -> None:
    async with running("a") as (a,):
        assert await a.shell.join([a.address]) == {}
        assert await a.shell.leave(5.0)
        with pytest.raises(JoinFailed, match="this is the node itself, which has left; name another one"):
            await a.shell.join([a.address])


async def test_garbage_on_both_ports_is_dropped() -> None:
    async with running("a", "b") as (a, b):
        await b.shell.join([a.address])
        rng = random.Random(5)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.setblocking(False)
            for size in (0, 1, 2, 10, 100, 1400, 20_000):
                for _ in range(10):
                    datagrams.sendto(rng.randbytes(size), ("127.0.0.1", a.port))
        for start in (
            b"",
            b"\x00",
            b"\x06",
            b"\x08",
            b"\x09",
            b"\x0a",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x06\x83\xa5Nodes",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            writer.write(start + rng.randbytes(1000))
            await writer.drain()
            writer.write_eof()
            await reader.read()
            writer.close()
            await writer.wait_closed()
        dropped = a.serf.counters.dropped
        assert dropped[DropReason.MALFORMED_PACKET] > 0
        assert dropped[DropReason.ENCRYPTED] > 0
        assert dropped[DropReason.MALFORMED_STREAM] > 0
        assert a.serf.gossip.exchanges.incoming_streams == a.serf.gossip.exchanges.incoming_bytes == 0
        assert a.statuses() == b.statuses() == {"a": "ALIVE", "b": "ALIVE"}
        # and it still works
        await b.shell.leave(5.0)
        await a.until(lambda: a.statuses()["b"] == "LEFT")


async def test_half_a_message_for_ever_is_closed() -> None:
    async with running("a") as (a,):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(b"\x06")
        with contextlib.suppress(ConnectionResetError):  # an end without a reset is right too
            assert await asyncio.wait_for(reader.read(), DEADLINE) == b""
        writer.close()
        assert a.serf.gossip.exchanges.incoming_streams == 0


@pytest.mark.interpreted
async def test_streams_of_many_small_nodes_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else the loop has to do comes between their slices, and no two slices are in one turn."""
    loop = asyncio.get_running_loop()
    turn = 0
    read_in: list[int] = []

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        if turn > 0:
            loop.call_soon(next_turn)

    receive = IncomingStream.receive_data

    def receive_data(stream: IncomingStream, data: bytes, now: float) -> bytes:
        read_in.append(turn)
        return receive(stream, data, now)

    monkeypatch.setattr(IncomingStream, "receive_data", receive_data)
    count = 5 * SLICE_NODES
    nodes = b"\x06" + encode({"Join": False, "Nodes": count, "UserStateLen": 0}) + b"\x80" * count
    next_turn()
    async with running("a") as (a,):
        peers = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(3)]
        for _, writer in peers:
            writer.write(nodes)
        for reader, writer in peers:
            assert (await asyncio.wait_for(reader.read(), DEADLINE))[0] == PUSH_PULL
            writer.close()
        assert a.serf.gossip.exchanges.incoming_bytes == 0
    turn = -1
    assert len(read_in) >= 3 * 5
    assert len(set(read_in)) == len(read_in)


async def test_a_turn_tells_of_no_more_members_than_a_slice_has() -> None:
    async with running("a", "b") as (a, b):
        nodes = [
            PushPullNode(f"n{number}", number.to_bytes(4, "big"), 8902, b"", 1, STATE_ALIVE, OUR_VERSIONS)
            for number in range(1 << 24, (1 << 24) + 4 * MERGED_NODES)
        ]
        a.serf.gossip.membership.merge(nodes, 0.0)
        counts: list[int] = []
        b.on_events = counts.append
        assert await b.shell.join([a.address]) == {}
        assert sum(counts) >= 4 * MERGED_NODES
        assert max(counts) <= MERGED_NODES + 2
        assert len(b.serf.members()) == 2 + 4 * MERGED_NODES


async def test_an_answer_of_many_small_nodes_is_read_whole() -> None:
    count = 5 * SLICE_NODES
    nodes = b"\x06" + encode({"Join": False, "Nodes": count, "UserStateLen": 0}) + encode({"State": 4}) * count

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(nodes)
        await writer.drain()
        writer.close()

    async with running("a") as (a,), await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        assert await a.shell.join([f"127.0.0.1:{server.sockets[0].getsockname()[1]}"]) == {}
        assert a.serf.counters.dropped[DropReason.MALFORMED_MESSAGE] == count


async def test_members_exchange_state_beside_many_silent_streams() -> None:
    async with running("a", "b") as (a, b):
        writers = []
        for _ in range(140):
            _, writer = await asyncio.open_connection("127.0.0.1", a.port)
            writers.append(writer)
        try:
            assert await b.shell.join([a.address]) == {}
            assert 127 <= a.serf.gossip.exchanges.incoming_streams <= 128
            assert a.serf.counters.dropped[DropReason.STREAMS_FULL] >= 12
            assert a.statuses() == {"a": "ALIVE", "b": "ALIVE"}
        finally:
            for writer in writers:
                writer.transport.abort()


async def test_drops_are_logged_together_with_the_last_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.server.bounded_log.QUIET_SECONDS", 0.3)
    node = Node("a", FAST)
    await node.shell.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(("127.0.0.1", 0))
            sender = f"127.0.0.1:{datagrams.getsockname()[1]}"
            datagrams.sendto(b"\x01" + bytes(60), ("127.0.0.1", node.port))
            await node.until(lambda: len(node.logged) == 2)
            level, event, details = node.logged[1]
            assert (level, event) == ("warning", "gossip dropped")
            assert (details["counts"], details["last_from"]) == ({"encrypted": 1}, sender)
            for _ in range(3):
                datagrams.sendto(b"\xf4\x01x", ("127.0.0.1", node.port))
            await node.until(lambda: sum(_wrong_label(details["counts"]) for _, _, details in node.logged[2:]) == 3)
    finally:
        await node.shell.stop()


def _wrong_label(counts: object) -> int:
    assert isinstance(counts, dict)
    return int(counts.get("wrong_label", 0))


async def test_ping_over_tcp() -> None:
    async with running("a") as (a,):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(Ping(5, "a", b"", 0, "").encode())
        assert (await reader.read())[0] == 2
        writer.close()
        await writer.wait_closed()


async def test_packets_and_streams_from_other_networks_are_refused() -> None:
    node = Node("a", replace(FAST, networks=Networks(["127.0.0.2/32"])))
    await node.shell.start()
    try:
        for source, answered in (("127.0.0.1", False), ("127.0.0.2", True)):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port, local_addr=(source, 0))
            writer.write(Ping(5, "a", b"", 0, "").encode())
            try:
                answer = await asyncio.wait_for(reader.read(), DEADLINE)
            except ConnectionResetError:
                answer = b""
            assert bool(answer) == answered
            writer.close()
        ping = Ping(6, "", b"", 0, "").encode()
        with contextlib.ExitStack() as stack:
            refused, taken = (stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2))
            refused.bind(("127.0.0.1", 0))
            taken.bind(("127.0.0.2", 0))
            for datagrams in (refused, taken):
                datagrams.setblocking(False)
                datagrams.sendto(ping, ("127.0.0.1", node.port))
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(taken, 2000), DEADLINE)
            assert open_packet(answer, Counters())[0][0] == 2
            with pytest.raises(BlockingIOError):
                refused.recv(2000)
        assert node.serf.counters.dropped[DropReason.ADDRESS_NOT_ALLOWED] == 2
    finally:
        await node.shell.stop()


async def test_a_node_without_udp_stays_alive_by_stream_pings() -> None:
    patient = replace(FAST, probe_interval=0.8)  # a busy machine may stop this process within a probe
    bound = bind_gossip("127.0.0.1", 0)
    with bound.datagram as unread, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        other.bind(("127.0.0.1", 0))
        b = Node("b", patient, sockets=GossipSockets(other, bound.stream, bound.port))
        try:
            await b.shell.start()
            async with running("a", profile=patient) as (a,):
                await b.shell.join([a.address])
                await a.event(MemberJoin, "b")
                sent = a.serf.counters.probes_sent
                # At the start of the fourth probe three are over. None of them got an ack over UDP.
                await eventually(lambda: a.serf.counters.probes_sent >= sent + 4, "four probes")
                for _ in range(3):
                    assert unread.recv(2000)
                assert a.serf.counters.probes_failed == a.serf.counters.suspicions == 0
                assert a.statuses()["b"] == "ALIVE"
        finally:
            await b.shell.stop()


async def test_a_leave_that_was_told_is_heard_though_its_last_wait_is_cut_short() -> None:
    async with running("a", "b") as (a, b):
        await b.shell.join([a.address])
        b.serf._leaving._config = replace(b.serf.config, leave_propagate_delay=60.0)
        assert await b.shell.leave(3.0)
        assert b.serf.phase == SerfPhase.PROPAGATING
        await a.event(MemberLeave, "b")


async def test_stop_in_the_middle_of_things() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.setblocking(False)
        async with running("a") as (a,):
            join = asyncio.create_task(a.shell.join([f"127.0.0.1:{silent.getsockname()[1]}"]))
            connection, _ = await asyncio.get_running_loop().sock_accept(silent)
            await a.shell.stop()
            with pytest.raises(asyncio.CancelledError):
                await join
            connection.close()


async def test_ipv6_loopback() -> None:
    try:
        first, second = bind_gossip("::1", 0), bind_gossip("::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    shells = []
    now = asyncio.get_running_loop().time()
    for name, sockets in (("a", first), ("b", second)):
        serf = Serf(SerfConfig(name, "::1", sockets.port, {}, FAST), random.Random(name), now)
        shell = GossipShell(serf, sockets, lambda events: None, Log(lambda *_: None))
        await shell.start()
        shells.append(shell)
    assert await shells[1].join([f"[::1]:{first.port}"]) == {}
    assert [member.ip for member in shells[1].serf.members()] == ["::1", "::1"]
    for shell in shells:
        await shell.stop()


async def test_a_node_bound_to_all_of_ipv6_talks_with_ipv4_members() -> None:
    try:
        sockets = bind_gossip("::", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with running("a") as (a,):
        serf = Serf(
            SerfConfig("b", "127.0.0.1", sockets.port, {}, FAST), random.Random("b"), asyncio.get_running_loop().time()
        )
        shell = GossipShell(serf, sockets, lambda events: None, Log(lambda *_: None))
        await shell.start()
        await shell.join([a.address])
        await a.until(lambda: a.statuses().get("b") == "ALIVE")
        await eventually(lambda: serf.counters.probes_sent > 3, "four probes")
        assert serf.counters.send_errors == 0
        assert a.statuses()["b"] == "ALIVE"
        await shell.stop()
