"""Nodes as processes, nodes in this process, mosquitto clients and a small MQTT client, for the integration tests.

Everything runs on loopback with free ports; only processes that were started here are ended, by their id.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
import pytest
import yaml

from broker.codec.packets import (
    MQTT_5,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    SubscribeFilter,
    UnsubAck,
    Unsubscribe,
    Will,
)
from broker.codec.reader import PacketReader
from broker.codec.writer import encode_packet
from broker.config.loader import load
from broker.server.lifecycle import Server

DEADLINE: Final = 30.0  # seconds for anything that should happen: the machine may be busy
STOP_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.03
PORTS: Final = range(20_000, 32_000)  # below the range from which the kernel takes ports of outgoing connections

AnyPacket = TypeVar("AnyPacket", bound=Packet)

MOSQUITTO_MISSING: Final = shutil.which("mosquitto_sub") is None or shutil.which("mosquitto_pub") is None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not MOSQUITTO_MISSING:
        return
    skip = pytest.mark.skip(reason="mosquitto_pub and mosquitto_sub (Debian package mosquitto-clients) are missing")
    for item in items:
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker(skip)


def free_port() -> int:
    """A port that neither UDP nor TCP uses now, and that no outgoing connection will be given."""
    for _ in range(1000):
        port = random.choice(PORTS)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        ):
            try:
                tcp.bind(("127.0.0.1", port))
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port found")


async def eventually(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], what: str, seconds: float = DEADLINE
) -> Any:
    """The first true value of the condition (a function, plain or async); fails after the deadline."""
    until = time.monotonic() + seconds
    value: Any = None
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:.0f} s: {what} (last: {value!r})")
        await asyncio.sleep(POLL_SECONDS)


def merged(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the overrides laid over it, section by section."""
    result = copy.deepcopy(base)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


# --- nodes


class Node:
    """One gmqttd process and its configuration file."""

    def __init__(self, directory: Path, name: str, overrides: dict[str, Any]) -> None:
        self.name = name
        self.directory = directory
        self.port = free_port()
        self.config = merged(
            {
                "listeners": [{"address": f"127.0.0.1:{self.port}"}],
                "plugin_order": [],
                "log": {"level": "info", "format": "text"},
            },
            overrides,
        )
        address = self.config["listeners"][0]["address"]
        self.port = int(address.rsplit(":", 1)[1])
        self.config_path = directory / f"{name}.yml"
        self.log_path = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.exit_code: int | None = None
        self.expected_exit = 0
        self.unclean: list[str] = []

    # --- life

    def spawn(self, text: str | None = None) -> None:
        """Start the process; `text` replaces the configuration."""
        self.config_path.write_text(yaml.safe_dump(self.config, sort_keys=False) if text is None else text)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "broker.server.cli", "start", "-c", str(self.config_path)],
                cwd=self.directory,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def start(self) -> Node:
        """Start and wait until clients are served."""
        self.spawn()
        await eventually(self.serves, f"{self.name} serves clients")
        return self

    def serves(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{self.log()}")
        try:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
        except OSError:
            return False
        return True

    def command(self, name: str) -> subprocess.CompletedProcess[str]:
        """A gmqttd command that ends, with this node's configuration file."""
        return subprocess.run(
            [sys.executable, "-m", "broker.server.cli", name, "-c", str(self.config_path)],
            cwd=self.directory,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def wait_ended(self, seconds: float = DEADLINE) -> int:
        """The exit status, within the time."""
        process = self.process
        assert process is not None
        await eventually(lambda: process.poll() is not None, f"end of {self.name}", seconds)
        self.exit_code = process.returncode
        self.process = None
        return process.returncode

    async def stop(self, signal_number: int = signal.SIGTERM) -> float:
        """Ask for the graceful stop, which must be clean and in time; the seconds that it took."""
        assert self.process is not None
        began_at = time.monotonic()
        self.process.send_signal(signal_number)
        code = await self.wait_ended()
        took = time.monotonic() - began_at
        assert code == 0, f"{self.name} ended with {code}"
        assert took < STOP_SECONDS + 0.5, f"{self.name} took {took:.1f} s to stop"
        return took

    async def kill(self) -> None:
        """kill -9, as a crash."""
        assert self.process is not None
        self.process.kill()
        await self.wait_ended()

    async def finish(self) -> None:
        """End of the test: what still runs must stop cleanly."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.unclean.append(f"{self.name} had ended by itself with {self.process.returncode}")
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            await self.stop()
        except AssertionError as error:
            self.unclean.append(str(error))
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    # --- what it says

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    async def logged(self, text: str, seconds: float = DEADLINE) -> None:
        await eventually(lambda: text in self.log(), f"{text!r} in the log of {self.name}", seconds)

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    async def rest(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """HTTP status and JSON answer of the node's REST API."""
        address = self.config["api"]["http"][0]["address"].removeprefix("tcp://")
        return await asyncio.to_thread(_request, method, f"http://{address}{path}", body)

    async def members(self) -> dict[str, dict[str, Any]]:
        status, answer = await self.rest("GET", "/v1/federation/members")
        assert status == 200, answer
        return {member["name"]: member for member in answer["members"]}

    async def statuses(self) -> dict[str, str]:
        return {name: member["status"] for name, member in (await self.members()).items()}


def _request(method: str, url: str, body: object) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=DEADLINE) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


class Nodes:
    """Makes nodes, and ends them with the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.all: list[Node] = []

    def free_port(self) -> int:
        return free_port()

    def make(self, overrides: dict[str, Any] | None = None, name: str = "") -> Node:
        """A node that is not started yet."""
        node = Node(self._directory, name or f"node{len(self.all) + 1}", overrides or {})
        self.all.append(node)
        return node

    async def start(self, overrides: dict[str, Any] | None = None, name: str = "") -> Node:
        return await self.make(overrides, name).start()

    def make_federated(self, join: list[Node] | None = None, overrides: dict[str, Any] | None = None) -> Node:
        """A node with the plugins admin and federation that joins the others at start."""
        fed, gossip, http, grpc = free_port(), free_port(), free_port(), free_port()
        config: dict[str, Any] = {
            "api": {
                "grpc": [{"address": f"tcp://127.0.0.1:{grpc}"}],
                "http": [{"address": f"tcp://127.0.0.1:{http}", "map": f"tcp://127.0.0.1:{grpc}"}],
            },
            "plugins": {
                "federation": {
                    "node_name": f"node{len(self.all) + 1}",
                    "fed_addr": f"127.0.0.1:{fed}",
                    "gossip_addr": f"127.0.0.1:{gossip}",
                    "retry_join": [gossip_address(other) for other in join or []],
                    "retry_interval": "500ms",
                    "retry_timeout": "1m",
                }
            },
            "plugin_order": ["admin", "federation"],
        }
        config = merged(config, overrides or {})
        return self.make(config, config["plugins"]["federation"]["node_name"])

    async def federation(self, count: int, overrides: dict[str, Any] | None = None) -> list[Node]:
        """That many nodes that know each other as alive and whose event streams stand."""
        nodes: list[Node] = []
        for _ in range(count):
            nodes.append(self.make_federated(nodes[:1], overrides))
        for node in nodes:
            node.spawn()
        for node in nodes:
            await eventually(node.serves, f"{node.name} serves clients")
        await self.all_alive(nodes)
        return nodes

    async def all_alive(self, nodes: list[Node], names: list[str] | None = None) -> None:
        """Each of the nodes sees the names (default: their own) alive."""
        expected = dict.fromkeys([node.name for node in nodes] if names is None else names, "STATUS_ALIVE")

        async def complete() -> bool:
            for node in nodes:
                try:
                    statuses = await node.statuses()
                except OSError:
                    return False
                if {name: statuses.get(name) for name in expected} != expected:
                    return False
            return True

        await eventually(complete, f"{', '.join(expected)} see each other alive")


def gossip_address(node: Node) -> str:
    return str(node.config["plugins"]["federation"]["gossip_addr"])


@pytest.fixture
async def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Nodes]:
    """Nodes as processes; each must end cleanly. The logs are printed, which shows them when the test fails."""
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        await asyncio.gather(*(node.finish() for node in made.all))
        for node in made.all:
            print(f"--- log of {node.name}\n{node.log()[-8000:]}")
        unclean = [text for node in made.all for text in node.unclean]
        assert not unclean, unclean


# --- a node in this process


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[Callable[[dict[str, Any]], Awaitable[Server]]]:
    """Starts servers on this loop, for tests that look at counters."""
    started: list[Server] = []

    async def start(overrides: dict[str, Any]) -> Server:
        path = tmp_path / f"server{len(started)}.yml"
        path.write_text(yaml.safe_dump(merged({"listeners": [{"address": "127.0.0.1:0"}]}, overrides)))
        loaded = load(str(path))
        assert loaded.settings is not None, loaded.faults
        server = Server(loaded.settings)
        started.append(server)
        await server.start()
        return server

    yield start
    await asyncio.gather(*(server.stop() for server in started))


# --- an MQTT client


class MqttClient:
    """A client on the product's own codec. Messages are acknowledged as they come, unless `acknowledges` is False."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.version = version
        self.acknowledges = True
        self.messages: asyncio.Queue[Publish] = asyncio.Queue()
        self.answers: asyncio.Queue[Packet] = asyncio.Queue()
        self.connack: ConnAck | None = None
        self.disconnect: Disconnect | None = None  # what the server sent
        self.closed = asyncio.Event()
        self._reader = reader
        self._writer = writer
        self._packets = PacketReader(version)
        self._packet_id = 0
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, port: int, version: int = MQTT_5) -> MqttClient:
        """A connection without CONNECT."""
        async with asyncio.timeout(DEADLINE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = cls(reader, writer, version)
        client._reading = asyncio.create_task(client._read())
        return client

    @classmethod
    async def connect(
        cls,
        port: int,
        client_id: str = "",
        version: int = MQTT_5,
        clean_start: bool = True,
        keep_alive: int = 0,
        will: Will | None = None,
        properties: Properties | None = None,
        reason_code: int = 0,
    ) -> MqttClient:
        client = await cls.open(port, version)
        client.send(Connect(client_id, version, clean_start, keep_alive, None, None, will, properties))
        client.connack = await client.answer(ConnAck)
        assert client.connack.reason_code == reason_code, client.connack
        return client

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(65536):
                for packet in self._packets.receive_data(data):
                    self._received(packet)
        except ConnectionError:
            pass
        finally:
            self.closed.set()
            self._writer.close()

    def _received(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self.messages.put_nowait(packet)
            if self.acknowledges and packet.qos:
                self.send(PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id))
        elif isinstance(packet, PubRel):
            self.send(PubComp(packet.packet_id))
        elif isinstance(packet, Disconnect):
            self.disconnect = packet
        else:
            self.answers.put_nowait(packet)

    def send(self, *packets: Packet) -> None:
        self.send_bytes(b"".join([encode_packet(packet, self.version) for packet in packets]))

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._writer.drain()

    async def answer(self, kind: type[AnyPacket]) -> AnyPacket:
        """The next packet that is no message, which must be of this kind."""
        async with asyncio.timeout(DEADLINE):
            packet = await self.answers.get()
        assert isinstance(packet, kind), packet
        return packet

    async def message(self, seconds: float = DEADLINE) -> Publish:
        async with asyncio.timeout(seconds):
            return await self.messages.get()

    async def take(self, count: int, seconds: float = DEADLINE) -> list[Publish]:
        """The next messages, that many."""
        taken: list[Publish] = []
        async with asyncio.timeout(seconds):
            while len(taken) < count:
                taken.append(await self.messages.get())
        return taken

    async def subscribe(self, *topic_filters: str, qos: int = 0) -> list[int]:
        """The reason codes."""
        packet_id = self._next_packet_id()
        filters = [SubscribeFilter(text.encode(), qos) for text in topic_filters]
        self.send(Subscribe(packet_id, filters))
        suback = await self.answer(SubAck)
        assert suback.packet_id == packet_id
        return suback.reason_codes

    async def unsubscribe(self, *topic_filters: str) -> None:
        packet_id = self._next_packet_id()
        self.send(Unsubscribe(packet_id, [text.encode() for text in topic_filters]))
        await self.answer(UnsubAck)

    async def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """Returns when the server has acknowledged; with QoS 0 when it has answered a ping behind the message."""
        packet_id = self._next_packet_id() if qos else 0
        self.send(Publish(topic.encode(), payload, qos, retain, False, packet_id))
        if qos == 0:
            await self.ping()
        elif qos == 1:
            await self.answer(PubAck)
        else:
            await self.answer(PubRec)
            self.send(PubRel(packet_id))
            await self.answer(PubComp)

    async def ping(self) -> None:
        self.send(PingReq())
        await self.answer(PingResp)

    async def wait_closed(self, seconds: float = DEADLINE) -> None:
        async with asyncio.timeout(seconds):
            await self.closed.wait()

    def abort(self) -> None:
        """As if the client had crashed: no DISCONNECT."""
        self._writer.transport.abort()

    async def close(self, goodbye: bool = True) -> None:
        if goodbye and not self._writer.is_closing() and self.connack is not None:
            self.send(Disconnect())
        self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._writer.wait_closed()

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65535 + 1
        return self._packet_id


class Clients:
    """Opens MQTT clients, and closes them with the test."""

    def __init__(self) -> None:
        self._all: list[MqttClient] = []

    async def open(self, port: int, version: int = MQTT_5) -> MqttClient:
        client = await MqttClient.open(port, version)
        self._all.append(client)
        return client

    async def connect(self, port: int, client_id: str = "", version: int = MQTT_5, **options: Any) -> MqttClient:
        client = await MqttClient.connect(port, client_id, version, **options)
        self._all.append(client)
        return client

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._all))


@pytest.fixture
async def clients(nodes: Nodes) -> AsyncIterator[Clients]:
    opened = Clients()
    yield opened
    await opened.close()


class Watch:
    """An independent pair of clients of one node: whatever else happens there, they exchange messages."""

    def __init__(self, subscriber: MqttClient, publisher: MqttClient) -> None:
        self._subscriber = subscriber
        self._publisher = publisher
        self._count = 0

    async def check(self, seconds: float = DEADLINE) -> float:
        """One message at each QoS must arrive; the seconds that they took."""
        began_at = time.monotonic()
        for qos in (0, 1, 2):
            self._count += 1
            payload = b"%d" % self._count
            await self._publisher.publish("watch/topic", payload, qos)
            message = await self._subscriber.message(seconds)
            assert message.payload == payload
        assert not self._subscriber.closed.is_set()
        return time.monotonic() - began_at


@pytest.fixture
async def watch(clients: Clients) -> Callable[[Node | int], Awaitable[Watch]]:
    async def start(node: Node | int) -> Watch:
        port = node if isinstance(node, int) else node.port
        subscriber = await clients.connect(port, "watch-subscriber")
        await subscriber.subscribe("watch/topic", qos=2)
        return Watch(subscriber, await clients.connect(port, "watch-publisher"))

    return start


# --- mosquitto clients


class MosquittoSub:
    """A running mosquitto_sub. Messages come as (topic, payload, retained)."""

    MARK: Final = b"=message= "

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.messages: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self.texts: list[str] = []  # what the extra format said, message by message
        self.subscribed = asyncio.Event()
        self.output: list[bytes] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        while line := await stdout.readline():
            if line.startswith(self.MARK):
                topic, retained, payload, text = line.removeprefix(self.MARK).rstrip(b"\n").split(b" ", 3)
                self.texts.append(text.decode())
                self.messages.put_nowait((topic.decode(), bytes.fromhex(payload[1:].decode()), retained == b"1"))
            else:
                self.output.append(line)
                if line.startswith(b"Subscribed"):
                    self.subscribed.set()

    async def message(self, seconds: float = DEADLINE) -> tuple[str, bytes, bool]:
        async with asyncio.timeout(seconds):
            return await self.messages.get()

    async def said(self, text: bytes) -> None:
        """Until it has printed this, beside messages."""
        await eventually(lambda: any(text in line for line in self.output), f"mosquitto_sub says {text!r}")

    async def payloads(self, count: int, seconds: float = DEADLINE) -> list[bytes]:
        async with asyncio.timeout(seconds):
            return [(await self.messages.get())[1] for _ in range(count)]

    async def stop(self, signal_number: int = signal.SIGTERM) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal_number)
        async with asyncio.timeout(DEADLINE):
            await self.process.wait()
            await self._reading


class Mosquitto:
    """Starts mosquitto clients against 127.0.0.1; ends those that still run with the test."""

    def __init__(self) -> None:
        self._subs: list[MosquittoSub] = []

    async def sub(
        self, port: int, *arguments: str, version: str = "mqttv5", wait: bool = True, form: str = ""
    ) -> MosquittoSub:
        """mosquitto_sub; returns when the subscription was acknowledged. `form`: more of its output format."""
        process = await asyncio.create_subprocess_exec(
            *("stdbuf", "-oL", "mosquitto_sub", "-d", "-h", "127.0.0.1", "-p", str(port), "-V", version),
            *("-F", f"{MosquittoSub.MARK.decode()}%t %r x%x {form}", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=64 * 2**20,
        )
        sub = MosquittoSub(process)
        self._subs.append(sub)
        if wait:
            await eventually(
                lambda: sub.subscribed.is_set() or process.returncode is not None,
                f"mosquitto_sub is subscribed, it said {sub.output}",
            )
            assert sub.subscribed.is_set(), sub.output
        return sub

    async def pub(self, port: int, *arguments: str, version: str = "mqttv5", stdin: bytes = b"") -> None:
        """mosquitto_pub; returns when it has ended well."""
        process = await asyncio.create_subprocess_exec(
            *("mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-V", version, *arguments),
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(DEADLINE):
                output, _ = await process.communicate(stdin or None)
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        assert process.returncode == 0, output

    async def close(self) -> None:
        for sub in self._subs:
            await sub.stop(signal.SIGKILL)


@pytest.fixture
async def mosquitto(nodes: Nodes) -> AsyncIterator[Mosquitto]:
    clients = Mosquitto()
    yield clients
    await clients.close()
