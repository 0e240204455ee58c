"""`scripts/simulate gossip`: clusters of many nodes on virtual time, what they cost and how fast they learn.

  scripts/simulate gossip                                   10 to 1,000 nodes, a table
  scripts/simulate gossip --nodes 5000                      one size; repeat the option for more of them
  scripts/simulate gossip --loss 0.1 --churn 30             a tenth of all packets is lost, 30 nodes crash a minute and return
  scripts/simulate gossip --plot docs/gossip-scale.svg      draws the table, beside the figures of the papers
  scripts/simulate gossip --slow                            nodes with slow messages: SWIM beside Lifeguard, 128 nodes

Each run checks that no incarnation goes back, that nobody who failed is back without a refutation, and that a name belongs to
one machine. Exit status 1 with the seed and the virtual time when one of these does not hold.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, Final

from federation.gossip.config import LAN
from federation.gossip.suspicion import suspicion_timeout
from simulator.gossip_measures import SWIM, Measures, measure, slow_nodes

SIZES: Final = (10, 30, 100, 300, 1000)
SWIM_FIRST_DETECTION: Final = math.e / (math.e - 1)
"""Protocol periods until some member probes one that has crashed, in a large cluster (Das, Gupta, Motivala: SWIM, DSN 2002)."""
SLOW_NODES: Final = 128  # as in Lifeguard's experiments (Dadgar, Phillips, Currey, arXiv:1707.00788)
SLOW_CASES: Final = ((4, 8.0), (16, 8.0), (16, 16.0), (32, 16.0))
HEAD: Final = (
    "  nodes  packets/s  bytes/s  streams B/s  suspected  failed first  known to all  joined  healed  false"
    "  CPU s    MiB"
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate gossip", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, action="append", help="size of the cluster (may be repeated)")
    parser.add_argument("--loss", type=float, default=0.0, help="probability that a packet is lost")
    parser.add_argument("--churn", type=float, default=0.0, help="crashes, and returns, a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="write this SVG")
    parser.add_argument("--no-partition", action="store_true", help="leave the longest phase out")
    parser.add_argument("--slow", action="store_true", help="SWIM beside Lifeguard, with nodes whose messages wait")
    options = parser.parse_args(arguments)
    sizes = options.nodes or list(SIZES)
    if min(sizes) < 4:
        parser.error("--nodes: at least 4, so that a part of them can be cut off")
    try:
        if options.slow:
            _print_slow(options.seed)
            return 0
        print(HEAD)
        found: list[Measures] = []
        for nodes in sizes:
            found.append(measure(nodes, options.seed, options.loss, options.churn, not options.no_partition))
            print(_row(found[-1]), flush=True)
    except AssertionError as error:
        print(error)
        return 1
    if options.plot is not None:
        _plot(found, options.plot)
    return 0


def _row(measures: Measures) -> str:
    return (
        f"{measures.nodes:7}  {measures.packets:9.2f}  {measures.packet_bytes:7.0f}  {measures.stream_bytes:11.0f}"
        f"  {measures.suspected():7.1f} s  {measures.first():10.1f} s  {measures.last():10.1f} s"
        f"  {measures.joined:4.1f} s  {measures.healed:4.1f} s  {measures.false:5}  {measures.cpu:5.0f}  {measures.memory:5.0f}"
    )


def _print_slow(seed: int) -> None:
    """Lifeguard's paper reports less than a fiftieth of SWIM's false failures over all of its cases."""
    print(f"{SLOW_NODES} nodes; messages of some wait, again and again, for two minutes")
    print("  slow nodes  wait for   false failures: SWIM  Lifeguard")
    sums = [0, 0]
    for slow, seconds in SLOW_CASES:
        counts = [slow_nodes(profile, seed, SLOW_NODES, slow, seconds) for profile in (SWIM, LAN)]
        sums = [sums[0] + counts[0], sums[1] + counts[1]]
        print(f"  {slow:10}  {seconds:7.0f} s  {counts[0]:20}  {counts[1]:9}", flush=True)
    print(f"  all of them           {sums[0]:20}  {sums[1]:9}")


def _plot(found: list[Measures], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gossip"  # the same figures give the same bytes
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), layout="constrained")
    nodes = [measures.nodes for measures in found]
    period = LAN.probe_interval

    detection = axes[0][0]
    detection.plot(nodes, [m.suspected() for m in found], "o-", label="first suspicion")
    detection.plot(nodes, [m.first() for m in found], "s-", label="first node that holds it for failed")
    detection.plot(nodes, [m.last() for m in found], "^-", label="last node that does")
    detection.axhline(SWIM_FIRST_DETECTION * period, ls=":", c="grey", label="SWIM: e/(e-1) periods to the first probe")
    shortest = [suspicion_timeout(LAN.suspicion_mult, n, period) for n in nodes]
    detection.plot(nodes, shortest, ":", c="black", label="shortest suspicion")
    _finish(detection, "a crash", "seconds")

    spread = axes[0][1]
    spread.plot(nodes, [m.last() - m.first() for m in found], "o-", label="failed: from the first node to the last")
    spread.plot(nodes, [m.joined for m in found], "s-", label="joined: until all know all")
    rounds = [LAN.gossip_interval * math.log(n) / math.log(1 + LAN.gossip_nodes) for n in nodes]
    spread.plot(nodes, rounds, ":", c="grey", label="SWIM: O(log N); here rounds in which each node tells three")
    _finish(spread, "how news spread", "seconds")

    load = axes[1][0]
    load.plot(nodes, [m.packet_bytes for m in found], "o-", label="packets")
    load.plot(nodes, [m.stream_bytes for m in found], "s-", label="push-pulls")
    load.plot(nodes, [100 * m.packets for m in found], "^-", label="number of packets, times 100 (SWIM: constant)")
    _finish(load, "sent by each node while nothing happens", "bytes a second")
    load.set_yscale("log")
    load.set_ylim(bottom=10)

    healed = axes[1][1]
    healed.plot(nodes, [m.healed for m in found], "o-", label="until all hold all for alive again")
    longest = [LAN.suspicion_max_timeout_mult * timeout for timeout in shortest]
    healed.plot(nodes, longest, ":", c="black", label="longest suspicion: it may begin just before the end")
    _finish(healed, "the end of a partition of 30 s that cut off ten nodes", "seconds")

    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")


def _finish(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xlabel("nodes")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
