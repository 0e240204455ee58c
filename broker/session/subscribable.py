"""Decides whether a client may subscribe to a topic filter here, by the settings and by its access."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.reason_codes import (
    NOT_AUTHORIZED,
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_FILTER_INVALID,
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED,
)
from broker.context import Context
from broker.errors import MqttError
from broker.routing.names import FEED_PREFIX, check_topic_filter, has_wildcard, parse_filter
from broker.session.session import Session


def judge_filter(context: Context, session: Session, full: bytes) -> tuple[int, bytes, bytes]:
    """(reason code of a refusal or SUCCESS, share_name, topic_filter) for a filter as in SUBSCRIBE."""
    settings = context.settings
    try:
        check_topic_filter(full)
        share_name, topic_filter = parse_filter(full)
    except MqttError:
        return TOPIC_FILTER_INVALID, b"", b""
    if topic_filter.count(b"/") >= settings.max_topic_levels:
        return TOPIC_FILTER_INVALID, b"", b""
    if share_name and topic_filter.startswith(FEED_PREFIX):
        return SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, b"", b""
    if share_name and not settings.shared_subscription_available:
        return SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, b"", b""
    authorization = context.authorization
    if authorization is not None and not authorization.may_subscribe(session.identity(), share_name, topic_filter):
        return NOT_AUTHORIZED, b"", b""
    if not settings.wildcard_subscription_available and has_wildcard(topic_filter):
        return WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, b"", b""
    return SUCCESS, share_name, topic_filter
