"""scripts/bench gossip: what membership costs a node that has nothing else to do, and what garbage at its port costs clients.

Idle: CPU of one whole node in a cluster of --members over --seconds, plain and encrypted; the other members are bare ones in
one process. The figure is CPU time of the process, which other work on the machine changes little.

Garbage: the latency of one pair of clients, in turns with and without --rate packets a second that are no gossip.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from cluster import LOOPBACK, ROOT, BenchFailed, Cluster, Ports, Server, count_alive
from mqtt_load import cpu_seconds

IDLE_SHARE_MAX: Final = 0.003  # of a core
ENCRYPTED_SHARE_MAX: Final = 0.005
LATENCY_RATIO_MAX: Final = 1.5
JOIN_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 20.0
KEY: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
HERE: Final = Path(__file__).resolve().parent
CONFIG: Final = """\
listeners: [{{address: "127.0.0.1:{mqtt}"}}]
api:
  grpc: [{{address: "tcp://127.0.0.1:{grpc}"}}]
  http: [{{address: "tcp://127.0.0.1:{http}", map: "tcp://127.0.0.1:{grpc}"}}]
plugins:
  federation:
    node_name: measured
    fed_addr: 127.0.0.1:{federation}
    gossip_addr: 127.0.0.1:{gossip}
    encrypt_keys: [{keys}]
  prometheus: {{listen_address: "127.0.0.1:{metrics}"}}
plugin_order: [admin, prometheus, federation]
log: {{level: info, format: text, clients: false}}
"""


def make_node(folder: Path, ports: Ports, gmqttd: Path, key: str) -> Server:
    taken = {use: ports.take() for use in ("mqtt", "grpc", "http", "federation", "gossip", "metrics")}
    config = folder / "measured.yml"
    config.write_text(CONFIG.format(keys=key, **taken))
    command = [str(gmqttd), "start", "-c", str(config)]
    return Server("measured", command, taken["mqtt"], taken["http"], taken["gossip"], metrics=taken["metrics"])


@contextmanager
def beside(*arguments: str) -> Iterator[None]:
    """Run gossip_load.py meanwhile."""
    command = [sys.executable, str(HERE / "gossip_load.py"), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        if process.poll() is not None:
            raise BenchFailed(f"gossip_load.py ended with {process.returncode}")
    finally:
        process.terminate()
        process.wait()


def idle_share(folder: Path, ports: Ports, gmqttd: Path, members: int, seconds: float, key: str) -> float:
    """CPU seconds a second of the node."""
    server = make_node(folder, ports, gmqttd, key)
    with (
        Cluster([server], folder) as cluster,
        beside("members", "--to", cluster.gossip, "--count", str(members - 1), "--key", key),
    ):
        until = time.monotonic() + JOIN_SECONDS
        while count_alive(server.http) != members:
            cluster.check_alive()
            if time.monotonic() > until:
                raise BenchFailed(f"{count_alive(server.http)} members are alive, not {members}")
            time.sleep(0.5)
        time.sleep(SETTLE_SECONDS)
        cpu, began = cpu_seconds(cluster.pids), time.perf_counter()
        time.sleep(seconds)
        return (cpu_seconds(cluster.pids) - cpu) / (time.perf_counter() - began)


def latency_us(cluster: Cluster, messages: int) -> float:
    """The median of one pair of clients."""
    load = [sys.executable, str(HERE / "mqtt_load.py"), "--pub", cluster.first, "--latency", "--clients", "1"]
    found = subprocess.run([*load, "--messages", str(messages)], capture_output=True, check=True, text=True)
    result = json.loads(found.stdout)
    if result["lost"]:
        raise BenchFailed(f"{result['lost']} messages were lost")
    return float(result["latency_us"]["p50"])


def packets_received(server: Server) -> float:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{server.metrics}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("gmqtt_gossip_packets_received_total "):
                return float(line.rpartition(" ")[2])
    raise BenchFailed("no count of packets in the metrics")


def latency_pairs(
    folder: Path, ports: Ports, gmqttd: Path, rounds: int, messages: int, rate: int
) -> tuple[list[tuple[float, float]], float]:
    """Medians without and with garbage, in microseconds, and the packets of it that the node read each second."""
    server = make_node(folder, ports, gmqttd, "")
    pairs: list[tuple[float, float]] = []
    seen = seconds = 0.0
    with Cluster([server], folder) as cluster:
        latency_us(cluster, messages)  # not counted
        for _ in range(rounds):
            without = latency_us(cluster, messages)
            with beside("flood", "--to", cluster.gossip, "--rate", str(rate)):
                time.sleep(1.0)
                before, began = packets_received(server), time.perf_counter()
                pairs.append((without, latency_us(cluster, messages)))
                seen += packets_received(server) - before
                seconds += time.perf_counter() - began
    return pairs, seen / seconds


def verdict(value: float, largest: float) -> str:
    return "ok" if value <= largest else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench gossip", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measured idleness (60)")
    parser.add_argument("--rounds", type=int, default=9, help="pairs of latencies (9)")
    parser.add_argument("--messages", type=int, default=3000, help="of each latency, 1,000 a second (3000)")
    parser.add_argument("--rate", type=int, default=50_000, help="packets of garbage a second (50000)")
    parser.add_argument("--only", choices=("idle", "garbage"))
    parser.add_argument("--interpreted", action="store_true", help="measure the sources")
    options = parser.parse_args()
    gmqttd = ROOT / (".venv" if options.interpreted else ".venv-fast") / "bin" / "gmqttd"
    is_met = True
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as name:
        folder, ports = Path(name), Ports()
        try:
            for text, key, largest in (("plain", "", IDLE_SHARE_MAX), ("encrypted", KEY, ENCRYPTED_SHARE_MAX)):
                if options.only == "garbage":
                    continue
                share = idle_share(folder, ports, gmqttd, options.members, options.seconds, key)
                is_met &= share <= largest
                print(
                    f"idle, {options.members} members, {text}: {share * 100:.2f} % of a core "
                    f"({verdict(share, largest)}, at most {largest * 100:g} %)",
                    flush=True,
                )
            if options.only != "idle":
                pairs, seen = latency_pairs(folder, ports, gmqttd, options.rounds, options.messages, options.rate)
                ratio = median(with_it / without for without, with_it in pairs)
                is_met &= ratio <= LATENCY_RATIO_MAX
                print(
                    f"{seen:.0f} packets of garbage a second read: median latency "
                    f"{median(pair[0] for pair in pairs):.0f} µs without, {median(pair[1] for pair in pairs):.0f} µs with, "
                    f"ratio {ratio:.2f} ({verdict(ratio, LATENCY_RATIO_MAX)}, at most {LATENCY_RATIO_MAX:g})"
                )
        except BenchFailed as fault:
            print(f"bench: {fault}", file=sys.stderr)
            return 2
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
