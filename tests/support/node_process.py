"""gmqttd nodes as processes on loopback, with free ports. Processes are ended by their ids."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import copy
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import psutil
import yaml

from broker.workers.shares import PORT_STEP
from node_forks import ForkedProcess, fork_node
from waiting import DEADLINE, STOP_SECONDS, eventually, process_ends

PORTS: Final = range(20_000, 32_000)  # below the range from which the kernel takes ports of outgoing connections
BLOCK_PORTS: Final = 200
LANE_WORKERS: Final = int(os.environ.get("GMQTTD_TEST_WORKERS", "1"))  # of each node that does not say how many it has
# Why a test needs a node of one process.
SOON: Final = (
    "publishes just after the SUBACK of a session that is not durable, which other workers may not know of yet"
)
STARTED: Final = re.compile(r"supervisor: worker started worker=(\d+) process=(\d+)")
# For tests that lose nothing: a busy machine may stop a receiver for longer than publishers wait by default.
PATIENT: Final = {"mqtt": {"publisher_hold_max": f"{DEADLINE:.0f}s"}}
FAILED_SECONDS: Final = 60.0  # suspicion of Serf's LAN defaults in a small cluster, on a busy machine


@cache
def _block() -> Iterator[int]:
    """Ports of this test run only, in an endless cycle: two runs at the same time must not take the same free port.

    Each run keeps the first port of its block open."""
    firsts = list(PORTS[::BLOCK_PORTS])
    random.shuffle(firsts)
    for first in firsts:
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
            continue
        atexit.register(claim.close)
        return cycle(range(first + 1, first + BLOCK_PORTS))
    raise AssertionError("no block of ports is free")


_of_workers: deque[int] = deque(maxlen=BLOCK_PORTS // 2)  # that were found last


def free_port(workers: int = 0) -> int:
    """A port that neither UDP nor TCP uses now. No outgoing connection gets it, and no other node for a long time. Those that
    workers have in its place are free, too."""
    for port in islice(_block(), BLOCK_PORTS):
        wanted = [port + index * PORT_STEP for index in range(workers or LANE_WORKERS)]
        if any(one in _of_workers for one in wanted) or not all(map(_is_free, wanted)):
            continue
        if len(wanted) > 1:
            _of_workers.extend(wanted)
        return port
    raise AssertionError("no free port found")


def _is_free(port: int) -> bool:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def merged(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The configuration with the overrides, merged section by section."""
    result = copy.deepcopy(base)
    for key, value in overrides.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


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
        if LANE_WORKERS > 1:
            self.config.setdefault("workers", LANE_WORKERS)
        address = self.config["listeners"][0]["address"]
        self.port = int(address.rsplit(":", 1)[1])
        self.config_path = directory / f"{name}.yml"
        self.log_path = directory / f"{name}.log"
        self.file_limit = 0  # of open files, for the next start; 0: that of this process
        self.is_forked = False  # the next start (node_forks.py)
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.unclean: list[str] = []

    # --- life

    def program(self) -> list[str]:
        return [sys.executable, "-m", "broker"]

    def spawn(self, text: str | None = None) -> None:
        """Start the process; `text` replaces the configuration."""
        self.config_path.write_text(yaml.safe_dump(self.config, sort_keys=False) if text is None else text)
        arguments = ["start", "-c", str(self.config_path)]
        if self.is_forked and not self.file_limit and type(self).program is Node.program:
            self.process = fork_node(arguments, self.directory, self.log_path)
            return
        limited = ["/bin/sh", "-c", f'ulimit -n {self.file_limit}; exec "$0" "$@"'] if self.file_limit else []
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*limited, *self.program(), *arguments],
                cwd=self.directory,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def start(self) -> Node:
        """Start and wait until clients are served and all plugins have started."""
        before = len(self.log())
        self.spawn()
        await eventually(self.serves, f"{self.name} serves clients")
        if self.config["log"]["level"] in {"debug", "info"}:
            await eventually(lambda: self.says_serving(before), f"{self.name} logs that it is serving")
        return self

    def says_serving(self, position: int) -> bool:
        """Whether the log says, from that character on, that the start is over. Listeners of plugins open after those
        of MQTT."""
        words = ("serving", "process", "supervisor") if self.config.get("workers", 1) != 1 else ("serving", "process")
        return any(all(word in line for word in words) for line in self.log()[position:].splitlines())

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
        """Run a gmqttd command with this node's configuration file."""
        return subprocess.run(
            [*self.program(), name, "-c", str(self.config_path)],
            cwd=self.directory,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )

    @property
    def entry(self) -> int | Path:
        """What clients on this machine connect to: a port, or a Unix socket."""
        return self.port

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def processes(self) -> list[int]:
        """All of the node: the supervisor first where it has workers."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.pid, *(child.pid for child in psutil.Process(self.pid).children())]
        return []

    def workers(self) -> dict[int, int]:
        """The newest process of each worker."""
        return {int(worker): int(process) for worker, process in STARTED.findall(self.log())}

    async def reload(self) -> None:
        """All processes of the node read their files again."""
        assert self.process is not None
        text = "configuration reloaded"
        wanted = self.log().count(text) + max(1, len(self.workers()))
        self.process.send_signal(signal.SIGHUP)
        await eventually(lambda: self.log().count(text) >= wanted, f"all of {self.name} has reloaded")

    async def wait_ended(self, seconds: float = DEADLINE) -> int:
        """Wait for the end of the process. Returns the exit status."""
        process = self.process
        assert process is not None
        if process.poll() is None:
            await process_ends(process.pid, f"end of {self.name}", seconds)
        self.process = None
        code = process.poll()
        assert code is not None
        return code

    async def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """Ask for the graceful stop, which must be clean and within STOP_SECONDS."""
        assert self.process is not None
        self.process.send_signal(signal_number)
        code = await self.wait_ended(STOP_SECONDS)
        assert code == 0, f"{self.name} ended with {code}"

    async def kill(self) -> None:
        """kill -9 of all its processes, as a crash: workers whose supervisor has ended stop, and write what they have."""
        found = self.processes()
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for worker in found[1:]:
            with contextlib.suppress(ProcessLookupError):
                await process_ends(worker, f"end of a worker of {self.name}")
        await self.wait_ended()

    async def finish(self) -> None:
        """End of the test: a node that still runs must stop cleanly."""
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

    # --- log and API

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

    async def rest_text(self, method: str, path: str) -> tuple[int, str]:
        """HTTP status and text of an answer that is not JSON."""
        address = self.config["api"]["http"][0]["address"].removeprefix("tcp://")
        return await asyncio.to_thread(_request_text, method, f"http://{address}{path}", None)

    async def members(self) -> dict[str, dict[str, Any]]:
        status, answer = await self.rest("GET", "/v1/federation/members")
        assert status == 200, answer
        return {member["name"]: member for member in answer["members"]}

    async def statuses(self) -> dict[str, str]:
        return {name: member["status"] for name, member in (await self.members()).items()}


def _request(method: str, url: str, body: object) -> tuple[int, Any]:
    status, text = _request_text(method, url, body)
    return status, json.loads(text or "null")


def _request_text(method: str, url: str, body: object) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=DEADLINE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Nodes:
    """Makes nodes, and ends them with the test."""

    def __init__(self, directory: Path, are_forked: bool = False) -> None:
        """are_forked: a test sets `is_forked` of a node to False where it is found by the command line of its process, or has
        packages of its own."""
        self._directory = directory
        self._are_forked = are_forked
        self.all: list[Node] = []

    def free_port(self) -> int:
        return free_port()

    def make(self, overrides: dict[str, Any] | None = None, name: str = "", kind: type[Node] = Node) -> Node:
        """A node, not started."""
        node = kind(self._directory, name or f"node{len(self.all) + 1}", overrides or {})
        node.is_forked = self._are_forked
        self.all.append(node)
        return node

    async def start(self, overrides: dict[str, Any] | None = None, name: str = "") -> Node:
        return await self.make(overrides, name).start()

    def make_federated(
        self, join: list[Node] | None = None, overrides: dict[str, Any] | None = None, kind: type[Node] = Node
    ) -> Node:
        """A node with the plugins admin and federation that joins the others at start."""
        workers = int((overrides or {}).get("workers", 0))
        fed, gossip, http, grpc = (free_port(workers) for _ in range(4))
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
        return self.make(config, config["plugins"]["federation"]["node_name"], kind)

    async def federation(self, count: int, overrides: dict[str, Any] | None = None) -> list[Node]:
        """`count` nodes that list each other as alive and have event streams to each other."""
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
        """Wait until each of the nodes lists the names (default: their own) as alive."""
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


async def status_becomes(node: Node, name: str, status: str, seconds: float = FAILED_SECONDS) -> None:
    """Wait until the node's REST API lists the member with this status."""

    async def is_so() -> bool:
        return (await node.statuses()).get(name) == status

    await eventually(is_so, f"{name} is {status} on {node.name}", seconds)


@contextlib.asynccontextmanager
async def nodes_in(directory: Path) -> AsyncIterator[Nodes]:
    """The nodes of a test. Each must end cleanly. Their logs are printed, so that a failed test shows them."""
    made = Nodes(directory, are_forked=True)
    try:
        yield made
    finally:
        await asyncio.gather(*(node.finish() for node in made.all))
        for node in made.all:
            print(f"--- log of {node.name}\n{node.log()[-8000:]}")
        unclean = [text for node in made.all for text in node.unclean]
        assert not unclean, unclean
