"""The messages that match a filter, for one caller of TopicService.Watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from broker.api.errors import invalid_argument
from broker.api.fields import timestamp, topic_field
from broker.api.pb.admin_pb2 import WatchedMessage, WatchRequest
from broker.api.retained import WALK_NODES, text_of
from broker.message import Message
from broker.routing.names import FEED_PREFIX, SHARE_PREFIX, check_topic_filter
from broker.routing.retained import RetainedWalk
from broker.routing.subscription import Subscription
from broker.session.watching import Watching

if TYPE_CHECKING:
    from broker.server.host import Host

RETAINED_MAX: Final = 1000
SEND_RETAINED: Final = 2  # Retain Handling: not with the subscription


def wanted_filter(request: WatchRequest) -> bytes:
    """Raises ApiError."""
    topic_filter = topic_field(request.topic_filter, check_topic_filter, "topic_filter")
    if topic_filter.startswith((SHARE_PREFIX, FEED_PREFIX)):
        raise invalid_argument(f'topic_filter "{request.topic_filter}" is no plain one, such as sensors/#')
    return topic_filter


async def watch(server: Host, name: str, topic_filter: bytes, retained: bool) -> AsyncGenerator[WatchedMessage, None]:
    """Retained messages, then what comes, until the caller goes."""
    broker = server.broker
    has_some = asyncio.Event()
    session = Watching(broker, name, server.now(), has_some.set)
    subscription = Subscription(session, b"", topic_filter, 2, False, True, SEND_RETAINED, 0)
    broker.insert_subscription(session, topic_filter, subscription)
    server.flush_soon()
    try:
        if retained:
            walk = RetainedWalk(broker.retained, topic_filter)
            sent = 0
            while not walk.is_done() and sent < RETAINED_MAX:
                walk.advance(WALK_NODES)
                if walk.found is None:
                    await asyncio.sleep(0)
                else:
                    sent += 1
                    yield shown(server, walk.found, session.dropped, True)
        while True:
            await has_some.wait()
            has_some.clear()
            for message in session.take():
                yield shown(server, message, session.dropped, message.retain)
    finally:
        session.ended = True
        broker.unsubscribe_one(session, topic_filter)
        server.flush_soon()


def shown(server: Host, message: Message, dropped: int, is_retained: bool) -> WatchedMessage:
    found = WatchedMessage(
        topic_name=message.topic.decode(),
        qos=message.qos,
        retained=is_retained,
        client_id=message.client_id,
        time=timestamp(server.wall_time(server.now())),
        missing=dropped,
    )
    text = text_of(message.payload, False)
    if text is None:
        found.payload_raw = message.payload
    else:
        found.payload = text
    return found
