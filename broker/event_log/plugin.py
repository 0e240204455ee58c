"""The plugin `event_log`: what clients, the API and wills publish on this node goes to its event log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.event_log.log import EventLog, NotWritten
from broker.event_log.recovery import FolderInUse, Recovered
from broker.event_log.selection import Selection
from broker.event_log.settings import EventLogSettings
from broker.event_log.tap import LogTap, LogTurnEnd
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.server.host import Host

KEY: Final = "plugins.event_log"
NOT_LOGGED: Final = "not_logged"  # beside the reasons of dropped messages


class EventLogPlugin(Plugin):
    """log  of this node; from `prepare` on"""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._log = get_logger("event_log")
        self.settings: EventLogSettings = server.settings.plugins.event_log
        self.log: EventLog | None = None
        self._turn_end: LogTurnEnd | None = None

    async def prepare(self) -> None:
        settings = self.settings
        log = EventLog(settings, settings.node_name)
        try:
            found = await log.start()
        except FolderInUse:
            raise StartError(
                f"{KEY}.dir: another process uses {settings.dir}; give each node a folder of its own"
            ) from None
        except FileNotFoundError as error:
            raise StartError(f"{KEY}.dir: {settings.dir} cannot be made; make the folder above it") from error
        except OSError as error:
            raise StartError(f"{KEY}.dir: {error.filename or settings.dir}: {error.strerror or error}") from error
        self.log = log
        self._report(found)
        server = self.server
        selection = Selection(
            [topic_filter.encode() for topic_filter in settings.topics],
            [topic_filter.encode() for topic_filter in settings.exclude],
        )
        tap = LogTap(
            server.broker, log.appender, selection, log.wall_ns, server.flush_soon, waits=settings.sync == "commit"
        )
        log.attach(tap)
        server.broker.tap = tap
        self._turn_end = LogTurnEnd(log.appender, log.writer.records_wait)
        server.turns.ends.append(self._turn_end)

    def _report(self, found: Recovered) -> None:
        if found.torn_bytes:
            self._log.warning("the last write was not finished and was cut", bytes=found.torn_bytes)
        for damaged in found.damaged:
            self._log.error("a damaged segment was set aside", file=damaged.file, fault=damaged.fault)
        if found.lost:
            self._log.warning("the log has a new id: readers begin again", reason=found.lost)
        self._log.info(
            "event log opened",
            dir=self.settings.dir,
            log_id=found.identity.log_id,
            next_offset=found.next_offset,
            segments=len(found.segments),
        )

    async def leave(self) -> None:
        """Write what the clients have published, while they take their last bytes."""
        if self.log is not None:
            try:
                await self.log.flush()
            except NotWritten as fault:
                self._log.error("the last records are not in the event log", reason=str(fault))

    async def stop(self) -> None:
        server = self.server
        if self._turn_end is not None:
            server.broker.tap = None
            server.turns.ends.remove(self._turn_end)
        if self.log is not None:
            await self.log.stop()

    def lost_messages(self) -> dict[str, int]:
        return {} if self.log is None else {NOT_LOGGED: self.log.appender.lost}
