"""The plugin `kafka`: the event log of this node over Kafka's protocol, read only."""

# not a core: opens listeners, reads and writes a file
from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.config.addresses import UNSPECIFIED_HOSTS, Address, advertised_address, parse_address
from broker.config.interfaces import local_ipv4_addresses
from broker.event_log.files import Files
from broker.event_log.log import EventLog
from broker.event_log.plugin import EventLogPlugin
from broker.kafka.group_messages import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from broker.kafka.grouping import Grouping
from broker.kafka.messages import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH, PRODUCE
from broker.kafka.node import FirstStart, KafkaNode
from broker.kafka.partitions import decode_entries, encode_entries
from broker.kafka.producing import refuse_produce, refuse_producer_id
from broker.kafka.reading import Reading
from broker.kafka.server import Handler, KafkaServer
from broker.kafka.settings import KafkaSettings
from broker.metrics.metric import Metric, counter, counters, gauge
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.server.host import Host

KEY: Final = "plugins.kafka"
SETTLE_SECONDS: Final = 5.0
"""After a start in a federation, for the node to hear of the others. On its first start its partition gets a number then."""
SINCE_FILE: Final = (
    "kafka_since"  # in the folder of the log: a FirstStart, its numbers in decimal with a space between them
)
NODES_FILE: Final = "kafka_nodes"  # beside it: the entries of all nodes, as broker/kafka/partitions.py writes them
NODES_SECONDS: Final = 5.0  # between two looks whether it is to be written
RENEW_SECONDS: Final = 3_600.0  # between two looks which committed offsets are to be renewed


class KafkaPlugin(Plugin):
    """Serves the log of the plugin `event_log`."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self.settings: KafkaSettings = server.settings.plugins.kafka
        self._log = get_logger("kafka")
        self._node: KafkaNode | None = None
        self._reading: Reading | None = None
        self._grouping: Grouping | None = None
        self._server: KafkaServer | None = None
        self._folder = Path()
        self._settling: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> list[str]:
        """HOST:PORT of the listeners, with the ports that the kernel chose for port 0."""
        return [] if self._server is None else self._server.addresses

    async def prepare(self) -> None:
        log = self._event_log()
        self._node = KafkaNode(self.server, log, self.settings.topic_filters)
        reading = self._reading = Reading(self._node, random.Random())
        grouping = self._grouping = Grouping(self._node, random.Random())
        handlers: dict[int, Handler] = {
            PRODUCE: refuse_produce,
            FETCH: reading.fetch,
            LIST_OFFSETS: reading.list_offsets,
            METADATA: reading.metadata,
            OFFSET_COMMIT: grouping.commit,
            OFFSET_FETCH: grouping.committed,
            FIND_COORDINATOR: grouping.find_coordinator,
            JOIN_GROUP: grouping.join,
            HEARTBEAT: grouping.heartbeat,
            LEAVE_GROUP: grouping.leave,
            SYNC_GROUP: grouping.sync,
            DESCRIBE_GROUPS: grouping.described,
            LIST_GROUPS: grouping.listed,
            INIT_PRODUCER_ID: refuse_producer_id,
            OFFSET_FOR_LEADER_EPOCH: reading.epoch_ends,
        }
        self._server = KafkaServer(self.server, self.settings, handlers, log.readers.turns, self._log)
        mqtt = self.server.settings.mqtt
        if self.server.members.node_name and not mqtt.retain_available:
            raise StartError(
                f"{KEY}: nodes tell each other of their logs with retained messages; set mqtt.retain_available"
            )

    def _event_log(self) -> EventLog:
        found = next((plugin for plugin in self.server.plugins if isinstance(plugin, EventLogPlugin)), None)
        if found is None or found.log is None:
            raise StartError(f"{KEY}: there is no event log to read; put event_log before kafka into plugin_order")
        return found.log

    async def start(self) -> None:
        assert self._server is not None
        assert self._node is not None
        self._node.offsets.count_kept()
        self._renewing = asyncio.create_task(self._renew_offsets())
        self._folder = Path(self.server.path_of(self.server.settings.plugins.event_log.dir))
        if self.server.members.node_name:  # before the first client
            kept = await asyncio.to_thread(read_kept, self._folder / NODES_FILE)
            self._node.know(decode_entries(kept))
            self._keeping = asyncio.create_task(self._keep_nodes(kept))
            self._node.settle(SETTLE_SECONDS)
            self._node.offsets.heard.begin()
        await self._server.open(KEY)
        address, warning = kafka_addr(self._server.addresses, self.settings.advertised, local_ipv4_addresses())
        if warning:
            self._log.warning(warning, key=f"{KEY}.advertised")
        path = self._folder / SINCE_FILE
        try:
            first = await asyncio.to_thread(read_first_start, path)
        except (OSError, ValueError) as error:
            raise StartError(f"{KEY}: {path} cannot be read: {error}") from error
        if first is not None:
            self._node.announce(first, address)
        elif self.server.members.node_name:
            # What other nodes know of this one, and of themselves, comes first: a node that was emptied keeps its number.
            self._settling = asyncio.create_task(self._announce_first(address, SETTLE_SECONDS))
        else:
            await self._announce_first(address, 0.0)
        self._log.info("Kafka's protocol is served", addresses=self._server.addresses, advertised=address)

    async def _announce_first(self, address: str, seconds: float) -> None:
        """The first start in this folder of the log."""
        assert self._node is not None
        await asyncio.sleep(seconds)
        first = self._node.first_start(time.time_ns())
        try:
            await asyncio.to_thread(Files().replace, self._folder / SINCE_FILE, f"{first.since} {first.epoch}".encode())
        except OSError as error:
            self._log.error("the partition of this node has no number: its file cannot be written", error=str(error))
            return
        self._node.announce(first, address)

    async def _keep_nodes(self, kept: bytes) -> None:
        """Write what is known of the nodes whenever it has changed."""
        assert self._node is not None
        has_failed = False
        while True:
            await asyncio.sleep(NODES_SECONDS)
            wanted = encode_entries(self._node.entries())
            if wanted == kept:
                continue
            try:
                await asyncio.to_thread(Files().replace, self._folder / NODES_FILE, wanted)
                kept, has_failed = wanted, False
            except OSError as error:
                if not has_failed:
                    self._log.warning("the file of the nodes of Kafka's partitions cannot be written", error=str(error))
                has_failed = True

    async def _renew_offsets(self) -> None:
        assert self._node is not None
        assert self._grouping is not None
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            await self._node.offsets.renew(self._grouping.groups.has_members)

    async def reload(self) -> None:
        if self._server is not None and self._server.context is not None:
            self._server.context.renew()

    async def leave(self) -> None:
        await self.stop()

    async def stop(self) -> None:
        for task in (self._settling, self._keeping, self._renewing):
            if task is not None:
                task.cancel()
        if self._node is not None:
            self._node.offsets.heard.stop()
        if self._server is not None:
            await self._server.close()
        if self._grouping is not None:
            self._grouping.stop()

    def metrics(self) -> list[Metric]:
        server, reading, grouping, node = self._server, self._reading, self._grouping, self._node
        if server is None or reading is None or grouping is None or node is None:
            return []
        sessions, groups = reading.sessions, grouping.groups
        return [
            gauge("gmqtt_kafka_connections", "Connections of Kafka clients.", len(server)),
            counters("gmqtt_kafka_requests_total", "Requests of Kafka clients.", "api", server.requests.items()),
            counters(
                "gmqtt_kafka_closed_total",
                "Connections that were closed by the node, and logins that were refused, by reason.",
                "reason",
                server.closed.items(),
            ),
            counter("gmqtt_kafka_records_total", "Records that Kafka clients fetched.", reading.records),
            counter("gmqtt_kafka_bytes_total", "Bytes of record batches that they fetched.", reading.bytes),
            gauge("gmqtt_kafka_fetch_sessions", "Open fetch sessions.", len(sessions)),
            counters(
                "gmqtt_kafka_fetch_sessions_bounded_total",
                "Fetch sessions that found no room, or made room for another one.",
                "event",
                (("evicted", sessions.evicted), ("refused", sessions.refused)),
            ),
            gauge("gmqtt_kafka_groups", "Consumer groups that this node coordinates.", len(groups)),
            gauge("gmqtt_kafka_group_members", "Members of these groups.", groups.members),
            counter("gmqtt_kafka_members_refused_total", "Members of groups that found no room.", groups.refused),
            counter("gmqtt_kafka_commits_refused_total", "Committed offsets that were not kept.", node.offsets.refused),
        ]

    def refused_input(self) -> dict[str, int]:
        if self._server is None:
            return {}
        closed = self._server.closed
        return {
            f"kafka_{reason}": closed[reason] for reason in ("connections_refused", "logins_refused", "requests_bad")
        }


def kafka_addr(opened: list[str], advertised: Address | None, local_addresses: list[str]) -> tuple[str, str | None]:
    """(HOST:PORT for consumers; a warning or None). `advertised` may leave host or port open."""
    wanted = parse_address(opened[0])
    if advertised is not None:
        wanted = Address("tcp", advertised.host, advertised.port or wanted.port)
    found, warning = advertised_address(wanted, local_addresses if wanted.host in UNSPECIFIED_HOSTS else ())
    return found.host_port, warning


def read_kept(path: Path) -> bytes:
    """The file of the nodes; none where there is none. Raises StartError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StartError(f"{KEY}: {path} cannot be read: {error}") from error


def read_first_start(path: Path) -> FirstStart | None:
    """None where this is the first start. Files of former versions have no epoch. Raises OSError, ValueError."""
    try:
        since, _, epoch = path.read_text().partition(" ")
    except FileNotFoundError:
        return None
    return FirstStart(int(since), int(epoch or 0))
