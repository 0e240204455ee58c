"""What the definitions say of a link, and what is on its way, for its status."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.broker import Broker
from broker.message import NEVER
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import Direction
from federation.links.handshake import local_client_id
from federation.links.relay import Relay
from federation.links.status import LinkState, LinkStatus

QUEUE: Final = (
    "queue"  # why a message is dropped: the queue of a link that pushes had no room, or the message expired there
)


def planned(plan: LinkPlan, state: LinkState, since: float, changed_at: float) -> LinkStatus:
    """The status of a link that has carried nothing yet."""
    upstream = plan.upstream
    return LinkStatus(
        plan.link_id,
        plan.kind,
        upstream.name,
        state,
        since,
        changed_at,
        direction=upstream.direction.value,
        mapping="; ".join(upstream.exchange),
        policies=tuple(policy.name for policy in plan.policies),
        patterns=tuple(policy.pattern for policy in plan.policies),
    )


def with_figures(row: LinkStatus, plan: LinkPlan, relay: Relay | None, broker: Broker) -> LinkStatus:
    """The status with what is on its way. `relay`: None while the link has no connection."""
    if plan.upstream.direction is Direction.OUT:
        session = broker.sessions.get(local_client_id(plan))
        if session is None:
            return replace(row, waiting=0, oldest_waiting=0.0, lag=0.0)
        sent = None if session.inflight is None else session.inflight.first()
        queued = None if session.queue is None else session.queue.first()
        dropped = {QUEUE: session.messages_dropped} if session.messages_dropped else {}
        return replace(
            row,
            in_flight=session.inflight_length(),
            lag=0.0 if sent is None else max(0.0, broker.now - sent.sent_at),
            waiting=session.queue_length(),
            oldest_waiting=0.0 if queued is None else max(0.0, broker.now - queued.sent_at),
            dropped=dropped,
        )
    if relay is None:
        return row
    in_flight = relay.in_flight()
    oldest_at = relay.oldest_at()
    if oldest_at != NEVER:
        lag = max(0.0, broker.now - oldest_at)
    else:
        lag = -1.0 if in_flight else 0.0  # when the store's part began is not known
    return replace(row, in_flight=in_flight, lag=lag)
