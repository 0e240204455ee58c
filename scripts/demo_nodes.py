"""Nodes of a demo as processes: their configurations, ports, logs, start and stop; calls of their REST API."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
RUN: Final = ROOT / "run" / "demo"
CONFIGS: Final = ("node1_config.yml", "node2_config.yml", "join_node3_config.yml")
START_SECONDS: Final = 20.0
JOIN_SECONDS: Final = 20.0
STOP_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1
LOG_TAIL_LINES: Final = 15


class DemoFailed(Exception):
    """An expected event did not happen. The text names it."""


@dataclass(frozen=True)
class Address:
    """An address of a configuration. `kind` is tcp or udp; `use` is a description."""

    use: str
    kind: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass
class Node:
    name: str
    config: Path
    log: Path
    addresses: list[Address]
    process: subprocess.Popen[bytes] | None = None

    def address(self, use: str) -> Address:
        return next(address for address in self.addresses if address.use == use)


# --- what the reader sees


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def say(text: str) -> None:
    print("\n".join(f"  {line}" for line in text.splitlines()), flush=True)


def show_command(command: list[str], background: bool = False) -> None:
    print(f"  $ {shlex.join(command)}{' &' if background else ''}", flush=True)


# --- the nodes


def split_address(text: str, default_port: int = 0) -> tuple[str, int]:
    host, _, port = text.removeprefix("tcp://").rpartition(":")
    return host.strip("[]") or "127.0.0.1", int(port or default_port)


def read_node(file_name: str) -> Node:
    config = ROOT / "configs" / file_name
    if not config.exists():
        raise DemoFailed(f"{config.relative_to(ROOT)} is missing")
    settings = yaml.safe_load(config.read_text())
    federation = settings["plugins"]["federation"]
    wanted = [
        ("MQTT", "tcp", settings["listeners"][0]["address"]),
        ("REST", "tcp", settings["api"]["http"][0]["address"]),
        ("gRPC API", "tcp", settings["api"]["grpc"][0]["address"]),
        ("federation", "tcp", federation["fed_addr"]),
        ("gossip", "tcp", federation["gossip_addr"]),
        ("gossip", "udp", federation["gossip_addr"]),
    ]
    addresses = [Address(use, kind, *split_address(str(text))) for use, kind, text in wanted]
    name = str(federation["node_name"])
    return Node(name, config, RUN / f"{name}.log", addresses)


def gmqttd_command() -> str:
    """The command of the compiled form when it is built, else of the interpreted form."""
    fast = ROOT / ".venv-fast" / "bin" / "gmqttd"
    is_built = (ROOT / ".venv-fast" / ".gmqttd-build").exists() and fast.exists()
    return str((fast if is_built else ROOT / ".venv" / "bin" / "gmqttd").relative_to(ROOT))


def is_taken(address: Address) -> bool:
    kind = socket.SOCK_STREAM if address.kind == "tcp" else socket.SOCK_DGRAM
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, kind) as probe:
        if address.kind == "tcp":  # as the node does: a port in TIME_WAIT is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            if address.kind == "tcp":
                probe.listen(1)
        except OSError:
            return True
    return False


def owner(address: Address) -> str:
    """The process that uses a port, as far as this user may see it."""
    try:
        for connection in psutil.net_connections(address.kind):
            is_bound = connection.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)
            if is_bound and connection.laddr and connection.laddr.port == address.port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except (psutil.Error, OSError):
        pass
    return "a process that this user may not see"


def check_ports(nodes: list[Node]) -> None:
    taken = [
        f"port {address.port} ({address.use} of {node.name}, {address.kind}) is in use by {owner(address)}"
        for node in nodes
        for address in node.addresses
        if is_taken(address)
    ]
    if taken:
        hint = "Stop it, or change the port in configs/. Nodes of an earlier --keep: scripts/demo --stop"
        raise DemoFailed("\n".join([*taken, hint]))


def start(node: Node, command: str) -> None:
    arguments = [command, "start", "-c", str(node.config.relative_to(ROOT))]
    show_command(arguments, background=True)
    with node.log.open("wb") as log:
        # A session of its own: Ctrl-C reaches the demo only, and the demo stops the nodes.
        node.process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def wait_until(what: str, seconds: float, nodes: list[Node], is_done: Callable[[], bool]) -> float:
    """Wait for a condition. Returns the seconds that it took; raises DemoFailed after `seconds`."""
    started_at = time.monotonic()
    while not is_done():
        for node in nodes:
            if node.process is not None and node.process.poll() is not None:
                raise DemoFailed(f"{node.name} ended with exit status {node.process.returncode}")
        if time.monotonic() - started_at > seconds:
            raise DemoFailed(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - started_at


def accepts(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=1).close()
    except OSError:
        return False
    return True


def stop(nodes: list[Node]) -> bool:
    """Send SIGTERM to all nodes and wait. False when one had to be killed."""
    alive = [node for node in nodes if node.process is not None and node.process.poll() is None]
    if not alive:
        return True
    title("Stop")
    pids = {node.name: node.process.pid for node in alive if node.process is not None}
    show_command(["kill", *[str(pid) for pid in pids.values()]])
    return wait_for_end([psutil.Process(pid) for pid in pids.values()], list(pids))


def wait_for_end(processes: list[psutil.Process], names: list[str]) -> bool:
    started_at = time.monotonic()
    for process in processes:
        process.send_signal(signal.SIGTERM)
    is_clean = True
    for name, process in zip(names, processes, strict=True):
        try:
            status = process.wait(max(0.0, started_at + STOP_SECONDS - time.monotonic()))
            code = "" if status is None else f", exit status {status}"
            say(f"{name} left and stopped after {time.monotonic() - started_at:.1f} s{code}")
            is_clean = is_clean and not status
        except psutil.TimeoutExpired:
            say(f"{name} did NOT stop within {STOP_SECONDS:.0f} s and was killed")
            process.kill()
            is_clean = False
    return is_clean


# --- REST and MQTT


def rest(address: Address, path: str, body: str | None = None) -> str:
    """The text of a REST answer. Ignores the proxy of the environment."""
    request = urllib.request.Request(f"http://{address}{path}", data=None if body is None else body.encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        return str(answer.read().decode())


def members(node: Node) -> list[dict[str, object]]:
    try:
        found = json.loads(rest(node.address("REST"), "/v1/federation/members"))
    except (OSError, ValueError):
        return []
    listed = found.get("members", []) if isinstance(found, dict) else []
    return [member for member in listed if isinstance(member, dict)]


def sees_alive(node: Node, count: int) -> bool:
    return sum(member.get("status") == "STATUS_ALIVE" for member in members(node)) == count


def curl(address: Address, path: str, body: str | None = None) -> str:
    """Print and run a call of curl. Without curl, Python makes the same call."""
    command = ["curl", f"{address}{path}"]
    if body is not None:
        command[1:1] = ["-X", "POST", "-d", body]
    show_command(command)
    if shutil.which("curl"):
        done = subprocess.run(
            [*command, "-sS", "--noproxy", "*"], capture_output=True, text=True, timeout=15, check=False
        )
        if done.returncode != 0:
            raise DemoFailed(f"curl: {done.stderr.strip()}")
        return done.stdout.strip()
    try:
        return rest(address, path, body).strip()
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()
    except OSError as error:
        raise DemoFailed(f"{address}: {error}") from error


def show_logs(nodes: list[Node]) -> None:
    for node in nodes:
        if node.log.exists() and node.process is not None:
            title(f"The end of {node.log.relative_to(ROOT)}")
            say("\n".join(node.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]) or "(empty)")


def start_federation(nodes: list[Node]) -> None:
    """Start the nodes; two find each other, the third is joined over REST."""
    first, second, third = nodes
    command = gmqttd_command()
    title("Start three nodes")
    for node in nodes:
        start(node, command)
    for node in nodes:
        for use in ("MQTT", "REST"):
            address = node.address(use)
            wait_until(f"{use} of {node.name} on {address}", START_SECONDS, nodes, partial(accepts, address))
        say(f"{node.name} serves MQTT on {node.address('MQTT')}, REST on {node.address('REST')}")
    for node in (first, second):
        what = f"{node.name} sees {first.name} and {second.name}"
        wait_until(what, JOIN_SECONDS, nodes, partial(sees_alive, node, 2))
    say(f"{first.name} and {second.name} found each other by retry_join; {third.name} waits to be joined")

    title(f"Join {third.name} over REST, asking {first.name}")
    body = json.dumps({"hosts": [str(third.address("gossip"))]}, separators=(",", ":"))
    answer = curl(first.address("REST"), "/v1/federation/join", body)
    say(answer)
    if answer != "{}":
        raise DemoFailed("the join was not answered with {}")
    took = wait_until("three alive members", JOIN_SECONDS, nodes, lambda: all(sees_alive(node, 3) for node in nodes))
    say(f"all three nodes see three alive members ({took:.1f} s after the answer)")
