"""Serves the subscriptions to `$stream/` from the event logs of this node and of the other members."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.errors import MqttError
from broker.event_log.log import EventLog
from broker.event_log.other_logs import TAG_STREAM
from broker.event_log.stream.feed import LogFeed
from broker.event_log.stream.own_log import OwnLog
from broker.event_log.stream.place import Place, decode_place, first_place, further_place
from broker.event_log.stream.reads import StreamReads
from broker.event_log.stream.remote_log import LogForMembers, RemoteLog
from broker.event_log.stream.start import LATEST, StartFault, parse_start, split_filter
from broker.feeds import Feed, FeedReader, Feeds
from broker.hooks import Members
from broker.server.logging import get_logger

LOGS_MAX: Final = 1000  # of nodes; the logs of more are not read


class Streams(Feeds):
    """reads  of the logs"""

    def __init__(
        self, log: EventLog, members: Members, now: Callable[[], float], flush_soon: Callable[[], None]
    ) -> None:
        super().__init__()
        self._members = members
        self._log = get_logger("event_log")
        self._wall_ns = log.wall_ns
        self._writer = log.writer
        self._own = OwnLog(log)
        self.reads = StreamReads(log.wall_ns, now, flush_soon)
        self.reads.add_log(self._own)
        self._served = LogForMembers(log, self._own, members, self._follow)
        self.reads.followed = self._follow
        members.observers.append(self._members_changed)

    def _follow(self) -> None:
        """Somebody waits for new records of this node, or no more."""
        self._writer.follow(self._served.followers > 0 or self.reads.is_following(self._own.node))

    def _members_changed(self) -> None:
        names = [other.name for other in self._members.others() if TAG_STREAM in other.tags]
        for name in self.reads.logs.keys() - {self._own.node, *names}:
            self.reads.remove_log(name)
        for name in names:
            if name not in self.reads.logs and len(self.reads.logs) < LOGS_MAX:
                self.reads.add_log(RemoteLog(name, self._members))

    def begin(self, full_filter: bytes, start: str, known: bytes) -> tuple[bytes, bytes]:
        text, topic_filter = split_filter(full_filter, start)
        try:
            if known and decode_place(known).text == text:
                return topic_filter, known
        except ValueError:
            pass  # as where there was none
        now_ns = self._wall_ns()
        try:
            found = parse_start(text, now_ns)
        except StartFault as fault:
            raise MqttError(TOPIC_FILTER_INVALID, str(fault)) from None
        place = first_place(topic_filter, text, found, now_ns)
        if text == LATEST:  # not by time: after the clock was ahead, the records before are later than now
            place.logs[self._own.node] = self._own.end()
        return topic_filter, place.encode()

    def further(self, position: bytes, former: bytes) -> bytes:
        try:
            return further_place(decode_place(position), decode_place(former)).encode()
        except ValueError:
            return position

    def open(self, reader: FeedReader, position: bytes) -> Feed:
        try:
            place = decode_place(position)
        except ValueError as error:  # of a later version, or of a node that has lost its way
            self._log.error("a subscription to $stream has no place", client_id=reader.client_id, reason=str(error))
            return LogFeed(reader, Place(b"", "", 0, False), self.reads)
        feed = LogFeed(reader, place, self.reads)
        self.reads.open(feed)
        return feed

    def stop(self) -> None:
        self._members.observers.remove(self._members_changed)
        self.reads.stop()
