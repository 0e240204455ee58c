"""What the definitions say of a link, and what is on its way, for its status."""

from __future__ import annotations

from dataclasses import replace

from broker.broker import Broker
from broker.message import NEVER
from federation.definitions.resolution import LinkPlan
from federation.definitions.upstream import Direction
from federation.links.handshake import local_client_id
from federation.links.relay import Relay
from federation.links.status import LinkState, LinkStatus


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
            return replace(row, waiting=0)
        return replace(row, waiting=session.queue_length(), in_flight=session.inflight_length())
    if relay is None:
        return row
    oldest_at = relay.oldest_at()
    return replace(
        row, in_flight=relay.in_flight(), lag=0.0 if oldest_at == NEVER else max(0.0, broker.now - oldest_at)
    )
