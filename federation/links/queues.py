"""The queues of shared groups on one node: which groups have one, by the policies for queues, and who consumes them.

A policy that names its group gives it a queue at once; one whose pattern has several groups does so when the first client of
this node subscribes. A queue whose policy is gone is consumed elsewhere no more, and is removed when it is empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.broker import Broker
from broker.routing.names import full_filter, parse_filter
from broker.session.draining import free_credit, queue_session
from broker.session.group_queues import GroupQueues
from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.resolution import Resolution
from federation.links.bridging.bridging import bridging_of
from federation.links.bridging.headers import QUEUE_BYTES_MAX
from federation.links.pb.link_status_pb2 import GroupQueue
from federation.links.queue_link import Credit, QueueLink


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """Defaults for keys that policies leave out.

    queues_max        queues of a node; a group beyond them gets none, unless an empty queue without members gives way
    max_length        messages of one queue
    max_length_bytes  their bytes
    """

    queues_max: int = 1_000
    max_length: int = 100_000
    max_length_bytes: int = 67_108_864


QUEUE_DEFAULTS: Final = QueueDefaults()
NO_TTL: Final = 0.0


class Demand:
    """The demand of one group of this domain at all its upstreams. `credits` by the id of the link."""

    def __init__(self) -> None:
        self.credits: dict[str, Credit] = {}
        self._first = 0  # whose turn it is to be asked first: so that each upstream has its share

    def plan(self, waiting: int, free: int) -> list[str]:
        """Share the `free` credit of the consumers here among the upstreams that offer jobs. `waiting`: jobs in the
        queue here. Returns the links whose limit is another one."""
        left = 0 if waiting else free
        names = list(self.credits)
        self._first = (self._first + 1) % len(names) if names else 0
        counts: dict[str, int] = {}
        for name, credit in self.credits.items():  # who was asked stays asked, or two upstreams send for one credit
            counts[name] = min(left, credit.asked(), credit.offered)
            left -= counts[name]
        for name in names[self._first :] + names[: self._first]:
            credit = self.credits[name]
            more = min(left, max(0, min(credit.offered, credit.prefetch) - counts[name]))
            counts[name] += more
            left -= more
        return [name for name, count in counts.items() if self.credits[name].ask(count)]


class Queues:
    """`turn_ended` follows every turn in which something may have changed.

    refused  groups that got no queue, because there are too many or the name is too long
    appeared  groups that have their first member on this node, since the last turn
    changed_groups  groups to look at in `turn_ended` (queue_link.py, Credits)
    """

    def __init__(self, broker: Broker, defaults: QueueDefaults) -> None:
        self.refused = 0
        self.consumers = bridging_of(broker).consumers
        self.consumers.is_open = True
        self._broker = broker
        self._defaults = defaults
        self._queues = GroupQueues(broker)
        self._resolution = Resolution([], [], [])
        self._has_policies = False
        self._policies: dict[bytes, Policy] = {}  # of the groups that have a queue, as `$share/GROUP/FILTER`
        self._leaving: set[bytes] = set()  # queues without a policy, which wait to be empty
        self._demands: dict[bytes, Demand] = {}
        self._links: dict[str, QueueLink] = {}
        self.changed_groups: dict[bytes, None] = {}
        self.appeared: dict[tuple[bytes, bytes], None] = {}

    # --- what the definitions say

    def resolve(self, resolution: Resolution, now: float) -> None:
        """The definitions are these from now on. `set_links` follows."""
        self._resolution = resolution
        found = [(policy.group, policy.filter) for policy in resolution.policies if _names_its_group(policy)]
        found += self._queues.declared()
        self._has_policies = any(policy.apply_to is ApplyTo.QUEUES for policy in resolution.policies)
        if self._has_policies:
            found += [(name, topic_filter) for name, topic_filter in self._broker.local_interest() if name]
        self._follow(dict.fromkeys(found), now)

    def set_links(self, links: dict[str, QueueLink], now: float) -> None:
        """These links for queues run on this node."""
        self._links = links
        self._share_groups(now)

    def _follow(self, groups: Iterable[tuple[bytes, bytes]], now: float) -> bool:
        """Give each group the queue that its policy says, if there is one. True when other groups have queues, or others."""
        before = dict(self._policies)
        unused: list[bytes] | None = None
        for share_name, topic_filter in groups:
            full = full_filter(share_name, topic_filter)
            policy = self._resolution.queue_policy_of(share_name, topic_filter)
            group = self.consumers.group_of(full)
            has_queue = group is not None and group.queue is not None
            self._policies.pop(full, None)
            self._leaving.discard(full)
            if policy is None:
                if has_queue:
                    self._leaving.add(full)
                    self.changed_groups[full] = None
                continue
            if not has_queue and self._is_full() and unused is None:
                unused = self._unused()
            if has_queue or self._has_place(full, unused or [], now):
                self._policies[full] = policy
                self._declare(share_name, topic_filter, policy, now)
                self.changed_groups[full] = None
        return self._policies != before

    def _declare(self, share_name: bytes, topic_filter: bytes, policy: Policy, now: float) -> None:
        limits = policy.definition.limits
        defaults = self._defaults
        self._queues.declare(
            share_name,
            topic_filter,
            limits.max_length or defaults.max_length,
            limits.max_length_bytes or defaults.max_length_bytes,
            limits.message_ttl or NO_TTL,
            now,
            limits.rejects,
        )

    def _is_full(self) -> bool:
        return len(self._policies) + len(self._leaving) >= self._defaults.queues_max

    def _has_place(self, full: bytes, unused: list[bytes], now: float) -> bool:
        """Return whether there may be one more queue. One that is `unused` gives way."""
        if len(full) > QUEUE_BYTES_MAX or (self._is_full() and not unused):
            self.refused += 1
            return False
        if self._is_full():
            other = unused.pop()
            del self._policies[other]
            self._queues.remove(*parse_filter(other), now)
        return True

    def _unused(self) -> list[bytes]:
        """The groups whose queue is empty, that have no members on this node, and that no policy names."""
        found: list[bytes] = []
        for full, policy in self._policies.items():
            group = self.consumers.group_of(full)
            queue = None if group is None else queue_session(group)
            is_idle = group is not None and len(group) == 0 and queue is not None and queue.queue_length() == 0
            if is_idle and full != full_filter(policy.group, policy.filter):
                found.append(full)
        return found

    def _share_groups(self, now: float) -> None:
        """Tell each link for which groups it consumes."""
        self._demands = {}
        for link_id, link in self._links.items():
            link.set_groups([full for full, policy in self._policies.items() if policy in link.plan.policies], now)
            for full, credit in link.credits.items():
                self._demands.setdefault(full, Demand()).credits[link_id] = credit
                self.changed_groups[full] = None

    # --- what operators see

    def rows(self, now: float) -> list[GroupQueue]:
        """All queues of the node, sorted by group."""
        found: list[GroupQueue] = []
        for full in sorted([*self._policies, *self._leaving]):
            group = self.consumers.group_of(full)
            queue = None if group is None else queue_session(group)
            if group is None or queue is None:
                continue
            oldest = None if queue.queue is None else queue.queue.first()
            found.append(
                GroupQueue(
                    group=full.decode(),
                    policy=self._policies[full].name if full in self._policies else "",
                    node=bridging_of(self._broker).home.node_name,
                    messages=queue.queue_length(),
                    bytes=0 if queue.queue is None else queue.queue.bytes,
                    oldest_seconds=None if oldest is None else max(0.0, now - oldest.sent_at),
                    max_length=queue.queue_max,
                    max_length_bytes=queue.queue_bytes_max,
                    members=len(group),
                    remote_consumers=self.consumers.count(full),
                    upstreams=len(self._demands[full].credits) if full in self._demands else 0,
                    dropped=queue.messages_dropped,
                )
            )
        return found

    # --- time and turns

    def next_timeout(self) -> float:
        return self.consumers.again_at

    def turn_ended(self, now: float) -> bool:
        """Give, offer and ask for jobs. True when there was anything to look at."""
        consumers = self.consumers
        if self.appeared:
            appeared = list(self.appeared)
            self.appeared.clear()
            if self._has_policies and self._follow(appeared, now):
                self._share_groups(now)
        changed = dict.fromkeys([*self.changed_groups, *consumers.take_changed(now)])
        self.changed_groups.clear()
        for full in changed:
            consumers.dispatch(full, now)
            self._plan(full, now)
            if full in self._leaving:
                self._remove_empty(full, now)
        return bool(changed)

    def _plan(self, full: bytes, now: float) -> None:
        demand = self._demands.get(full)
        if demand is None:
            return
        group = self.consumers.group_of(full)
        queue = None if group is None else queue_session(group)
        waiting = 0 if queue is None else queue.queue_length()
        free = 0 if group is None or queue is None else free_credit(group)
        for link_id in demand.credits:
            self._links[link_id].set_open(full, free > 0 and waiting == 0)
        for link_id in demand.plan(waiting, free):
            self._links[link_id].ask(full, now)

    def _remove_empty(self, full: bytes, now: float) -> None:
        group = self.consumers.group_of(full)
        queue = None if group is None else queue_session(group)
        if queue is None or queue.queue_length() == 0:
            self._leaving.discard(full)
            self._queues.remove(*parse_filter(full), now)
            self.changed_groups[full] = None  # its consumers elsewhere learn of it


def _names_its_group(policy: Policy) -> bool:
    return policy.apply_to is ApplyTo.QUEUES and policy.group != b"+"
