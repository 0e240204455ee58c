"""A run: nodes with event logs, a publisher, what reads the logs, kills from a schedule, and the judgement at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from chaos_report import Report
from judgement import Judgement, Published, judge, judge_reader, judge_sessions
from messages import TOPIC_PREFIX
from node_process import Node, Nodes, free_port
from publisher import Publisher
from queries import KAFKA_TOPIC, files_read, reader_process, sink_process
from reader_process import COMMIT_SECONDS, Position, ReaderProcess
from records import log_end
from replay_sessions import NodeKill
from schedule import Kill, Plan, Reader, Victim, draw_kills
from spark_process import SparkDriver
from waiting import eventually

SEGMENT_BYTES: Final = "4MiB"  # small, so that a run has many segments
SUPERVISION_SECONDS: Final = 0.2
BATCH_SECONDS: Final = (
    600.0  # until the next batch of a query after a kill; a driver starts in 10 s, or in minutes on a busy machine
)
FINISH_SECONDS: Final = 120.0
READ_SECONDS: Final = 600.0  # until the queries have read the logs to their ends
PART_SECONDS: Final = 3.0


def event_log_settings(directory: Path, name: str) -> dict[str, Any]:
    """For `Nodes.make_federated`: the plugin event_log with sync `commit` in a folder of the node's name."""
    log = {"dir": str(directory / f"{name}-log"), "sync": "commit", "segment_bytes": SEGMENT_BYTES}
    return {"plugins": {"event_log": log}, "plugin_order": ["admin", "federation", "event_log"]}


def kafka_settings(port: int) -> dict[str, object]:
    """For the plugin kafka."""
    return {"listeners": [f"127.0.0.1:{port}"], "topics": {KAFKA_TOPIC: f"{TOPIC_PREFIX}#"}}


def api_address(node: Node) -> str:
    return str(node.config["api"]["grpc"][0]["address"]).removeprefix("tcp://")


class ChaosRun:
    """The node at index 0 is the one on which the sink stages."""

    def __init__(self, directory: Path, plan: Plan, say: Callable[[str], None], kind: type[Node] = Node) -> None:
        self.directory = directory
        self.plan = plan
        self.report = Report(plan)
        self._say = say
        made = Nodes(directory)
        self.nodes: list[Node] = []
        kafka: list[str] = []
        for number in range(1, plan.nodes + 1):
            settings = event_log_settings(directory, f"node{number}")
            if plan.reader is Reader.KAFKA:
                port = free_port()
                kafka.append(f"127.0.0.1:{port}")
                settings["plugins"]["kafka"] = kafka_settings(port)
                settings["plugin_order"].append("kafka")
            if plan.reader in (Reader.KAFKA, Reader.REPLAY):  # what they keep of their readers
                settings["data_dir"] = str(directory / f"node{number}-data")
            self.nodes.append(made.make_federated(self.nodes[:1], settings, kind))
        self._made = made
        self.servers = [api_address(node) for node in self.nodes]
        self.publisher = Publisher([node.port for node in self.nodes], plan.seed, plan.rate)
        names = [node.name for node in self.nodes]
        ports = [node.port for node in self.nodes]
        self.archive = reader_process(plan.reader, directory, self.servers, kafka, ports, names)
        self.sink = sink_process(directory, self.servers, self.nodes[0].name)
        self.drivers: list[ReaderProcess] = [self.archive, self.sink] if plan.has_sink else [self.archive]
        self.kills = draw_kills(plan.seed, plan.kills, plan.kill_wait_max, plan.victims)
        self._node_kills: list[NodeKill] = []
        self._began_at = time.monotonic()

    def say(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began_at:7.1f} s  {text}")

    async def kill(self) -> None:
        """All kills of the plan."""
        for number, kill in enumerate(self.kills, 1):
            await asyncio.sleep(kill.wait_seconds)
            await self._carry_out(number, kill)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nodes, publisher and queries run inside. Afterwards the rest of the plan's messages is published, everything is
        read to the end, and `report` is complete. Its judgement tells whether anything was lost or doubled."""
        try:
            await self._start()
            supervision = asyncio.create_task(self._supervise())
            try:
                yield
                await self._published(self.plan.messages)
                await self.publisher.finish(FINISH_SECONDS)
                self.say(f"everything published is acknowledged: {self.publisher.published:,} messages")
            finally:
                supervision.cancel()
                await asyncio.gather(supervision, return_exceptions=True)
            await self._read_to_the_end()
            self.report.judgement = await asyncio.to_thread(self._judge)
        finally:
            await self._stop()

    def _judge(self) -> Judgement:
        plan, published = self.plan, Published(bytes(self.publisher.acknowledged), self.publisher.sent)
        if plan.reader is Reader.SOURCE:
            archive = self.directory / "pipelines" / "archive"
            return judge(plan.seed, published, self.servers, archive, plan.has_sink)
        files = files_read(plan.reader, self.directory)
        partitions = [node.name for node in self.nodes] if plan.reader is Reader.KAFKA else []
        result = judge_reader(plan.seed, published, self.servers, files, partitions)
        if plan.reader is Reader.REPLAY:
            judge_sessions(self.directory / plan.reader, self._node_kills, result)
        return result

    @contextlib.asynccontextmanager
    async def all_read(self) -> AsyncIterator[None]:
        """Nothing is published inside, and the queries have committed all that the logs have."""
        publisher = self.publisher
        publisher.is_paused = True
        await eventually(lambda: publisher.acknowledged_count == publisher.published, "all is acknowledged")
        await self._until_all_read()
        yield
        publisher.is_paused = False

    async def published_more(self) -> None:
        """Wait until PART_SECONDS of messages more are acknowledged."""
        await self._published(self.publisher.acknowledged_count + int(PART_SECONDS * self.plan.rate))

    async def _published(self, count: int) -> None:
        await eventually(
            lambda: self.publisher.acknowledged_count >= count,
            f"{count} messages are acknowledged",
            count / self.plan.rate + FINISH_SECONDS,
        )

    async def _start(self) -> None:
        for node in self.nodes:
            node.spawn()
            if self.plan.reader is Reader.KAFKA:  # partitions are numbered in the order of the first starts
                await eventually(node.serves, f"{node.name} serves clients")
        for node in self.nodes:
            await eventually(node.serves, f"{node.name} serves clients")
        await self._made.all_alive(self.nodes)
        self.say(f"{len(self.nodes)} nodes serve; publishing {self.plan.rate:,.0f} messages a second at QoS 1")
        self.publisher.start()
        for driver in self.drivers:
            driver.start()
        for driver in self.drivers:
            await driver.until_works()
            self.say(f"the {driver.name} driver has committed its first batch")

    async def _supervise(self) -> None:
        """Start drivers again that ended by themselves, as a supervisor of services does."""
        while True:
            await asyncio.sleep(SUPERVISION_SECONDS)
            for driver in self.drivers:
                if driver.restart_when_ended():
                    self.say(f"the {driver.name} driver ended with {driver.ends[-1]} and was started again")

    # --- kills

    async def _carry_out(self, number: int, kill: Kill) -> None:
        name = await self._kill(number, kill)
        self.report.killed.append((kill.victim, name))
        if self.plan.waits:
            began_at = time.monotonic()
            await self._recovered(kill)
            self.report.recovery_seconds.append(time.monotonic() - began_at)

    async def _kill(self, number: int, kill: Kill) -> str:
        driver = self.drivers[int(kill.choice * len(self.drivers))]
        if kill.victim in (Victim.NODE, Victim.SINK_NODE):
            node = self._node(kill)
            self._announce(number, kill, f"{node.name}, process {node.pid}, down for {kill.down_seconds:.1f} s")
            begin = time.monotonic()
            await node.kill()
            self._node_kills.append(NodeKill(node.port, begin, time.monotonic()))
            await asyncio.sleep(kill.down_seconds)
            node.spawn()
            return node.name
        if kill.victim in (Victim.WORKER, Victim.PLANNER):
            found = await eventually(
                partial(_python_process, driver, kill), f"the {driver.name} has a {kill.victim}", COMMIT_SECONDS
            )
            self._announce(number, kill, f"of the {driver.name}, process {found.pid}")
            found.kill()
            return driver.name
        driver = self._driver(kill)
        assert driver.process is not None
        self._announce(number, kill, f"process group {driver.process.pid}, after batch {driver.batches() - 1}")
        driver.kill()
        driver.start()
        return driver.name

    def _announce(self, number: int, kill: Kill, text: str) -> None:
        done = f"{self.publisher.acknowledged_count:,} acknowledged"
        self.say(f"kill {number} of {self.plan.kills}: {kill.victim} ({text}); {done}")

    def _node(self, kill: Kill) -> Node:
        if kill.victim is Victim.SINK_NODE:
            return self.nodes[0]
        others = self.nodes[1:]
        return others[int(kill.choice * len(others))]

    def _driver(self, kill: Kill) -> ReaderProcess:
        return self.archive if kill.victim is Victim.ARCHIVE_DRIVER else self.sink

    async def _recovered(self, kill: Kill) -> None:
        """Until the victim serves again, and each query has committed one more batch."""
        if kill.victim in (Victim.NODE, Victim.SINK_NODE):
            node = self._node(kill)
            await eventually(node.serves, f"{node.name} serves clients again")
        before = {driver: driver.batches() for driver in self.drivers}
        for driver, batches in before.items():
            await eventually(
                lambda driver=driver, batches=batches: driver.batches() > batches,
                f"a batch of the {driver.name} after the kill, see {driver.log_path}",
                BATCH_SECONDS,
            )

    # --- the end

    async def _read_to_the_end(self) -> None:
        """Wait until both queries have committed all that the logs have, and stop them."""
        for node in self.nodes:
            await eventually(node.serves, f"{node.name} serves clients again")
        await self._until_all_read()
        for driver in self.drivers:
            await driver.stop()

    async def _until_all_read(self) -> None:
        for driver in self.drivers:
            await eventually(
                partial(self._has_read_all, driver),
                f"the {driver.name} reads the logs to their end, see {driver.log_path}",
                READ_SECONDS,
            )
            self.say(f"the {driver.name} has read the logs to their end: {driver.batches()} batches")

    def _has_read_all(self, driver: ReaderProcess) -> bool:
        driver.restart_when_ended()
        return driver.has_read(self._log_ends())

    def _log_ends(self) -> dict[str, Position]:
        return {node.name: log_end(server) for node, server in zip(self.nodes, self.servers, strict=True)}

    async def _stop(self) -> None:
        await self.publisher.abort()
        for driver in self.drivers:
            if driver.process is not None:
                driver.kill()
        await asyncio.gather(*(node.finish() for node in self.nodes))
        report = self.report
        report.seconds = time.monotonic() - self._began_at
        report.published = self.publisher.published
        report.sent_again = self.publisher.sent_again
        report.connects = self.publisher.connects
        report.ended_by_themselves = {driver.name: driver.ends for driver in self.drivers}
        for node in self.nodes:
            for text in node.unclean:
                self.say(f"not clean: {text}")


async def _python_process(driver: ReaderProcess, kill: Kill) -> psutil.Process | None:
    """The process that a kill of a worker or of a planning process hits; None while the driver does not work yet."""
    assert isinstance(driver, SparkDriver)
    if not driver.works():
        return None
    if kill.victim is Victim.WORKER:
        return await asyncio.to_thread(driver.busy_worker, kill.choice)
    return next(iter(driver.planners()), None)
