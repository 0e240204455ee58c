"""The command scripts/chaos: see there."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from chaos_report import Report
from chaos_run import ChaosRun
from client_library import kafka_jars
from clock_node import ClockNode
from failover_run import PAUSES, FailoverReport, run_failovers
from federation_report import FederationReport
from federation_run import NODES, FederationRun
from federation_schedule import draw_incidents as draw_federation
from job_run import QUERIES, compare
from link_run import LinkReport, LinkRun
from link_schedule import draw_incidents
from linked_domains import CASES
from lossy_network import NAMESPACES_MISSING, LossyNetwork, namespaces_missing
from node_process import Node
from other_schedules import clock_steps_back, node_away
from schedule import OWN_VICTIMS, Plan, Reader
from store_run import StoreReport, run_store
from topology_run import TopologyReport, run_topologies

JOB_MESSAGES: Final = 60_000
NOTHING_LOST: Final = "nothing was lost or doubled"


def say(text: str) -> None:
    print(text, flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description="Shows that a pipeline, a node with a store or links lose nothing."
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    jobs = kinds.add_parser("jobs", help=f"kill -9 of the drivers of {', '.join(QUERIES)}")
    jobs.add_argument("--messages", type=int, default=JOB_MESSAGES, help=f"in the logs ({JOB_MESSAGES})")
    jobs.add_argument("--kills", type=int, default=6, help="of each job (6)")
    jobs.add_argument("--seed", type=int, default=1, help="of the messages, and of the moments (1)")
    jobs.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(QUERIES)} (all)")
    jobs.add_argument("--dir", type=Path, help="a new folder for tables and checkpoints, which is kept")
    pipeline = kinds.add_parser("pipeline", help="kill -9 of drivers, workers and nodes at random moments")
    away = kinds.add_parser("away", help="a node is stopped for a while")
    clock = kinds.add_parser("clock", help="the clock of a node steps back by an hour")
    for kind, messages, rate in ((pipeline, 500_000, 2_000.0), (away, 20_000, 500.0), (clock, 20_000, 500.0)):
        kind.add_argument("--messages", type=int, default=messages, help=f"at least so many are published ({messages})")
        kind.add_argument("--rate", type=float, default=rate, help=f"messages a second ({rate:.0f})")
        kind.add_argument("--seed", type=int, default=1, help="of the messages, and of what is killed when (1)")
        kind.add_argument("--nodes", type=int, default=3, help="2 or more (3)")
        kind.add_argument("--dir", type=Path, help="a new folder for logs, archive and checkpoints, which is kept")
    pipeline.add_argument("--kills", type=int, default=20, help="how many (20)")
    pipeline.add_argument(
        "--reader",
        type=Reader,
        choices=list(Reader),
        default=Reader.SOURCE,
        help="what reads the logs: the data source in a stream, beside a query that writes through the sink (source); alone: "
        "batches with filters that are pushed down, Spark's Kafka source, a subscription to $stream/",
    )
    away.add_argument("--seconds", type=float, default=600.0, help="how long the node is away (600)")
    store = kinds.add_parser("store", help="kill -9 of a node with a store under QoS 1 and 2 traffic")
    store.add_argument("--kills", type=int, default=50, help="how many (50)")
    store.add_argument("--seed", type=int, default=1, help="of the moments of the kills (1)")
    store.add_argument(
        "--redis", action="store_true", help="the store is a Redis, which is killed by turns with the node"
    )
    store.add_argument("--dir", type=Path, help="a new folder for logs and the store, which is kept")
    links = kinds.add_parser(
        "links", help="the upstream of a link is away, and the nodes that run it die, stop and leave"
    )
    links.add_argument("--seconds", type=float, default=120.0, help="how long the upstream is away (120)")
    links.add_argument("--kills", type=int, default=12, help="how often the node that runs the link is hit (12)")
    links.add_argument("--seed", type=int, default=1, help="of what happens when (1)")
    links.add_argument(
        "--loss", type=float, default=0.0, help="part of the packets to and from the upstream that is lost (0)"
    )
    links.add_argument("--delay", type=float, default=0.0, help="seconds that each of the others takes (0)")
    links.add_argument("--dir", type=Path, help="a new folder for logs and stores, which is kept")
    topologies = kinds.add_parser("topologies", help="messages of domains that links connect in all shapes")
    topologies.add_argument("--messages", type=int, default=10_000, help="of each domain (10,000)")
    topologies.add_argument("topologies", nargs="*", metavar="TOPOLOGY", help=f"of {', '.join(CASES)} (all)")
    topologies.add_argument("--dir", type=Path, help="a new folder for logs, which is kept")
    failover = kinds.add_parser("failover", help="how long the link of a cluster rests after kill -9 of its node")
    failover.add_argument("--rounds", type=int, default=7, help="of two kills each, for each pause between them (7)")
    failover.add_argument("--dir", type=Path, help="a new folder for logs, which is kept")
    federation = kinds.add_parser(
        "federation", help="nodes with stores are killed, stopped and cut off under QoS 1 and 2 traffic"
    )
    federation.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    federation.add_argument("--seed", type=int, default=1, help="of what happens when (1)")
    federation.add_argument("--copies", type=int, choices=(2, 3), default=2, help="of each store, its own too (2)")
    federation.add_argument("--when-short", choices=("serve", "hold"), default="serve", help="replication.when_short")
    federation.add_argument("--workers", type=int, default=1, help="of every second node (1)")
    federation.add_argument("--dir", type=Path, help="a new folder for logs and stores, which is kept")
    found = parser.parse_args(arguments)
    if found.kind == "topologies" and not set(found.topologies) <= set(CASES):
        parser.error(f"{' '.join(found.topologies)}: topologies are {', '.join(CASES)}")
    if found.kind == "jobs" and not set(found.jobs) <= set(QUERIES):
        parser.error(f"{' '.join(found.jobs)}: jobs are {', '.join(QUERIES)}")
    if found.kind not in ("jobs", "store", "links", "topologies", "failover", "federation") and found.nodes < 2:
        parser.error(f"--nodes {found.nodes}: at least 2, one is killed while another works")
    if found.kind == "links" and (found.loss or found.delay) and namespaces_missing():
        parser.error(f"--loss and --delay: {NAMESPACES_MISSING}")
    if found.kind == "pipeline" and found.reader is Reader.KAFKA and not kafka_jars():
        parser.error("--reader kafka: Spark's Kafka source is missing: scripts/setup --jars fetches it")
    if found.dir is not None and found.dir.exists():
        parser.error(f"--dir {found.dir}: it exists; give a new folder")
    return found


Claim = LinkReport | TopologyReport | FederationReport | FailoverReport


async def run(options: argparse.Namespace, directory: Path) -> Report | StoreReport | Claim:
    if options.kind == "topologies":
        return await run_topologies(directory, options.topologies or list(CASES), options.messages, say)
    if options.kind == "store":
        return await run_store(directory, options.kills, options.seed, options.redis, say)
    if options.kind == "failover":
        return await run_failovers(directory, options.rounds, PAUSES, say)
    if options.kind == "federation":
        seconds = 60 * options.minutes
        say(f"seed {options.seed}")
        replication = {"copies": options.copies, "when_short": options.when_short, "adopt_after": "5s"}
        chaos_run = FederationRun(directory, say, replication, options.seed, workers=options.workers)
        incidents = draw_federation(options.seed, NODES, seconds / 4, chaos_run.with_workers)
        return await chaos_run.run(incidents, seconds)
    if options.kind == "links":
        return await run_links(options, directory)
    is_kill_run = options.kind == "pipeline"
    kills = options.kills if is_kill_run else 0
    plan = Plan(options.seed, kills, options.messages, options.rate, options.nodes, has_sink=is_kill_run)
    if is_kill_run and options.reader is not Reader.SOURCE:
        plan = replace(plan, has_sink=False, victims=OWN_VICTIMS[options.reader], reader=options.reader)
    chaos = ChaosRun(directory, plan, say, ClockNode if options.kind == "clock" else Node)
    async with chaos.running():
        if options.kind == "away":
            await node_away(chaos, options.seconds)
        elif options.kind == "clock":
            await clock_steps_back(chaos)
        else:
            await chaos.kill()
    return chaos.report


async def run_links(options: argparse.Namespace, directory: Path) -> LinkReport:
    incidents = draw_incidents(options.seed, options.kills, options.seconds)
    if not options.loss and not options.delay:
        return await LinkRun(directory, say).run(incidents)
    network = LossyNetwork(options.loss, options.delay)
    try:
        network.start()
        report = await LinkRun(directory, say, network).run(incidents)
    finally:
        network.stop()
    say(f"{network.lost:,} of {network.lost + network.passed:,} packets between the clusters were lost")
    return report


async def run_jobs(options: argparse.Namespace, directory: Path) -> str:
    """What was shown; "" when a job did not do what it does undisturbed."""
    reports = [
        await compare(job, directory, options.seed, options.messages, options.kills, say)
        for job in options.jobs or QUERIES
    ]
    say("")
    for report in reports:
        say(report.line())
    return "" if any(report.faults for report in reports) else NOTHING_LOST


async def run_schedule(options: argparse.Namespace, directory: Path) -> str:
    """What was shown; "" when it was not as promised."""
    report = await run(options, directory)
    say("")
    for line in report.lines():
        say(line)
    if not report.is_clean:
        return ""
    return report.claim if isinstance(report, Claim) else NOTHING_LOST


def main() -> int:
    options = parse(sys.argv[1:])
    directory = options.dir or Path(tempfile.mkdtemp(prefix="gmqttd-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    say(f"logs and everything else: {directory}")
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    run_kind = run_jobs if options.kind == "jobs" else run_schedule
    try:
        claim = asyncio.run(run_kind(options, directory.resolve()))
    except AssertionError as fault:
        say(f"FAULT: {fault}")
        say(f"kept for a look: {directory}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    if claim and options.dir is None:
        shutil.rmtree(directory)
    elif not claim:
        say(f"kept for a look: {directory}")
    say(f"OK: {claim}" if claim else "NOT OK")
    return 0 if claim else 1


if __name__ == "__main__":
    sys.exit(main())
