"""Start the measured brokers, one node or two, on free loopback ports; end them by their process ids.

The templates below give a reason for every setting that is not a default.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from accounts import write_accounts
from mqtt_load import address, one_publish, open_client, read_packet, subscribe
from rows import GMQTT, MOSQUITTO, NATS, OTHER, OURS, THIS

ROOT: Final = Path(__file__).resolve().parent.parent
LOOPBACK: Final = "127.0.0.1"
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 5.0
LOG_TAIL_LINES: Final = 10
CERT: Final = "cert.pem"

# For this broker and for the Go broker. max_queued_messages: mosquitto has no limit here either, and with the Go broker's
# default of 1000 a queue overflows under 10 publishers. max_subscriptions_per_client: a row needs 100,000; Go has no such key.
# server_receive_maximum: publishers of MQTT 5 may have as many messages on the way as those of 3.1.1, which have no such limit.
GMQTTD: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"{anonymous}}}{listener}]
mqtt: {{max_queued_messages: 100000, max_subscriptions_per_client: 100000, server_receive_maximum: 65535}}
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
{more_keys}plugin_order: [{first}admin, federation{last}]
log: {{level: warn, format: text}}
{store}"""
# Two clusters of one node each; the second one takes what its clients want from the first one.
LINKED: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"}}]
mqtt: {{max_queued_messages: 100000}}
{plugin}log: {{level: warn, format: text}}
{store}"""
LINKS_PLUGIN: Final = """\
plugins:
  links:
    domain: second
    upstreams: {{first: {{uri: "mqtt://127.0.0.1:{first}"}}}}
    policies: {{all: {{pattern: "#", definition: {{federation-upstream: first}}}}}}
plugin_order: [links]
"""
STORE: Final = "data_dir: {folder}\n"
EVENT_LOG: Final = """\
  event_log: {{dir: {folder}, sync: {sync}}}
"""
# The accounts and rules of accounts.py, metrics, and $SYS as often as by default. Anonymous clients are let in beside them.
SECURED: Final = """\
  auth: {{password_file: {passwords}, hash: sha256, acl_file: {acl}}}
  prometheus: {{listen_address: "127.0.0.1:{metrics}"}}
"""

# By transport: a second listener.
GMQTTD_LISTENERS: Final = {
    "": "",
    "tls": ', {{address: "127.0.0.1:{layered}", tls: {{cert: {cert}, key: {key}}}}}',
    "ws": ', {{address: "127.0.0.1:{layered}", websocket: {{path: /mqtt}}}}',
}
MOSQUITTO_LISTENERS: Final = {
    "": "",
    "tls": "listener {layered} 127.0.0.1\ncertfile {cert}\nkeyfile {key}\n",
    "ws": "listener {layered} 127.0.0.1\nprotocol websockets\n",
}

# max_queued_messages 0 (no limit): with 1000, the default, a bridge drops messages of 10 publishers.
# persistence false: this broker writes nothing to disk either. Everything else is mosquitto's default, set_tcp_nodelay false
# too: with true it takes 1.7 times the CPU (8.5 µs a message at QoS 0 instead of 5) and 50 µs of latency instead of 65.
MOSQUITTO_CONFIG: Final = """\
listener {mqtt} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
log_type error
log_type warning
"""

MOSQUITTO_SECURED: Final = "password_file {mosquitto_passwords}\nacl_file {acl}\n"

# cleansession: nothing is kept for a bridge that is disconnected. notifications: no $SYS messages beside the load.
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
NATS_CONFIG: Final = """\
server_name: {name}
listen: "127.0.0.1:{client}"
mqtt {{ listen: "127.0.0.1:{mqtt}" }}
jetstream {{ store_dir: "{folder}", domain: {name} }}
"""
NATS_HUB: Final = 'leafnodes {{ listen: "127.0.0.1:{leaf}" }}\n'
NATS_LEAF: Final = 'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{leaf}" }} ] }}\n'


# One line for the report.
PEER_SETTINGS: Final = (
    "defaults, but: gmqttd and the Go broker with max_queued_messages 100000 and server_receive_maximum 65535; mosquitto with "
    "max_queued_messages 0, persistence false, bridge `topic # in 1` with cleansession true and notifications false; NATS with "
    "JetStream in a temporary folder, a domain for each server, two servers as hub and leaf node; secured: 1,000 accounts with "
    "SHA-2 hashes, an acl_file with 4,000 rules, metrics, $SYS"
)


class BenchFailed(Exception):
    """A measurement is not possible. The text gives the reason."""


def find_program(name: str) -> str | None:
    """The path of a program, or None. Debian installs brokers in /usr/sbin, which is not in every PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


class Ports:
    """Free ports for TCP and UDP, each returned once."""

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
    """One process: its command and its ports. Those but mqtt are 0 for a broker without them."""

    name: str
    command: list[str]
    mqtt: int
    http: int = 0
    gossip: int = 0
    layered: int = 0
    metrics: int = 0


class Cluster:
    """One or two running brokers. Publishers connect to the first node, subscribers to the last."""

    def __init__(self, servers: list[Server], folder: Path, joins_late: bool) -> None:
        self.first = f"{LOOPBACK}:{servers[0].mqtt}"
        self.last = f"{LOOPBACK}:{servers[-1].mqtt}"
        self.http = f"{LOOPBACK}:{servers[-1].http}"  # the last node's
        self.gossip = f"{LOOPBACK}:{servers[0].gossip}"  # the first node's
        self.layered = f"{LOOPBACK}:{servers[0].layered}"  # the first node's listener with the row's transport
        self.metrics = f"{LOOPBACK}:{servers[0].metrics}"
        self.cacert = str(folder / CERT)
        self._servers = servers
        self._folder = folder
        self._is_joined = len(servers) > 1 and not joins_late
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
            if self._is_joined:
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

    def _names(self) -> str:
        return " and ".join(server.name for server in self._servers)

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
        """Wait until each node with a REST API lists both as ALIVE and a message has passed."""
        until = time.monotonic() + READY_SECONDS
        while not all(count_alive(server.http) == len(self._servers) for server in self._servers if server.http):
            self.check_alive()
            if time.monotonic() > until:
                raise BenchFailed(f"{self._names()} do not list each other after {READY_SECONDS:.0f} s")
            time.sleep(0.1)
        if not message_comes_through(self.first, self.last, until):
            raise BenchFailed(f"no message passes between {self._names()} after {READY_SECONDS:.0f} s")


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


# --- the configurations


def make_certificate(folder: Path) -> dict[str, Path]:
    """The files of a certificate for localhost that signs itself, and its key."""
    files = {"cert": folder / CERT, "key": folder / "key.pem"}
    program = find_program("openssl")
    if program is None:
        raise BenchFailed("no openssl, which makes the certificate: sudo apt-get install openssl")
    subprocess.run(
        [
            *(
                program,
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(files["key"]), "-out", str(files["cert"])),
        ],
        check=True,
        capture_output=True,
    )
    files["key"].chmod(0o644)  # mosquitto reads it as another user
    return files


def gmqttd_servers(
    nodes: int,
    folder: Path,
    ports: Ports,
    command: Path,
    joins_late: bool,
    log: str,
    transport: str,
    has_store: bool,
    is_secured: bool,
) -> list[Server]:
    servers: list[Server] = []
    join = ""
    files = make_certificate(folder) if transport == "tls" else {}
    for number in range(1, nodes + 1):
        name = f"gmqttd{number}"
        taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip")}
        layered = ports.take() if transport else 0
        listener = GMQTTD_LISTENERS[transport].format(layered=layered, **files)
        config = folder / f"{name}.yml"
        keys = EVENT_LOG.format(folder=folder / f"{name}-log", sync=log) if log else ""
        metrics = ports.take() if is_secured else 0
        if is_secured:
            keys += SECURED.format(metrics=metrics, **write_accounts(folder))
        text = GMQTTD.format(
            name=name,
            join=join,
            listener=listener,
            anonymous=", allow_anonymous: true" if is_secured else "",
            first="auth, prometheus, " if is_secured else "",
            last=", event_log" if log else "",
            more_keys=keys,
            store=STORE.format(folder=folder / f"{name}-store") if has_store else "",
            **taken,
        )
        config.write_text(text)
        join = "" if joins_late else f'"{LOOPBACK}:{taken["gossip"]}"'
        start = [str(command), "start", "-c", str(config)]
        servers.append(Server(name, start, taken["mqtt"], taken["http"], taken["gossip"], layered, metrics))
    return servers


def linked_servers(folder: Path, ports: Ports, command: Path, has_store: bool) -> list[Server]:
    """Two single nodes; the second one has a link to the first one."""
    servers: list[Server] = []
    for name in ("upstream", "downstream"):
        mqtt = ports.take()
        plugin = LINKS_PLUGIN.format(first=servers[0].mqtt) if servers else "plugin_order: []\n"
        store = STORE.format(folder=folder / f"{name}-store") if has_store else ""
        config = folder / f"{name}.yml"
        config.write_text(LINKED.format(mqtt=mqtt, plugin=plugin, store=store))
        servers.append(Server(name, [str(command), "start", "-c", str(config)], mqtt))
    return servers


def mosquitto_servers(
    nodes: int, folder: Path, ports: Ports, command: Path, transport: str, is_secured: bool
) -> list[Server]:
    servers: list[Server] = []
    files = make_certificate(folder) if transport == "tls" else {}
    for number in range(1, nodes + 1):
        name = f"mosquitto{number}"
        mqtt = ports.take()
        layered = ports.take() if transport else 0
        text = MOSQUITTO_CONFIG.format(mqtt=mqtt) + MOSQUITTO_LISTENERS[transport].format(layered=layered, **files)
        if is_secured:
            text += MOSQUITTO_SECURED.format(**write_accounts(folder))
        if servers:
            text += MOSQUITTO_BRIDGE.format(first=servers[0].mqtt)
        config = folder / f"{name}.conf"
        config.write_text(text)
        servers.append(Server(name, [str(command), "-c", str(config)], mqtt, layered=layered))
    return servers


def nats_servers(nodes: int, folder: Path, ports: Ports, command: Path) -> list[Server]:
    servers: list[Server] = []
    leaf = ports.take()
    for number in range(1, nodes + 1):
        name = f"nats{number}"
        mqtt = ports.take()
        text = NATS_CONFIG.format(name=name, client=ports.take(), mqtt=mqtt, folder=folder / name)
        if nodes > 1:
            text += (NATS_LEAF if servers else NATS_HUB).format(leaf=leaf)
        config = folder / f"{name}.conf"
        config.write_text(text)
        servers.append(Server(name, [str(command), "-c", str(config)], mqtt))
    return servers


def make_cluster(
    participant: str,
    command: Path,
    folder: Path,
    ports: Ports,
    nodes: int,
    joins_late: bool = False,
    log: str = "",
    transport: str = "",
    has_store: bool = False,
    secured: Sequence[str] = (),
    is_linked: bool = False,
) -> Cluster:
    """Write the configuration files. Entering the cluster starts the processes. `log` and `has_store` are for this checkout
    only, and `secured` names the participants with accounts and topic rules."""
    is_secured = participant in secured
    folder.mkdir(parents=True)
    if participant == MOSQUITTO:
        servers = mosquitto_servers(nodes, folder, ports, command, transport, is_secured)
    elif participant == NATS:
        servers = nats_servers(nodes, folder, ports, command)
    elif is_linked:
        servers = linked_servers(folder, ports, command, has_store and participant == THIS)
    else:
        assert participant in (*OURS, OTHER, GMQTT)
        own_log = log if participant == THIS else ""
        own_store = has_store and participant == THIS
        servers = gmqttd_servers(nodes, folder, ports, command, joins_late, own_log, transport, own_store, is_secured)
    return Cluster(servers, folder, joins_late)
