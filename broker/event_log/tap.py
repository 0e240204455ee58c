"""The tap of the event log: all that is published on this node passes here, so the module is compiled."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.broker import Broker
from broker.codec.runs import Run
from broker.event_log.appender import DROPPING, IDLE, LINGERING, REFUSING, Appender
from broker.event_log.block import NO_EXPIRY, NOBODY, RETAIN_FLAG, Block, encode_extra
from broker.event_log.selection import Selection
from broker.hooks import Tap
from broker.message import NEVER, Message
from broker.origin import Origin
from broker.publisher import Publisher
from broker.server.turns import TurnEnd
from broker.session.output import Output

WAITING_BYTES_MAX: Final = 16 * 2**20  # of records that wait for the writer; then publishers are held


class LogTap(Tap):
    """is_forced   everything is logged, whatever the topics are: set while a pipeline publishes
    has_logged  the log has what is published: set while rows of a pipeline go to the subscribers alone

    With `waits` acknowledgements wait until the record of their message is on disk.
    """

    def __init__(
        self,
        broker: Broker,
        appender: Appender,
        selection: Selection,
        wall_ns: Callable[[], int],
        flush_soon: Callable[[], None],
        waits: bool,
    ) -> None:
        super().__init__()
        self.is_forced = False
        self.has_logged = False
        self._broker = broker
        self._appender = appender
        self._selection = selection
        self._wall_ns = wall_ns
        self._flush_soon = flush_soon
        self._waits = waits
        self._now = -1.0
        self._held: dict[Publisher, None] = {}
        self._client: Output | None = None  # of the last message: many clients send several in succession
        self._names = NOBODY

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        if not self.keeps(message.topic):
            return
        appender = self._appender
        if now != self._now:
            self._now = now
            appender.set_time(self._wall_ns())
        extra = b""
        if message.properties or message.expires_at != NEVER:
            expiry = NO_EXPIRY if message.expires_at == NEVER else max(0, round(message.expires_at - now))
            extra = encode_extra(expiry, message.properties)
        flags = message.qos | RETAIN_FLAG if message.retain else message.qos
        names = self._names_of(message.client_id, publisher, message.origin)
        appender.append(message.topic, message.payload, flags, names, extra)
        if message.qos and (self._waits or self.is_full()) and appender.state is not DROPPING:
            if appender.commit == 0:
                appender.commit = self._broker.commits.begin()
                appender.is_urgent = True
            self._broker.commits.require(appender.commit)
        if publisher is not None and (appender.bytes >= WAITING_BYTES_MAX or self.is_full()):
            self._hold(publisher)

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        if not self.keeps(run.topic):
            return
        if run.properties:
            for message in run.messages():
                self.published(message, publisher, now)
            return
        appender = self._appender
        if now != self._now:
            self._now = now
            appender.set_time(self._wall_ns())
        names = self._names_of(run.client_id, publisher, run.origin)
        appender.append_run(run.topic, run.encoded(run.version), run.count, run.payload_size, names)
        if publisher is not None and appender.bytes >= WAITING_BYTES_MAX:
            self._hold(publisher)

    def published_block(self, block: Block, publisher: Publisher, now: float) -> None:
        """Messages that reached nobody but the log, whatever its topics are. Nobody waits for their commit."""
        appender = self._appender
        if now != self._now:
            self._now = now
            appender.set_time(self._wall_ns())
        appender.append_block(block)
        if appender.bytes >= WAITING_BYTES_MAX:
            self._hold(publisher)

    def _names_of(self, client_id: str, publisher: Publisher | None, origin: Origin | None) -> tuple[str, str, str]:
        """Client id, user name and origin: the domains that the message has passed, joined by commas; "" for this domain.
        Those of an ordinary client stay."""
        if origin is not None:
            username = publisher.username if isinstance(publisher, Output) else ""
            return client_id, username, origin.path_text().decode()
        if not isinstance(publisher, Output):
            return client_id, "", ""
        if publisher is not self._client:
            self._client = publisher
            self._names = client_id, publisher.username, ""
        return self._names

    def is_essential(self) -> bool:
        return True

    def refuses(self, topic: bytes) -> bool:
        return self.is_full() and self.keeps(topic)

    def is_full(self) -> bool:
        """Return whether the messages that the log keeps are refused."""
        return self._appender.state is REFUSING

    def keeps(self, topic: bytes) -> bool:
        """Return whether messages of this topic are logged."""
        return (self._selection.has(topic) or self.is_forced) and not self.has_logged

    def _hold(self, publisher: Publisher) -> None:
        """Hold a publisher until the writer takes what waits."""
        if publisher not in self._held:
            self._held[publisher] = None
            self._broker.hold(publisher)

    def taken(self) -> None:
        """The writer has taken what waited."""
        if self._held:
            held = self._held
            self._held = {}
            for publisher in held:
                self._broker.release(publisher)
            self._flush_soon()

    def finish(self, commit: int) -> None:
        """The records of a commit are on disk."""
        self._broker.commits.finish(commit)
        self._flush_soon()


class LogTurnEnd(TurnEnd):
    """Has records written that wait at the end of a turn: now, or later if nobody waits for them."""

    def __init__(self, appender: Appender, records_wait: Callable[[], None]) -> None:
        self._appender = appender
        self._records_wait = records_wait

    def turn_ended(self, now: float) -> None:
        appender = self._appender
        if appender.records > 0 and (appender.state is IDLE or (appender.state is LINGERING and appender.is_urgent)):
            self._records_wait()
