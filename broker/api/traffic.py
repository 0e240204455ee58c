"""Counts the messages that are published on this node, by topic and by publisher, for a short time."""

from __future__ import annotations

from heapq import nlargest
from typing import Final

from broker.api.pb.admin_pb2 import PublisherTraffic, TopicTraffic, TrafficResponse
from broker.codec.runs import Run
from broker.hooks import Tap
from broker.message import Message
from broker.publisher import Publisher
from broker.routing.names import filter_matches

COUNTED_MAX: Final = 10_000  # topics, and clients; messages of further ones are in the sums only

Counts = dict[str, list[int]]
"""Name -> [messages, bytes]."""


class Traffic(Tap):
    """A tap of messages whose topics match a filter, b"" for all. It is in the way of each message while it is added."""

    def __init__(self, topic_filter: bytes) -> None:
        super().__init__()
        self.messages = 0
        self.bytes = 0
        self.not_told = 0
        self._topic_filter = topic_filter
        self._topics: dict[bytes, list[int]] = {}
        self._clients: Counts = {}

    def published(self, message: Message, publisher: Publisher | None, now: float) -> None:
        self._add(message.topic, message.client_id, 1, len(message.payload))

    def published_run(self, run: Run, publisher: Publisher | None, now: float) -> None:
        self._add(run.topic, run.client_id, run.count, run.count * run.payload_size)

    def _add(self, topic: bytes, client_id: str, count: int, size: int) -> None:
        if self._topic_filter and not filter_matches(self._topic_filter, topic):
            return
        self.messages += count
        self.bytes += size
        of_topic = self._topics.get(topic)
        of_client = self._clients.get(client_id)
        if of_topic is None and len(self._topics) < COUNTED_MAX:
            of_topic = self._topics[topic] = [0, 0]
        if of_client is None and len(self._clients) < COUNTED_MAX:
            of_client = self._clients[client_id] = [0, 0]
        for counts in (of_topic, of_client):
            if counts is not None:
                counts[0] += count
                counts[1] += size
        if of_topic is None or of_client is None:
            self.not_told += count

    def response(self, seconds: float, limit: int) -> TrafficResponse:
        """The busiest first."""
        return TrafficResponse(
            seconds=seconds,
            messages=self.messages,
            bytes=self.bytes,
            topics=[
                TopicTraffic(topic_name=topic.decode(), messages=counts[0], bytes=counts[1])
                for topic, counts in nlargest(limit, self._topics.items(), key=lambda item: item[1])
            ],
            topics_count=len(self._topics),
            clients=[
                PublisherTraffic(client_id=client_id, messages=counts[0], bytes=counts[1])
                for client_id, counts in nlargest(limit, self._clients.items(), key=lambda item: item[1])
            ],
            not_told=self.not_told,
        )
