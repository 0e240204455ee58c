"""The retained messages that a subscription brings."""

# compiled with mypyc
from __future__ import annotations

from broker.codec.packets import SubscribeFilter
from broker.context import Context
from broker.routing.names import SYS_PREFIX, has_wildcard
from broker.session.backlog import deleted_portion, new_portion
from broker.session.session import Session


def bring_retained(
    context: Context,
    session: Session,
    request: SubscribeFilter,
    topic_filter: bytes,
    qos: int,
    identifier: int,
    is_new: bool,
) -> None:
    """Add to the backlog of the session what an ordinary subscription brings [MQTT-3.3.1-9..11]. `topic_filter`: the one of
    the request."""
    if request.retain_handling == 2 or (request.retain_handling == 1 and not is_new):
        return
    store = context.sys_retained if topic_filter.startswith(SYS_PREFIX) else context.retained
    if len(store) and (has_wildcard(topic_filter) or store.get(topic_filter) is not None):
        session.add_retained(new_portion(store, request, topic_filter, qos, identifier, session.client_id))
    deletions = None if session.bridge_end is None else session.bridge_end.deletions
    if deletions is not None and len(deletions):
        session.add_retained(deleted_portion(deletions, context.retained, request, topic_filter, qos))
