"""Serves the subscriptions to `$stream/` from the event log."""

from __future__ import annotations

from collections.abc import Callable

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.errors import MqttError
from broker.event_log.log import EventLog
from broker.event_log.stream.feed import LogFeed
from broker.event_log.stream.own_log import OwnLog
from broker.event_log.stream.place import decode_place, first_place
from broker.event_log.stream.reads import StreamReads
from broker.event_log.stream.start import StartFault, parse_start, split_filter
from broker.feeds import Feed, FeedReader, Feeds


class Streams(Feeds):
    """reads  of the logs"""

    def __init__(self, log: EventLog, now: Callable[[], float], flush_soon: Callable[[], None]) -> None:
        super().__init__()
        self._wall_ns = log.wall_ns
        self._own = OwnLog(log)
        self.reads = StreamReads(self._own, log.wall_ns, now, flush_soon)
        self.reads.followed = self._followed
        self._writer = log.writer

    def _followed(self, is_followed: bool) -> None:
        self._writer.is_followed = is_followed

    def begin(self, full_filter: bytes, start: str, known: bytes) -> tuple[bytes, bytes]:
        text, topic_filter = split_filter(full_filter, start)
        if known and decode_place(known).text == text:
            return topic_filter, known
        try:
            found = parse_start(text, self._wall_ns())
        except StartFault as fault:
            raise MqttError(TOPIC_FILTER_INVALID, str(fault)) from None
        return topic_filter, first_place(topic_filter, text, found).encode()

    def open(self, reader: FeedReader, position: bytes) -> Feed:
        feed = LogFeed(reader, decode_place(position), self.reads)
        feed.add_strand(self._own.node)
        self.reads.feeds.add(feed)
        return feed

    def stop(self) -> None:
        self.reads.stop()
