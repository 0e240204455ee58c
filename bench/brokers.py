"""Starts the brokers that are measured, alone or as two nodes, on free loopback ports, and ends them by their pids.

Every setting that is not a default stands in the templates below with its reason.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from mqtt_load import address, one_publish, open_client, read_packet, subscribe

ROOT: Final = Path(__file__).resolve().parent.parent
LOOPBACK: Final = "127.0.0.1"
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
LOG_TAIL_LINES: Final = 10

GMQTTD: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"}}]
api:
  grpc: [{{address: "tcp://127.0.0.1:{grpc}"}}]
  http: [{{address: "tcp://127.0.0.1:{http}", map: "tcp://127.0.0.1:{grpc}"}}]
plugins:
  federation:
    node_name: {name}
    fed_addr: 127.0.0.1:{federation}
    gossip_addr: 127.0.0.1:{gossip}
    retry_join: [{join}]
    retry_interval: 1s
plugin_order: [admin, federation]
log: {{level: warn, format: text}}
"""

# max_queued_messages 0 (no limit): with 1000, the default, a bridge drops what 10 publishers have on the way.
# persistence false: nothing of ours is on disk either. All else is mosquitto's default, set_tcp_nodelay false too: true
# costs it 1.7 times the CPU (8.5 µs a message at QoS 0 and not 5) and wins 15 µs of its latency of 65.
MOSQUITTO: Final = """\
listener {mqtt} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
log_type error
log_type warning
"""

# cleansession: nothing is kept for a bridge that is away. notifications: no $SYS messages beside the load.
MOSQUITTO_BRIDGE: Final = """\
connection first
address 127.0.0.1:{first}
topic # in 1
bridge_protocol_version mqttv311
cleansession true
notifications false
restart_timeout 1
"""

# NATS demands server_name and JetStream for MQTT; a domain of its own for each server keeps MQTT's streams apart.
NATS: Final = """\
server_name: {name}
listen: "127.0.0.1:{client}"
mqtt {{ listen: "127.0.0.1:{mqtt}" }}
jetstream {{ store_dir: "{folder}", domain: {name} }}
"""
NATS_HUB: Final = 'leafnodes {{ listen: "127.0.0.1:{leaf}" }}\n'
NATS_LEAF: Final = 'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leaf}" }} ] }}\n'


# One line for the report.
PEER_SETTINGS: Final = (
    "peers at their defaults, but: mosquitto with max_queued_messages 0, persistence false, bridge `topic # in 1` with "
    "cleansession true and notifications false; NATS with JetStream in a temporary folder, a domain for each server, "
    "two servers as hub and leaf node"
)


class BenchFailed(Exception):
    """It could not be measured; the text says why."""


def find_program(name: str) -> str | None:
    """Debian has brokers in /usr/sbin, which is not on everyone's path."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


class Ports:
    """Free ports for TCP and UDP, none handed out twice."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self) -> int:
        for _ in range(1000):
            with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                tcp.bind((LOOPBACK, 0))
                port = int(tcp.getsockname()[1])
                try:
                    udp.bind((LOOPBACK, port))
                except OSError:
                    continue
            if port not in self._taken:
                self._taken.add(port)
                return port
        raise BenchFailed("no free port on loopback")


@dataclass(frozen=True)
class Server:
    """One process: its command, and the port of its MQTT listener; http is 0 where there is no REST."""

    name: str
    command: list[str]
    mqtt: int
    http: int = 0


class Cluster:
    """One broker or two that are joined, while it runs. Publishers connect to the first node, subscribers to the last."""

    def __init__(self, kind: str, servers: list[Server], folder: Path) -> None:
        self.kind = kind
        self.publish_at = f"{LOOPBACK}:{servers[0].mqtt}"
        self.subscribe_at = f"{LOOPBACK}:{servers[-1].mqtt}"
        self._servers = servers
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def __enter__(self) -> Cluster:
        try:
            for server in self._servers:
                with self._log(server).open("wb") as log:
                    # A session of its own: Ctrl-C ends the bench, and the bench ends its brokers.
                    process = subprocess.Popen(
                        server.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
                self._processes.append(process)
                self._wait_until_ready(server)
            if len(self._servers) > 1:
                self._wait_until_joined()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def check_alive(self) -> None:
        for server, process in zip(self._servers, self._processes, strict=False):
            if process.poll() is not None:
                raise BenchFailed(f"{server.name} ended with {process.returncode}\n{self._log_tail(server)}")

    def _log(self, server: Server) -> Path:
        return self._folder / f"{server.name}.log"

    def _log_tail(self, server: Server) -> str:
        return "\n".join(self._log(server).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _wait_until_ready(self, server: Server) -> None:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            self.check_alive()
            try:
                open_client((LOOPBACK, server.mqtt), f"ready-{server.mqtt}").close()
            except (SystemExit, OSError):
                time.sleep(0.05)
            else:
                return
        raise BenchFailed(f"{server.name} is not ready after {READY_SECONDS:.0f} s\n{self._log_tail(server)}")

    def _wait_until_joined(self) -> None:
        """Two nodes are joined when each lists both alive (where there is REST) and a message has come through."""
        until = time.monotonic() + READY_SECONDS
        while not all(count_alive(server.http) == len(self._servers) for server in self._servers if server.http):
            self.check_alive()
            if time.monotonic() > until:
                raise BenchFailed(f"two nodes of {self.kind} do not list each other after {READY_SECONDS:.0f} s")
            time.sleep(0.1)
        if not message_comes_through(self.publish_at, self.subscribe_at, until):
            raise BenchFailed(f"no message passes between two nodes of {self.kind} after {READY_SECONDS:.0f} s")


def count_alive(http: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{LOOPBACK}:{http}/v1/federation/members", timeout=5) as answer:
            members = json.load(answer).get("members", [])
    except (OSError, ValueError):
        return 0
    return sum(member.get("status") == "STATUS_ALIVE" for member in members)


def message_comes_through(publish_at: str, subscribe_at: str, until: float) -> bool:
    topic = "bench/ready"
    encoded, _ = one_publish(topic, 0, struct.pack("!d", until))
    subscriber = open_client(address(subscribe_at), "ready-subscriber")
    publisher = open_client(address(publish_at), "ready-publisher")
    with subscriber, publisher:
        subscribe(subscriber, topic, 0)
        subscriber.settimeout(0.2)
        while time.monotonic() < until:
            publisher.sendall(encoded)
            try:
                read_packet(subscriber)
            except TimeoutError:
                continue
            return True
    return False


# --- the three kinds


def gmqttd_servers(nodes: int, folder: Path, ports: Ports, command: Path) -> list[Server]:
    servers: list[Server] = []
    join = ""
    for number in range(1, nodes + 1):
        name = f"gmqttd{number}"
        taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip")}
        config = folder / f"{name}.yml"
        config.write_text(GMQTTD.format(name=name, join=join, **taken))
        join = f'"{LOOPBACK}:{taken["gossip"]}"'
        servers.append(Server(name, [str(command), "start", "-c", str(config)], taken["mqtt"], taken["http"]))
    return servers


def mosquitto_servers(nodes: int, folder: Path, ports: Ports, command: Path) -> list[Server]:
    servers: list[Server] = []
    for number in range(1, nodes + 1):
        name = f"mosquitto{number}"
        mqtt = ports.take()
        text = MOSQUITTO.format(mqtt=mqtt)
        if servers:
            text += MOSQUITTO_BRIDGE.format(first=servers[0].mqtt)
        config = folder / f"{name}.conf"
        config.write_text(text)
        servers.append(Server(name, [str(command), "-c", str(config)], mqtt))
    return servers


def nats_servers(nodes: int, folder: Path, ports: Ports, command: Path) -> list[Server]:
    servers: list[Server] = []
    leaf = ports.take()
    for number in range(1, nodes + 1):
        name = f"nats{number}"
        mqtt = ports.take()
        text = NATS.format(name=name, client=ports.take(), mqtt=mqtt, folder=folder / name)
        if nodes > 1:
            text += (NATS_LEAF if servers else NATS_HUB).format(leaf=leaf)
        config = folder / f"{name}.conf"
        config.write_text(text)
        servers.append(Server(name, [str(command), "-c", str(config)], mqtt))
    return servers


MAKERS: Final = {"gmqttd": gmqttd_servers, "mosquitto": mosquitto_servers, "nats": nats_servers}


def make_cluster(kind: str, nodes: int, folder: Path, ports: Ports, command: Path) -> Cluster:
    folder.mkdir(parents=True)
    return Cluster(kind, MAKERS[kind](nodes, folder, ports, command), folder)
