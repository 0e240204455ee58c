"""Live nodes that keep an event log, what they have, and a data set that the load generator publishes on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from cluster import LOOPBACK, ROOT, BenchFailed, Cluster, Ports, Server

from gmqttctl.connection import Connection
from pipeline.client import NodeClient

BENCH: Final = ROOT / "bench"
PROGRAM_SECONDS_MAX: Final = 1800.0
LOGGED_SECONDS_MAX: Final = 60.0

# retention 0: nothing of a measured log may be removed. exclude: of the messages that show that the nodes are ready.
NODE: Final = """\
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
  event_log:
    dir: {folder}
    exclude: [bench/ready]
    sync: commit
    retention: {{age: 0, bytes: 0}}
    hold: {{max_age: 0, max_bytes: 0}}
  kafka: {{listeners: ["127.0.0.1:{kafka}"]}}
plugin_order: [admin, federation, event_log, kafka]
log: {{level: warn, format: text}}
"""
SETTINGS: Final = (
    "nodes at their defaults, but: plugins federation, kafka and event_log with sync commit, retention without limits"
)


@dataclass(frozen=True)
class DataSet:
    """The messages of a data set, and how they are published. `clients`, `window`, `run` of mqtt_publish.py."""

    name: str
    qos: int
    clients: int
    window: int
    run: int

    def arguments(self) -> list[str]:
        options = {"--qos": self.qos, "--clients": self.clients, "--window": self.window, "--run": self.run}
        return [text for option, value in options.items() for text in (option, str(value))]


QOS_0: Final = DataSet("QoS 0 in runs", 0, 10, 1000, 50)
QOS_1: Final = DataSet("QoS 1 one by one", 1, 100, 1, 1)


@dataclass(frozen=True)
class Extent:
    """Records start <= offset < end of a node's log."""

    log_id: str
    start: int
    end: int


class LoggingNodes:
    """Running nodes. Entering starts them; they end with the context.

    names      of the nodes, "gmqttd1" and so on
    mqtt       HOST:PORT of each for clients
    api        HOST:PORT of each node's gRPC API
    kafka      HOST:PORT of each for Kafka clients
    """

    def __init__(self, command: Path, folder: Path, ports: Ports, nodes: int = 2) -> None:
        folder.mkdir(parents=True)
        self.names = [f"gmqttd{number}" for number in range(1, nodes + 1)]
        self.mqtt: list[str] = []
        self.api: list[str] = []
        self.kafka: list[str] = []
        servers: list[Server] = []
        join = ""
        for name in self.names:
            taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip", "kafka")}
            config = folder / f"{name}.yml"
            config.write_text(NODE.format(name=name, join=join, folder=folder / name, **taken))
            join = f'"{LOOPBACK}:{taken["gossip"]}"'
            start = [str(command), "start", "-c", str(config)]
            servers.append(Server(name, start, taken["mqtt"], taken["http"], taken["gossip"]))
            self.mqtt.append(f"{LOOPBACK}:{taken['mqtt']}")
            self.api.append(f"{LOOPBACK}:{taken['grpc']}")
            self.kafka.append(f"{LOOPBACK}:{taken['kafka']}")
        self.cluster = Cluster(servers, folder, joins_late=False)

    def __enter__(self) -> LoggingNodes:
        self.cluster.__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        self.cluster.stop()

    def cpu_seconds(self) -> float:
        """Return what all nodes have used so far."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.cluster.pids)

    def extents(self) -> dict[str, Extent]:
        """Return what each node's log has, by its name."""
        found = {}
        for name, address in zip(self.names, self.api, strict=True):
            with NodeClient(address, Connection((address,)), name) as client:
                log = client.describe()
            found[name] = Extent(log.log_id, log.first_offset, log.next_offset)
        return found

    def publish(self, data: DataSet, messages: int, *arguments: object) -> dict[str, Extent]:
        """Publish the messages, an equal part on each node, all nodes at once. Returns where they are in the logs.

        arguments  more of mqtt_publish.py
        """
        before = self.extents()
        bounds = [messages * number // len(self.names) for number in range(len(self.names) + 1)]
        options = (*data.arguments(), *arguments)
        programs = [
            start_program("mqtt_publish.py", "--to", address, "--first", first, "--messages", end - first, *options)
            for address, first, end in zip(self.mqtt, bounds, bounds[1:], strict=False)
        ]
        published = sum(result_of(program)["messages"] for program in programs)
        after = self.wait_until_logged(before, published)
        return {name: Extent(before[name].log_id, before[name].end, after[name].end) for name in self.names}

    def wait_until_logged(self, before: dict[str, Extent], messages: int) -> dict[str, Extent]:
        """Wait until the logs have these messages more. Raises BenchFailed when they have more, or not soon."""
        until = time.monotonic() + LOGGED_SECONDS_MAX
        while True:
            after = self.extents()
            found = sum(after[name].end - before[name].end for name in self.names)
            if found == messages:
                return after
            if found > messages or time.monotonic() > until:
                raise BenchFailed(f"{messages} messages were published, the logs have {found} of them")
            time.sleep(0.02)


def start_program(name: str, *arguments: object, python: str | Path = sys.executable) -> subprocess.Popen[str]:
    """A program of bench/ that prints one JSON object."""
    command = [str(python), str(BENCH / name), *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def result_of(program: subprocess.Popen[str]) -> dict[str, Any]:
    """Close its standard input and wait for it. Returns what it printed. Raises BenchFailed with its errors when it failed."""
    try:
        output, errors = program.communicate(timeout=PROGRAM_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        program.kill()
        raise BenchFailed(f"not finished after {PROGRAM_SECONDS_MAX:.0f} s: {program.args!r}") from None
    if program.returncode:
        raise BenchFailed(f"{program.args!r}: {errors.strip() or output.strip()}")
    found: dict[str, Any] = json.loads(output)
    return found
