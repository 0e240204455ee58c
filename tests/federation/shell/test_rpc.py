"""The RPC over real sockets: connections, calls that take time, the log."""

from __future__ import annotations

import asyncio
import io
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import structlog
from structlog.testing import capture_logs

from broker.broker import Broker
from broker.config.addresses import Address
from broker.config.settings import LogSettings, MqttSettings
from broker.server.log_listeners import LOG_LISTENERS
from broker.server.logging import get_logger, setup_logging
from federation.membership import FederationMembership
from federation.node import Node
from federation.rpc import client as rpc_client
from federation.rpc.server import CLIENTS_MAX
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.settings import FederationSettings
from federation.shell import rpc
from federation.shell.gossip_sockets import bind_gossip
from federation.shell.rpc import RpcShell
from waiting import DEADLINE, eventually


class Station:
    """A membership without event streams, and its RPC."""

    def __init__(self, name: str) -> None:
        settings = FederationSettings(node_name=name, gossip_addr=Address("tcp", "127.0.0.1", 0))
        node = Node(name, Broker(MqttSettings(), random.Random(1), 0.0), settings, random.Random(2))
        self.membership = FederationMembership(
            node, settings, lambda: None, self._before_leave, lambda _: None, "plugins.federation", False
        )
        self._sockets = bind_gossip("127.0.0.1", 0)
        config = SerfConfig(name, "127.0.0.1", self._sockets.port, {"of": name})
        self.gossip_address = f"127.0.0.1:{self._sockets.port}"
        self.serf = Serf(config, random.Random(name), asyncio.get_running_loop().time())
        self.shell = RpcShell(self.membership, self.serf, "key", get_logger("federation"))
        self.port = 0
        self.clients: list[Client] = []

    async def _before_leave(self) -> None:
        pass

    async def start(self) -> Station:
        await self.membership.start(self.serf, self._sockets)
        await self.shell.start(Address("tcp", "127.0.0.1", 0))
        assert self.shell._listener is not None
        self.port = self.shell._listener.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        for client in self.clients:
            client.writer.transport.abort()
        await self.shell.stop()
        await self.membership.stop()


@asynccontextmanager
async def running(*names: str) -> AsyncIterator[list[Station]]:
    stations: list[Station] = []
    try:
        stations += [await Station(name).start() for name in names]
        yield stations
    finally:
        for station in stations:
            await station.stop()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._unpacker = msgpack.Unpacker()
        self._sequence = 0

    def send(self, command: str, body: object = None) -> int:
        self._sequence += 1
        self.writer.write(msgpack.packb({"Command": command, "Seq": self._sequence}))
        if body is not None:
            self.writer.write(msgpack.packb(body))
        return self._sequence

    async def item(self) -> Any:
        async with asyncio.timeout(DEADLINE):
            while True:
                for item in self._unpacker:
                    return item
                data = await self.reader.read(65536)
                assert data, "the node closed the connection"
                self._unpacker.feed(data)

    async def call(self, command: str, body: object = None, has_body: bool = False) -> Any:
        sequence = self.send(command, body)
        header = await self.item()
        assert header["Seq"] == sequence
        return (header["Error"], await self.item()) if has_body else header["Error"]

    async def call_past_records(self, command: str, body: object) -> Any:
        """A call while records of a stream or monitor come."""
        sequence = self.send(command, body)
        while (item := await self.item()).get("Seq") != sequence:
            pass
        return item["Error"]

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True


async def connect(station: Station, authenticates: bool = True) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", station.port))
    station.clients.append(client)
    if authenticates:
        assert await client.call("handshake", {"Version": 1}) == ""
        assert await client.call("auth", {"AuthKey": "key"}) == ""
    return client


async def test_calls_that_take_time() -> None:
    async with running("a", "b") as (a, b):
        client = await connect(a)
        error, body = await client.call("join", {"Existing": ["127.0.0.1:1"], "Replay": False}, has_body=True)
        assert "refused" in error
        assert body == {"Num": 0}
        body = {"Existing": [b.gossip_address, "127.0.0.1:1"], "Replay": False}
        assert await client.call("join", body, has_body=True) == ("", {"Num": 1})
        assert await client.call("tags", {"Tags": {"rack": "b7"}, "DeleteTags": None}) == ""
        assert "own" in await client.call("tags", {"Tags": {"of": "x"}, "DeleteTags": None})
        _, stats = await client.call("stats", has_body=True)
        assert stats["tags"] == {"of": "a", "rack": "b7"}
        assert "itself" in await client.call("force-leave", {"Node": "a", "Prune": False})
        assert await client.call("force-leave", {"Node": "nobody", "Prune": False}) == ""
        assert "256 bytes" in await client.call("force-leave", {"Node": "n" * 256, "Prune": False})
        assert await client.call("tags", {"Tags": None, "DeleteTags": None}) == ""
        error, body = await client.call("list-keys", has_body=True)
        assert "not encrypted" in error
        assert body["NumNodes"] == 0
        assert await client.call("leave") == ""
        _, listed = await client.call("members", has_body=True)
        assert {member["Name"]: member["Status"] for member in listed["Members"]} == {"a": "left", "b": "alive"}


async def test_old_events_are_replayed_only_when_asked_for() -> None:
    async with running("a", "b", "c") as (a, b, c):
        a.serf.user_event("old", b"")
        told: dict[str, list[str]] = {}
        for station, replay in ((b, False), (c, True)):
            client = await connect(station)
            await client.call("stream", {"Type": "user"})
            body = {"Existing": [a.gossip_address], "Replay": replay}
            assert await client.call("join", body, has_body=True) if not replay else client.send("join", body)
            if not replay:
                station.serf.user_event("new", b"")
                station.membership.flush()
            names = told.setdefault("c" if replay else "b", [])
            while not names:
                item = await client.item()
                if item.get("Event") == "user":
                    names.append(item["Name"])
        assert told == {"b": ["new"], "c": ["old"]}


async def test_a_query_over_two_nodes_and_a_program_that_answers_it() -> None:
    async with running("a", "b") as (a, b):
        asking, answering = await connect(a), await connect(b)
        await asking.call("join", {"Existing": [b.gossip_address], "Replay": False}, has_body=True)
        await answering.call("stream", {"Type": "query:load"})
        body = {"Name": "load", "Payload": b"1m", "RequestAck": True, "FilterNodes": ["b"], "Timeout": 30 * 10**9}
        assert await asking.call("query", body) == ""
        assert (await answering.item())["Seq"] == 3
        query = await answering.item()
        assert (query["Name"], query["Payload"]) == ("load", b"1m")
        assert await answering.call("respond", {"ID": query["ID"], "Payload": b"0.7"}) == ""
        found: list[tuple[str, str, bytes | None]] = []
        while len(found) < 2:
            item = await asking.item()
            if "Type" in item:
                found.append((item["Type"], item["From"], item["Payload"]))
        assert sorted(found) == [("ack", "b", None), ("response", "b", b"0.7")]
        asking.writer.close()
        await eventually(lambda: len(a.serf.asked_queries) == 0, "the query ends with its client")


async def test_a_monitor_sees_the_log_of_other_threads_too(log_to_nowhere: io.StringIO) -> None:
    async with running("a") as (a,):
        log = get_logger("test")
        log.info("before", number=1)
        client = await connect(a)
        assert await client.call("monitor", {"LogLevel": "warn"}) == ""
        log.info("not told")
        thread = threading.Thread(target=lambda: log.warning("told", number=2))
        thread.start()
        thread.join()
        await client.item()
        line = (await client.item())["Log"]
        assert "told" in line
        assert "number=2" in line
    assert len(LOG_LISTENERS) == 0


async def test_a_monitor_of_debug_sees_what_the_log_of_the_node_leaves_out(log_to_nowhere: io.StringIO) -> None:
    async with running("a") as (a,):
        log = get_logger("test")
        client = await connect(a)
        assert await client.call("monitor", {"LogLevel": "DEBUG"}) == ""
        log.debug("for the monitor")
        lines: list[str] = []
        while not any("for the monitor" in line for line in lines):
            item = await client.item()
            lines += [item["Log"]] if "Log" in item else []
        assert await client.call_past_records("stop", {"Stop": 3}) == ""
        assert a.shell.server.wants_debug() is False
        log.debug("for nobody")
        log.info("for the log")
    assert "for the log" in log_to_nowhere.getvalue()
    assert "debug" not in log_to_nowhere.getvalue()
    assert "for nobody" not in " ".join(line for _, line in a.shell.server._log)


async def test_an_unexpected_fault_of_a_call_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("a") as (a,):

        async def fail(hosts: list[str], replay: bool) -> int:
            raise LookupError("unexpected")

        monkeypatch.setattr(a.membership, "join", fail)
        client = await connect(a)
        body = {"Existing": ["127.0.0.1:1"], "Replay": False}
        with capture_logs() as lines:
            error, answer = await client.call("join", body, has_body=True)
        assert "LookupError" in error
        assert answer == {"Num": 0}
        assert [line["command"] for line in lines if line["log_level"] == "error"] == ["join"]


async def test_a_stopped_rpc_leaves_nothing_behind() -> None:
    async with running("a") as (a,):
        await connect(a)
        await a.shell.stop()
        assert (a.membership.listeners, len(LOG_LISTENERS)) == ([], 0)


async def test_strangers_are_refused_closed_and_replaced() -> None:
    async with running("a") as (a,):
        strangers = [await connect(a, authenticates=False) for _ in range(CLIENTS_MAX)]
        client = await connect(a)
        assert await strangers[0].is_closed()
        assert (await client.call("stats", has_body=True))[0] == ""
        assert await strangers[1].call("handshake", {"Version": 1}) == ""
        for _ in range(3):
            assert "Invalid" in await strangers[1].call("auth", {"AuthKey": "other"})
        assert await strangers[1].is_closed()
        assert a.shell.server.refused == 4


@pytest.mark.interpreted
async def test_a_client_that_does_not_shake_hands_in_time_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "HANDSHAKE_SECONDS_MAX", 0.05)
    async with running("a") as (a,):
        client = await connect(a, authenticates=False)
        assert await client.is_closed()
        assert a.shell.refused_input()["rpc_clients_refused"] == 1
        assert a.shell.connections == {}


@pytest.mark.interpreted
async def test_a_client_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_client, "RECORD_BYTES_MAX", 100_000)
    async with running("a") as (a,):
        deaf, other = await connect(a), await connect(a)
        for client in (deaf, other):
            await client.call("stream", {"Type": "user"})
        deaf.reader._transport.pause_reading()  # type: ignore[attr-defined]
        count = 0
        while not a.shell.server.records_dropped:
            count += 1
            a.serf.user_event("load", b"%08d" % count + bytes(400))
            a.membership.flush()
            while (await other.item()).get("Payload", b"")[:8] != b"%08d" % count:
                pass
        (connection,) = [one for one in a.shell.connections.values() if one._is_congested]
        assert connection._client is not None
        assert connection._client._output_bytes < 101_000


@pytest.fixture
def log_to_nowhere() -> Iterator[io.StringIO]:
    saved = structlog.get_config()
    stream = io.StringIO()
    setup_logging(LogSettings(level="info"), stream)
    yield stream
    structlog.configure(**saved)
