"""All links of a node without I/O: one `Link` for each plan of the definitions, with the interest of the cluster."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from broker.broker import Broker
from broker.config.addresses import parse_address
from broker.routing.subscriber import OWN_PREFIX
from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.resolution import LinkPlan, Resolution
from federation.definitions.resolution import link_id as id_of
from federation.definitions.upstream import Direction, InterestMode, Upstream
from federation.definitions.uri import LinkUri
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import JOBS_TAG
from federation.links.handshake import local_client_id
from federation.links.interest import ClusterInterest, Domain, LinkInterest
from federation.links.link import Link
from federation.links.queue_link import QueueLink
from federation.links.queues import QUEUE_DEFAULTS, QueueDefaults, Queues
from federation.links.reconnecting import SessionPlace
from federation.links.status import LinkState, LinkStatus
from federation.links.topic_link import TopicLink
from federation.topics.filters import intersection
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope, near_policies
from federation.trust import Reach


def _asks(plan: LinkPlan) -> bool:
    """Return whether a link for topics subscribes at its upstream."""
    return plan.upstream.direction is Direction.IN


def _relaying(plans: Iterable[LinkPlan]) -> set[str]:
    """The links whose messages may go on to domains that do not say so: others push some of the topics, or all are kept, maybe
    for those domains."""
    for_topics = [plan for plan in plans if plan.kind == ApplyTo.TOPICS.value]
    pushed = {policy for plan in for_topics if not _asks(plan) for policy in plan.policies}
    return {
        plan.link_id
        for plan in for_topics
        if plan.upstream.interest is InterestMode.ALL
        or any(intersection(policy.filter, other.filter) is not None for policy in plan.policies for other in pushed)
    }


JOBS_MAX: Final = 1_000  # without an acknowledgement, of one node at another
RECONNECT_SECONDS: Final = 1.0  # base of the delay before the next try
AWAY_SECONDS_MAX: Final = 60.0
"""A node that is away for so long has lost the jobs that it did not acknowledge: they go back to the queue."""


def node_plans(nodes: Mapping[str, Reach], policies: Iterable[Policy]) -> list[LinkPlan]:
    """One link to each other node of the cluster, while there are policies for queues.

    nodes  how a node is reached, by its name; one that takes no jobs is left out
    """
    for_queues = tuple(policy for policy in policies if policy.apply_to is ApplyTo.QUEUES)
    plans: list[LinkPlan] = []
    for name, reach in sorted(nodes.items()) if for_queues else ():
        if not reach.addr or reach.is_go_only:
            continue  # the federation has said so
        address = parse_address(reach.addr)
        if not address.host or not address.port:
            continue
        upstream = Upstream(
            name,
            (LinkUri("mqtts" if reach.is_tls else "mqtt", address.host, address.port),),
            prefetch_count=JOBS_MAX,
            reconnect_delay=RECONNECT_SECONDS,
            expires=AWAY_SECONDS_MAX,
            consumer_tag=JOBS_TAG,  # the link adds the name of this node
        )
        plans.append(LinkPlan(id_of(name, "node", ()), ApplyTo.QUEUES.value, upstream, for_queues, is_node=True))
    return plans


class Links:
    """by_id     the links that run here, by their id
    epochs    the links that this node should run, with its epoch as their owner
    queues    those of shared groups on this node
    interest  that of the cluster; `pass_on` follows its changes
    secret    of which the random parts of client identifiers at upstreams are made, and which the disk has; b"" for none
    plain_ids  the links, by id, whose new sessions at upstreams have client identifiers without a random part, in any case
    """

    def __init__(
        self, domain: bytes, broker: Broker, rng: random.Random, queue_defaults: QueueDefaults = QUEUE_DEFAULTS
    ) -> None:
        self.secret = b""
        self.plain_ids: Collection[str] = ()
        self.by_id: dict[str, Link] = {}
        self.epochs: dict[str, int] = {}
        self.queues = Queues(broker, queue_defaults)
        self._resolution = Resolution([], [], [])
        self._nodes: dict[str, Reach] = {}
        self._plans: dict[str, LinkPlan] = {}
        self._before: dict[str, Link] = {}  # while definitions change: links whose definition was another one
        self._draining: dict[str, None] = {}
        self.interest = ClusterInterest(self.queues.appeared)
        self._relaying: set[str] = set()
        self._due: dict[str, bool] = {}
        self._domain = Domain(domain, broker, bridging_of(broker), self.interest, rng, self._due)
        self._patterns: dict[str, list[tuple[bytes, bool]]] = {}  # `near_policies` of each link

    def resolve(self, resolution: Resolution, now: float) -> None:
        """The definitions are these from now on. A link begins anew where its plan changed, or which topics are its own."""
        self._resolution = resolution
        plans = {plan.link_id: plan for plan in (*resolution.links(), *node_plans(self._nodes, resolution.policies))}
        ranked = [policy for policy in resolution.policies if policy.apply_to is ApplyTo.TOPICS]
        patterns: dict[str, list[tuple[bytes, bool]]] = {}
        for planned in plans.values():
            own = {policy.name for policy in planned.policies}
            patterns[planned.link_id] = near_policies((policy.filter, policy.name in own) for policy in ranked)
        self._relaying = _relaying(plans.values())
        for link_id, link in list(self.by_id.items()):
            plan = plans.get(link_id)
            is_same = plan == link.plan and (link_id in self._relaying) == link.relays
            if plan is None or not is_same or patterns[link_id] != self._patterns[link_id]:
                del self.by_id[link_id]
                if isinstance(link, TopicLink) and _asks(link.plan) and link_id in self.epochs:
                    self.interest.remove_link(link.interest)
                ends = plan is None or (plan.upstream.consumer_tag, plan.key) != (
                    link.plan.upstream.consumer_tag,
                    link.plan.key,
                )
                link.stop("the definitions or the nodes of the cluster have changed", ends, now)
                self._before[link_id] = link
        for link_id, old in self._plans.items():
            if link_id not in plans or _asks(plans[link_id]):
                self._drop_queue(old, now)
        self._patterns = patterns
        self._plans = plans
        for link_id, epoch in self.epochs.items():
            self.run(link_id, epoch, now)
        self.queues.resolve(resolution, now)
        self._run_queue_links(now)
        self._before = {}

    def set_nodes(self, nodes: Mapping[str, Reach], now: float) -> None:
        """The nodes of the cluster whose queues this node consumes, and how they are reached, by name."""
        if nodes != self._nodes:
            self._nodes = dict(nodes)
            self.resolve(self._resolution, now)

    def _run_queue_links(self, now: float) -> None:
        """Each node runs the links for its own queues."""
        found: dict[str, QueueLink] = {}
        for link_id, plan in self._plans.items():
            if plan.kind == ApplyTo.QUEUES.value:
                link = self.by_id.get(link_id)
                if not isinstance(link, QueueLink):
                    link = self.by_id[link_id] = QueueLink(plan, self._domain, self.queues.changed_groups, now)
                    self._start(link, now)
                found[link_id] = link
        self.queues.set_links(found, now)

    def _start(self, link: Link, now: float) -> None:
        before = self._before.get(link.plan.link_id)
        if before is not None:
            link.follow(before)
        link.start(now)

    def take_due(self) -> dict[str, bool]:
        """The links whose shells have something to do, by id; True for one that has another state or deadline."""
        due = dict(self._due)
        self._due.clear()
        return due

    def turn_ended(self, now: float) -> bool:
        """Carry out what a turn has changed: the broker may have ended local connections, other nodes may have acknowledged
        events, jobs of shared groups move, and interest is passed on. True when there may be more, or output of the broker."""
        for link_id in list(self._due):
            link = self.by_id.get(link_id)
            if link is not None:
                link.settle(now)
        if self._domain.broker.acks_awaited:
            for link in self.by_id.values():
                link.release()
        has_more = self.queues.turn_ended(now)
        return (self.interest.has_changes() and self.pass_on(now)) or has_more

    def plans(self) -> Mapping[str, LinkPlan]:
        """The links of the definitions that run on one node of the cluster, by id."""
        return {link_id: plan for link_id, plan in self._plans.items() if plan.kind == ApplyTo.TOPICS.value}

    def run(self, link_id: str, epoch: int, now: float, session: SessionPlace | None = None) -> None:
        """This node runs the link from now on. One that is blocked tries again at once. `session`: where the node that ran the
        link before has left its session, None for none that is known."""
        self.epochs[link_id] = epoch
        self._draining.pop(link_id, None)
        plan = self._plans.get(link_id)
        link = self.by_id.get(link_id)
        if link is not None:
            link.epoch = epoch
            link.effects.move()
            if link.state is LinkState.BLOCKED:
                link.restart(now)
        elif plan is not None:
            interest = self._interest_of(plan)
            made = self.by_id[link_id] = TopicLink(plan, interest, link_id in self._relaying, self._domain, now)
            made.epoch = epoch
            is_restored = session is not None and made.restore_session(session, now)
            if self.secret and not (is_restored or link_id in self.plain_ids):
                made.take_random_id(self.secret)
            if _asks(plan):
                self.interest.add_link(interest)
            self._start(made, now)

    def drain(self, link_id: str, deadline: float, now: float) -> None:
        """Another node runs the link from now on. `end` it when it is `drained`."""
        self.epochs.pop(link_id, None)
        self._draining[link_id] = None
        link = self.by_id.get(link_id)
        if link is not None:
            if isinstance(link, TopicLink) and _asks(link.plan):
                self.interest.remove_link(link.interest)
            link.drain(deadline, now)
            link.epoch = 0

    def drained(self) -> list[str]:
        """Return the draining links that have nothing in flight."""
        found = [(link_id, self.by_id.get(link_id)) for link_id in self._draining]
        return [link_id for link_id, link in found if link is None or link.is_drained()]

    def end(self, link_id: str, now: float, keeps_queue: bool = False) -> int:
        """The link does not run here any more. Its session stays at the upstream. `keeps_queue`: no other node runs it, so its
        messages to push wait here. Returns how many of them are dropped."""
        self.epochs.pop(link_id, None)
        self._draining.pop(link_id, None)
        link = self.by_id.pop(link_id, None)
        if link is None:
            return 0
        link.stop("this node runs the link no longer", False, now)
        # The node that runs the link has a session of its own there. This one would collect messages.
        return 0 if keeps_queue else self._drop_queue(link.plan, now)

    def sessions(self) -> dict[str, SessionPlace | None]:
        """Return where the links for topics that run here have sessions at upstreams; None for a link without one."""
        return {link_id: link.session_place() for link_id, link in self.by_id.items() if isinstance(link, TopicLink)}

    def queues_left(self) -> list[str]:
        """The links that push and do not run here, and have a local session that collects messages: from before a restart, or
        from a time without other nodes."""
        sessions = self._domain.broker.sessions
        return [
            link_id
            for link_id, plan in self.plans().items()
            if not _asks(plan) and link_id not in self.by_id and local_client_id(plan) in sessions
        ]

    def drop_queue(self, link_id: str, now: float) -> int:
        """Another node runs one of `queues_left` for good. Returns how many messages are dropped."""
        return self._drop_queue(self._plans[link_id], now)

    def _drop_queue(self, plan: LinkPlan, now: float) -> int:
        """End the local session of a link that pushes. Returns how many messages it had."""
        if _asks(plan):
            return 0
        broker = self._domain.broker
        session = broker.sessions.get(local_client_id(plan))
        count = 0 if session is None else session.queue_length() + session.inflight_length()
        broker.close_client(local_client_id(plan), True, now)
        return count

    def drop_old_queues(self, now: float) -> None:
        """The node starts: end the local sessions that a store has kept for links without a definition."""
        kept = {local_client_id(plan) for plan in self._plans.values() if not _asks(plan)}
        broker = self._domain.broker
        for client_id in [name for name in broker.sessions if name.startswith(OWN_PREFIX) and name not in kept]:
            broker.close_client(client_id, True, now)

    def _interest_of(self, plan: LinkPlan) -> LinkInterest:
        upstream = plan.upstream
        return LinkInterest(
            Scope(self._patterns[plan.link_id]),
            TopicMapping(upstream.exchange),
            self._domain.name,
            upstream.max_hops,
            upstream.interest is InterestMode.ALL and _asks(plan),
        )

    def pass_on(self, now: float) -> bool:
        """Tell the upstreams what has changed in `interest`. True when there is more, for a later turn."""
        has_more = self.interest.pass_on()
        for link in self.by_id.values():
            link.send_interest(now)
        return has_more

    def stop(self, now: float) -> None:
        """The node stops. Sessions stay at the upstreams, for this node after a restart or for another one."""
        for link in self.by_id.values():
            link.stop("the node stops", False, now)

    def next_timeout(self) -> float:
        at = self.queues.next_timeout()
        for link in self.by_id.values():
            at = min(at, link.next_timeout())
        return at

    def restart(self, link_id: str, now: float) -> bool:
        """Connect a link anew. False for one that does not run here, or that another node runs soon."""
        link = self.by_id.get(link_id)
        if link is None or link_id in self._draining:
            return False
        link.restart(now)
        return True

    def handle_timeout(self, now: float) -> list[Exception]:
        """It is that late; harmless when early. Returns the faults of links. A fault stops its link only."""
        faults: list[Exception] = []
        for link in self.by_id.values():
            if link.next_timeout() <= now:
                try:
                    link.handle_timeout(now)
                except Exception as error:
                    faults.append(error)
                    link.stop("internal error", False, now)
        return faults

    def statuses(self, now: float) -> list[LinkStatus]:
        """One row for each link, sorted by upstream."""
        return [link.status(now) for link in self.by_id.values()]
