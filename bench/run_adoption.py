"""scripts/bench adoption: how long the sessions of a lost node take until another node has adopted all of them.

Two nodes with stores, each the keeper of the other one's copy. One is started with many stored sessions, each with one
subscription and some queued messages. When its copy is whole it is killed. Meanwhile a client of the other one sends PINGREQs.
At the end a client of the last session connects there and gets its messages.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

from cluster import LOOPBACK, ROOT, Cluster, Ports, Server
from memory import tree_bytes
from mqtt_load import cpu_seconds
from mqtt_stall import LOOK_SECONDS, Pings
from run_store import first_messages, write_store

ADOPT_AFTER: Final = 5.0
SECONDS_MAX: Final = 30.0  # after adopt_after
PING_MS_MAX: Final = 250.0
DEADLINE: Final = 300.0
CONFIG: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"}}]
mqtt: {{max_queued_messages: 100000, session_expiry: 24h, message_expiry: 24h}}
data_dir: {folder}
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
    replication: {{adopt_after: {adopt_after}s}}
  prometheus: {{listen_address: "127.0.0.1:{metrics}"}}
plugin_order: [admin, prometheus, federation]
log: {{level: info, format: text, clients: false}}
"""


def make_node(name: str, folder: Path, ports: Ports, join: str) -> tuple[Server, int]:
    """The node and the port of its metrics."""
    taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip", "metrics")}
    config = folder / f"{name}.yml"
    config.write_text(CONFIG.format(name=name, folder=folder / name, join=join, adopt_after=ADOPT_AFTER, **taken))
    command = [str(ROOT / ".venv-fast/bin/gmqttd"), "start", "-c", str(config)]
    return Server(name, command, taken["mqtt"], taken["http"], taken["gossip"]), taken["metrics"]


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"no {name} in the metrics")
    return float(found[1])


def wait_for(port: int, name: str, value: float) -> float:
    """Return when the metric has at least this value."""
    until = time.perf_counter() + DEADLINE
    while metric(port, name) < value:
        if time.perf_counter() > until:
            raise SystemExit(f"{name} is {metric(port, name):g} after {DEADLINE:g} s, not {value:g}")
        time.sleep(0.1)
    return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench adoption", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--messages", type=int, default=1, help="of each session (1)")
    options = parser.parse_args()
    sessions = options.sessions
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as name:
        folder = Path(name)
        ports = Ports()
        write_store(folder / "lost", sessions, options.messages)
        adopter, metrics = make_node("adopter", folder, ports, "")
        lost, lost_metrics = make_node("lost", folder, ports, f'"{LOOPBACK}:{adopter.gossip}"')
        begun = time.perf_counter()
        with Cluster([adopter, lost], folder) as cluster:
            whole_at = wait_for(lost_metrics, "gmqtt_copies_whole", 1)
            pids = cluster.pids
            print(
                f"{sessions} sessions of {options.messages} messages: the copy is whole {whole_at - begun:.1f} s after the "
                f"start, {tree_bytes(pids[0]) / 2**20:.0f} MiB at the keeper",
                flush=True,
            )
            pings = Pings([f"{LOOPBACK}:{adopter.mqtt}"], 0.02)
            pings.start()
            cpu = cpu_seconds(pids[:1])
            os.kill(pids[1], signal.SIGKILL)
            killed_at = time.perf_counter()
            first_at = wait_for(metrics, "gmqtt_sessions_adopted_total", 1)
            all_at = wait_for(metrics, "gmqtt_sessions_adopted_total", sessions)
            time.sleep(LOOK_SECONDS)
            cpu = cpu_seconds(pids[:1]) - cpu
            pings.stop.set()
            pings.join()
            resident = tree_bytes(pids[0])
            first_messages(adopter.mqtt, f"device-{sessions - 1}", options.messages, time.perf_counter() + DEADLINE)
    seconds = all_at - first_at
    longest = max(pings.seconds) * 1e3
    print(
        f"killed; the first one adopted after {first_at - killed_at:.1f} s (adopt_after {ADOPT_AFTER:g} s), all of them "
        f"{seconds:.1f} s later ({'ok' if seconds <= SECONDS_MAX else f'MISSED: {SECONDS_MAX:g} s'}), {cpu:.1f} s of CPU, "
        f"{resident / 2**20:.0f} MiB; PINGREQ meanwhile at most {longest:.0f} ms "
        f"({'ok' if longest <= PING_MS_MAX else f'MISSED: {PING_MS_MAX:g} ms'})"
    )
    return 0 if seconds <= SECONDS_MAX and longest <= PING_MS_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())
