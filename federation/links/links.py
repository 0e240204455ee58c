"""All links of a node without I/O: from what the definitions resolve to, and what local clients want, to one `Link` each."""

from __future__ import annotations

import random

from broker.broker import Broker
from broker.message import NEVER
from federation.definitions.resolution import LinkPlan, Resolution
from federation.definitions.upstream import Direction, InterestMode
from federation.links.filters import covers, intersection
from federation.links.link import Link
from federation.links.status import LinkStatus


class Links:
    """by_id  the links that run here, by their id"""

    def __init__(self, domain: str, broker: Broker, rng: random.Random) -> None:
        self.by_id: dict[str, Link] = {}
        self._domain = domain
        self._broker = broker
        self._rng = rng
        self._wanted: dict[bytes, None] = {}  # filters of local clients

    def resolve(self, resolution: Resolution, now: float) -> None:
        """The definitions are these from now on. A link whose plan changed begins anew."""
        plans = {plan.link_id: plan for plan in resolution.links()}
        for link_id, link in list(self.by_id.items()):
            plan = plans.get(link_id)
            if plan is None or plan != link.plan:
                del self.by_id[link_id]
                link.stop("the definitions have changed", plan is None, now)
        for link_id, plan in plans.items():
            if link_id not in self.by_id:
                link = self.by_id[link_id] = Link(plan, self._domain, self._broker, self._rng, now)
                link.change_filters(self._filters_of(plan), (), now)
                link.start(now)

    def want(self, topic_filter: bytes, now: float) -> None:
        """A local client has subscribed to a filter that nobody had."""
        self._wanted[topic_filter] = None
        for link in self.by_id.values():
            self._renew(link, now)

    def want_no_more(self, topic_filter: bytes, now: float) -> None:
        """The last local subscription of a filter is gone."""
        self._wanted.pop(topic_filter, None)
        for link in self.by_id.values():
            self._renew(link, now)

    def _renew(self, link: Link, now: float) -> None:
        wanted = self._filters_of(link.plan)
        present = link.subscriptions.wanted
        link.change_filters(
            [topic_filter for topic_filter in wanted if topic_filter not in present],
            [topic_filter for topic_filter in present if topic_filter not in wanted],
            now,
        )

    def _filters_of(self, plan: LinkPlan) -> dict[bytes, None]:
        """What a link subscribes to at its upstream."""
        found: dict[bytes, None] = {}
        if plan.upstream.direction is Direction.OUT:
            return found
        for policy in plan.policies:
            if plan.upstream.interest is InterestMode.ALL:
                found[policy.filter] = None
                continue
            for wanted in self._wanted:
                common = intersection(policy.filter, wanted)
                if common is not None:
                    found[common] = None
        return {one: None for one in found if not any(one != other and covers(other, one) for other in found)}

    def stop(self, now: float) -> None:
        """The node stops. Sessions stay at the upstreams, for this node after a restart or for another one."""
        for link in self.by_id.values():
            link.stop("the node stops", False, now)

    def next_timeout(self) -> float:
        at = NEVER
        for link in self.by_id.values():
            at = min(at, link.next_timeout())
        return at

    def handle_timeout(self, now: float) -> None:
        for link in self.by_id.values():
            if link.next_timeout() <= now:
                link.handle_timeout(now)

    def statuses(self, now: float) -> list[LinkStatus]:
        return [link.status(now) for link in self.by_id.values()]
