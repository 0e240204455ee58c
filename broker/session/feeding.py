"""SUBSCRIBE to a filter that a plugin feeds (broker/feeds.py)."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.packets import SubscribeFilter
from broker.codec.reason_codes import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
from broker.context import Context
from broker.errors import MqttError
from broker.routing.names import SHARE_PREFIX, check_topic_filter, has_wildcard
from broker.routing.subscription import Subscription
from broker.session.session import Session

FEEDS_MAX: Final = 100
"""Of a session, each of which reads the logs of all nodes. Policy: one more is refused with 0x97 (Quota exceeded)."""
NO_PLUGIN: Final = "this node has no event log: $stream/ needs the plugin event_log in plugin_order"
SHARED: Final = "$stream/ and $share/ do not go together"
A_BROKER: Final = "$stream/ is for clients, not for links of other brokers"


def begin_feed(
    context: Context, session: Session, request: SubscribeFilter, known: Subscription | None
) -> tuple[int, bytes, str]:
    """(reason code of a refusal [MQTT5 3.9.3] or SUCCESS; the position at which the feed of a filter begins, that of `known`
    where it goes on; why it is refused)."""
    try:
        return SUCCESS, _position(context, session, request, known), ""
    except MqttError as error:
        return error.reason_code, b"", error.text


def _position(context: Context, session: Session, request: SubscribeFilter, known: Subscription | None) -> bytes:
    """Raises MqttError."""
    feeds = context.feeds
    full = request.topic_filter
    if feeds is None:
        raise MqttError(IMPLEMENTATION_SPECIFIC_ERROR, NO_PLUGIN)
    if session.bridge_end is not None:
        raise MqttError(IMPLEMENTATION_SPECIFIC_ERROR, A_BROKER)
    check_topic_filter(full)
    if known is None and session.fed is not None and session.fed.count() >= FEEDS_MAX:
        raise MqttError(QUOTA_EXCEEDED, f"the client has {FEEDS_MAX} subscriptions to $stream/")
    topic_filter, position = feeds.begin(full, request.start, b"" if known is None else known.current_position())
    if topic_filter.startswith(SHARE_PREFIX):
        raise MqttError(TOPIC_FILTER_INVALID, SHARED)
    settings = context.settings
    levels_max = settings.max_topic_levels
    if topic_filter.count(b"/") >= levels_max:
        raise MqttError(TOPIC_FILTER_INVALID, f"the topic filter has more than {levels_max} levels")
    authorization = context.authorization
    if authorization is not None and not authorization.may_subscribe(session.identity(), b"", topic_filter):
        raise MqttError(NOT_AUTHORIZED, "the client may not read these topics")
    if not settings.wildcard_subscription_available and has_wildcard(topic_filter):
        raise MqttError(WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, "this server has no subscriptions with wildcards")
    return position
