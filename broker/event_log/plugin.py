"""The plugin `event_log`: what clients, the API and wills publish on this node goes to its event log."""

# not a core: makes the log's folder
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.codec.wire import VARINT_MAX
from broker.config.addresses import UNSPECIFIED_HOSTS, Address, advertised_address, parse_address
from broker.config.interfaces import local_ipv4_addresses
from broker.event_log.faults import NotWritten
from broker.event_log.files import NO_ROOM, Files
from broker.event_log.holds import UNKNOWN_GROUP
from broker.event_log.log import EventLog
from broker.event_log.other_logs import TAG_STREAM, TAG_VALUE
from broker.event_log.pb.event_log_pb2 import DESCRIPTOR
from broker.event_log.recovery import FolderInUse, Recovered
from broker.event_log.selection import Selection
from broker.event_log.service import TAG_ADDR, EventLogService
from broker.event_log.settings import EventLogSettings
from broker.event_log.sink import Sink
from broker.event_log.sink_service import EventLogSinkService
from broker.event_log.staged_block import RowLimits
from broker.event_log.staged_files import StagingFault
from broker.event_log.staging import Staging
from broker.event_log.stream.streams import Streams
from broker.event_log.tap import LogTap, LogTurnEnd
from broker.metrics.metric import Kind, Metric, counter, gauge
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.api.server import ApiServer
    from broker.server.host import Host

KEY: Final = "plugins.event_log"
STAGED_FOLDER: Final = "staged"
GAPS_SHOWN: Final = 10  # in a line of the log
NOT_LOGGED: Final = "not_logged"  # beside the reasons of dropped messages


class EventLogPlugin(Plugin):
    """log      of this node; from `prepare` on
    streams  the subscriptions to it, likewise
    """

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._log = get_logger("event_log")
        given: EventLogSettings = server.settings.plugins.event_log
        self.settings = replace(given, dir=server.path_of(given.dir))
        self.log: EventLog | None = None
        self.streams: Streams | None = None
        self._tap: LogTap | None = None
        self._turn_end: LogTurnEnd | None = None
        self._sink: Sink | None = None
        self._log_service: EventLogService | None = None
        self._sink_service: EventLogSinkService | None = None

    async def prepare(self) -> None:
        settings = self.settings
        log = EventLog(settings, self.server.members.node_name or settings.node_name)
        try:
            found = await log.start()
        except FolderInUse:
            raise StartError(
                f"{KEY}.dir: another process uses {settings.dir}; give each node a folder of its own"
            ) from None
        except FileNotFoundError as error:
            raise StartError(f"{KEY}.dir: {settings.dir} cannot be made; make the folder above it") from error
        except OSError as error:
            what_to_do = f"; make room there, or lower {KEY}.retention.bytes" if error.errno in NO_ROOM else ""
            text = f"{KEY}.dir: {error.filename or settings.dir}: {error.strerror or error}{what_to_do}"
            raise StartError(text) from error
        except NotWritten as fault:
            raise StartError(f"{KEY}.dir: {fault}") from fault
        self.log = log
        self._report(log, found)
        server = self.server
        selection = Selection(
            [topic_filter.encode() for topic_filter in settings.topics],
            [topic_filter.encode() for topic_filter in settings.exclude],
        )
        tap = LogTap(
            server.broker, log.appender, selection, log.wall_ns, server.flush_soon, waits=settings.sync == "commit"
        )
        log.attach(tap)
        server.broker.add_tap(tap)
        self.streams = Streams(log, server.members, server.now, server.flush_soon)
        server.broker.feeds = self.streams
        self._tap = tap
        self._turn_end = LogTurnEnd(log.appender, log.writer.records_wait)
        server.turns.ends.append(self._turn_end)
        self._log_service = EventLogService(log, server.members)
        if server.api is not None:
            await self._serve(server.api, log, tap, self._log_service)

    async def _serve(self, api: ApiServer, log: EventLog, tap: LogTap, log_service: EventLogService) -> None:
        """The services of the log. Commits that an earlier process began go on at the start."""
        folder = Path(self.settings.dir) / STAGED_FOLDER
        staging = Staging(folder, Files(), self.settings.staged_bytes, self._row_limits)
        sink = Sink(self.server, log, tap, staging, api.long_calls)
        try:
            await sink.open()
        except (OSError, StagingFault) as error:
            await sink.stop()
            raise StartError(f"{KEY}.dir: {error}") from error
        self._sink = log_service.sink = sink
        services = DESCRIPTOR.services_by_name
        api.register(services["EventLog"], log_service)
        self._sink_service = EventLogSinkService(sink)
        api.register(services["EventLogSink"], self._sink_service)

    def _row_limits(self) -> RowLimits:
        mqtt = self.server.settings.mqtt
        return RowLimits(min(mqtt.max_packet_size, VARINT_MAX + 5), mqtt.max_topic_levels, mqtt.retain_available)

    def tags(self) -> dict[str, str]:
        """Return where readers find the log of this node."""
        addresses = [] if self.server.api is None else self.server.api.grpc_addresses
        found, warning = log_addr(addresses, self.settings.advertise_addr, local_ipv4_addresses())
        if warning and self.server.members.node_name:
            self._log.warning(warning, key=f"{KEY}.advertise_addr")
        return {TAG_STREAM: TAG_VALUE} | ({TAG_ADDR: found} if found else {})

    async def start(self) -> None:
        if self._sink is not None:
            self._sink.start()

    def _report(self, log: EventLog, found: Recovered) -> None:
        if found.torn_bytes:
            self._log.warning("the last write was not finished and was cut", bytes=found.torn_bytes)
        for damaged in found.damaged:
            self._log.error("a damaged segment was set aside", file=damaged.file, fault=damaged.fault)
        if found.holds.has(UNKNOWN_GROUP, ""):
            self._log.warning(
                "the file of the holds was damaged: all records are held, as far as event_log.hold allows, until this group is "
                "released (POST /v1/event_log/release)",
                group=UNKNOWN_GROUP,
            )
        if found.lost:
            self._log.warning(
                "the log has a new id",
                reason=found.lost,
                parent=found.identity.parents[-1].log_id if found.identity.parents else None,
                first_offset_that_may_differ=found.identity.next_offset,
            )
        if log.gaps:
            self._log.warning("records are missing in the log", gaps=log.gaps[:GAPS_SHOWN])
        self._log.info(
            "event log opened",
            dir=self.settings.dir,
            log_id=found.identity.log_id,
            next_offset=found.identity.next_offset,
            segments=len(log.segments),
        )

    async def leave(self) -> None:
        """Write what the clients have published, while they take their last bytes."""
        if self._sink is not None:
            await self._sink.stop()
        if self.log is not None and not self.log.writer.stopped:
            try:
                await self.log.flush()
            except NotWritten as fault:
                self._log.error("the last records are not in the event log", reason=str(fault))

    async def stop(self) -> None:
        server = self.server
        if self._sink is not None:
            await self._sink.stop()
        if self._turn_end is not None and self._tap is not None:
            server.broker.remove_tap(self._tap)
            server.turns.ends.remove(self._turn_end)
        if self.streams is not None:
            server.broker.feeds = None
            self.streams.stop()
        if self.log is not None:
            await self.log.stop()

    def metrics(self) -> list[Metric]:
        if self.log is None:
            return []
        found = self.log
        return [
            gauge("gmqtt_event_log_bytes", "Bytes of all segments of the event log.", found.bytes),
            gauge("gmqtt_event_log_segments", "Segments of the event log.", len(found.segments)),
            gauge("gmqtt_event_log_first_offset", "Offset of the first record that is kept.", found.first_offset),
            gauge("gmqtt_event_log_next_offset", "Offset of the next record that is served.", found.next_offset),
            gauge(
                "gmqtt_event_log_missing_records",
                "Offsets between the first and the next one whose records are lost.",
                sum(end - first for first, end in found.gaps),
            ),
            gauge("gmqtt_event_log_stopped", "1 while no records are written.", float(found.writer.stopped != "")),
            gauge(
                "gmqtt_event_log_holds", "Groups that hold segments back from the retention.", len(found.holds.all())
            ),
            Metric(
                "gmqtt_event_log_hold_lag_records",
                Kind.GAUGE,
                "Records that a query of a group has not read yet.",
                ("group", "query"),
                {(hold.group, hold.query): found.next_offset - hold.offset for hold in found.holds.all()},
            ),
            counter("gmqtt_event_log_holds_released_total", "Holds that the retention released.", found.holds_released),
            counter(
                "gmqtt_event_log_readers_rested_seconds_total",
                "Seconds that readers of the event log waited while records were being written.",
                found.readers.turns.rested,
            ),
            *self._stream_metrics(),
            counter("gmqtt_event_log_records_lost_total", "Records that found no room.", found.appender.lost),
        ]

    def _stream_metrics(self) -> list[Metric]:
        if self.streams is None:
            return []
        reads = self.streams.reads
        return [
            gauge("gmqtt_event_log_streams", "Subscriptions to $stream/ whose client is connected.", len(reads.feeds)),
            gauge("gmqtt_event_log_stream_bytes", "Bytes that were read for them ahead.", reads.read_ahead_bytes),
            counter(
                "gmqtt_event_log_stream_missed_total",
                "Records that were removed, or damaged, before a subscription to $stream/ came to them.",
                reads.missed,
            ),
            counter(
                "gmqtt_event_log_stream_topics_left_out_total",
                "Topics without a last message for a subscription to $stream/last/, for want of room.",
                reads.topics_left_out,
            ),
        ]

    def not_ready(self) -> list[str]:
        stopped = "" if self.log is None else self.log.writer.stopped
        return [f"the event log is not written: {stopped}"] if stopped else []

    def lost_messages(self) -> dict[str, int]:
        return {} if self.log is None else {NOT_LOGGED: self.log.appender.lost}

    def refused_input(self) -> dict[str, int]:
        if self._log_service is None or self._sink_service is None:
            return {}
        return {
            "event_log_reads_refused": self._log_service.answers.refused,
            "pipeline_rows_refused": self._sink_service.refused,
        }


def log_addr(
    grpc_addresses: Iterable[str], advertise: Address | None, local_addresses: Iterable[str]
) -> tuple[str, str | None]:
    """(HOST:PORT of the gRPC API for other nodes and readers, "" for none; a warning or None).

    grpc_addresses  where the API listens, with real ports
    advertise       the setting, which may leave host or port open
    """
    opened = [address for text in grpc_addresses if not (address := parse_address(text)).is_unix]
    if not opened:
        return "", "api.grpc has no TCP address, so readers that ask another node do not find the log of this one"
    wanted = opened[0]
    if advertise is not None:
        wanted = Address("tcp", advertise.host, advertise.port or wanted.port)
    found, warning = advertised_address(wanted, local_addresses if wanted.host in UNSPECIFIED_HOSTS else ())
    return found.host_port, warning
