"""scripts/bench cut: two nodes that are cut off from each other under load, and what happens when they are not any more.

The nodes are in network namespaces, with a wire between them that this process cuts. Publishers at both send messages of QoS 1
in an open loop, with readers at both (mqtt_cut.py). Needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cluster import ROOT
from memory import anonymous_bytes

sys.path.append(str(ROOT / "tests" / "support"))
from lossy_network import ADDRESSES, NAMESPACES_MISSING, LossyNetwork, NamespaceNode, namespaces_missing
from waiting import eventually

SECONDS: Final = 120.0
SECONDS_BEFORE: Final = 20.0
HEALED_SECONDS_MAX: Final = 30.0
MEMORY_MAX: Final = 150 * 10**6
LOCAL_RATIO_MAX: Final = 1.5
PORT: Final = 8901
CONFIG: Final[dict[str, Any]] = {
    "mqtt": {"max_queued_messages": 1_000_000, "server_receive_maximum": 65_535},
    "log": {"clients": False},
    "plugin_order": ["admin", "federation"],
}


class CutNode(NamespaceNode):
    """A node of the compiled form."""

    def program(self) -> list[str]:
        return [*super().program()[:-3], str(ROOT / ".venv-fast" / "bin" / "gmqttd")]


def make_node(folder: Path, network: LossyNetwork, number: int, has_store: bool) -> CutNode:
    name = f"n{number + 1}"
    federation = {
        "node_name": name,
        "fed_addr": f"{ADDRESSES[number]}:{PORT}",
        "gossip_addr": f"{ADDRESSES[number]}:{PORT + 1}",
        "retry_join": [f"{ADDRESSES[0]}:{PORT + 1}"] if number else [],
        "retry_interval": "1s",
    }
    more = {"data_dir": str(folder / f"{name}-store")} if has_store else {}
    node = CutNode(folder, name, {**CONFIG, **more, "plugins": {"federation": federation}})
    node.namespace = network.namespaces[number]
    return node


async def all_alive(node: CutNode) -> bool:
    status, answer = await node.rest("GET", "/v1/federation/members")
    return status == 200 and [member["status"] for member in answer["members"]] == ["STATUS_ALIVE"] * 2


def start_load(nodes: list[CutNode], rate: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "bench" / "mqtt_cut.py"), "--rate", str(rate)]
    command += ["--nodes", *[str(node.entry) for node in nodes]]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def measure(nodes: list[CutNode], network: LossyNetwork, options: argparse.Namespace) -> dict[str, Any]:
    """The result of mqtt_cut.py, and the memory of each node in bytes above idle, at its highest."""
    load = start_load(nodes, options.rate)
    assert load.stdin is not None
    assert load.stdout is not None
    try:
        if await asyncio.to_thread(load.stdout.readline) != b"ready\n":
            raise SystemExit("mqtt_cut.py ended before it was ready")
        idle = [anonymous_bytes([node.pid]) for node in nodes]
        peaks = list(idle)
        end = asyncio.create_task(asyncio.to_thread(load.stdout.read))
        steps: list[tuple[float, bytes, Callable[[], None]]] = [
            (SECONDS_BEFORE, b"cut\n", lambda: network.split([0], [1])),
            (options.seconds, b"heal\n", network.heal),
        ]
        at = time.monotonic()
        for seconds, line, act in [*steps, (float("inf"), b"", network.heal)]:
            at += seconds
            while time.monotonic() < at and not end.done():
                await asyncio.wait([end], timeout=min(0.2, max(at - time.monotonic(), 0.0)))
                for number, node in enumerate(nodes):
                    peaks[number] = max(peaks[number], anonymous_bytes([node.pid]))
            if not end.done():
                act()
                load.stdin.write(line)
                load.stdin.flush()
        result: dict[str, Any] = json.loads(await end or b"null") or {}
    finally:
        load.kill()
        load.wait()
    if not result:
        raise SystemExit("mqtt_cut.py has no result")
    result["bytes"] = [peak - base for peak, base in zip(peaks, idle, strict=True)]
    return result


async def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    network = LossyNetwork(0.0, 0.0)
    nodes: list[CutNode] = []
    try:
        network.start()
        for number in range(2):
            nodes.append(make_node(folder, network, number, options.stores))
            await nodes[-1].start()

        async def both_alive() -> bool:
            return await all_alive(nodes[0]) and await all_alive(nodes[1])

        await eventually(both_alive, "both nodes list each other")
        return await measure(nodes, network, options)
    finally:
        for node in nodes:
            if node.process is not None:
                node.process.send_signal(signal.SIGTERM)
                await node.wait_ended()
        network.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench cut", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of the cut (120)")
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second of both publishers (2000)")
    parser.add_argument("--stores", action="store_true", help="nodes with stores")
    options = parser.parse_args()
    if namespaces_missing():
        raise SystemExit(NAMESPACES_MISSING)
    with tempfile.TemporaryDirectory(prefix="gmqttd-bench-") as name:
        result = asyncio.run(run(options, Path(name)))
    memory = max(result["bytes"])
    local = result["local_ms"]
    ratio = local["cut"] / local["before"]
    above = " and ".join(f"{each / 1e6:.0f}" for each in result["bytes"])
    print(
        f"a cut of {options.seconds:g} s under {options.rate:g} messages a second: {result['published']} published, "
        f"{result['acknowledged']} acknowledged, {result['lost']} lost, {result['repeated']} repeated, at most "
        f"{result['unacknowledged']} of a publisher without PUBACK\n"
        f"all there {result['seconds']} s after its end (at most {HEALED_SECONDS_MAX:g}); memory of the nodes {above} MB above "
        f"idle (at most {MEMORY_MAX / 1e6:.0f}); median of local readers {local['before']} ms before, {local['cut']} ms "
        f"during ({ratio:.2f}, at most {LOCAL_RATIO_MAX:g}), {local['heal']} ms after it"
    )
    is_met = not result["lost"] and result["seconds"] <= HEALED_SECONDS_MAX and memory <= MEMORY_MAX
    return 0 if is_met and ratio <= LOCAL_RATIO_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())
