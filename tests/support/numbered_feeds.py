"""A plugin that feeds subscriptions with the numbers 0, 1, 2 …, as far as a test says, on the topics t0, t1 and t2."""

from __future__ import annotations

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.errors import MqttError
from broker.feeds import Feed, FeedReader, Feeds
from broker.message import Message
from broker.routing.names import FEED_PREFIX, filter_matches


class NumberedFeed(Feed):
    """`rests`: how often the next search rests before it finds something."""

    def __init__(self, plugin: NumberedFeeds, reader: FeedReader, topic_filter: bytes, number: int) -> None:
        super().__init__()
        self.reader = reader
        self.rests = 0
        self.asked = 0
        self._plugin = plugin
        self._filter = topic_filter
        self._at = number
        self._taken = number

    def next(self, now: float) -> Message | None:
        self.asked += 1
        self.steps = 1
        self.is_resting = self.rests > 0
        if self.is_resting:
            self.rests -= 1
            return None
        while self._at < self._plugin.end:
            number = self._at
            self._at += 1
            topic = b"t%d" % (number % 3)
            if filter_matches(self._filter, topic) and self.reader.may_have(topic):
                return Message(topic, b"%d" % number, 1, False)
        return None

    def taken(self) -> None:
        self._taken = self._at

    def position(self) -> bytes:
        return self._filter + b" %d" % self._taken

    def close(self) -> None:
        self._plugin.open_feeds.remove(self)


class NumberedFeeds(Feeds):
    """`$stream/N/FILTER` begins with the number N."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.open_feeds: list[NumberedFeed] = []
        self.starts: list[str] = []

    def begin(self, full_filter: bytes, start: str, known: bytes) -> tuple[bytes, bytes]:
        self.starts.append(start)
        text, _, topic_filter = full_filter[len(FEED_PREFIX) :].partition(b"/")
        if not text.isdigit():
            raise MqttError(TOPIC_FILTER_INVALID, f"{text.decode()} is no number")
        return topic_filter, known if known and not start else topic_filter + b" " + text

    def further(self, position: bytes, former: bytes) -> bytes:
        return max(position, former, key=lambda each: int(each.split(b" ")[1]))

    def open(self, reader: FeedReader, position: bytes) -> Feed:
        topic_filter, number = position.split(b" ")
        feed = NumberedFeed(self, reader, topic_filter, int(number))
        self.open_feeds.append(feed)
        return feed

    def grow(self, end: int, now: float) -> None:
        self.end = end
        for feed in list(self.open_feeds):
            feed.reader.wake(now)
