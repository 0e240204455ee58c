"""The meaning of all definitions: the policy of a topic, and the links that must run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from broker.routing.names import SHARE_PREFIX, parse_filter
from federation.definitions.collisions import Collision, Way, collisions, echo_of
from federation.definitions.error import DefinitionError
from federation.definitions.pb.definitions_pb2 import Explanation
from federation.definitions.policy import ApplyTo, Policy, Selector, UpstreamPattern
from federation.definitions.upstream import ALL, Direction, Upstream, UpstreamSet
from federation.topics.filters import intersection

LINKS_MAX: Final = 10_000
"""Links of a cluster. Those behind them do not run, and are named."""
LINK_ID_LENGTH: Final = 8
QUEUE_EXPIRES_MAX: Final = 600.0
"""Seconds after which jobs that a link has not acknowledged go back to the queue of the upstream, while the link is away."""

Overrides = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link that must run: one for each upstream, kind and overrides.

    link_id   8 hexadecimal digits, the same on every node and after changes of the upstream's keys
    kind      "topics" or "queues"
    upstream  with the overrides of the set applied; for queues the session ends after QUEUE_EXPIRES_MAX, and has another
              client identifier than the one for topics
    policies  those whose topics or groups this link serves, the one that applies first in front
    error     why the link cannot run (state `invalid`); "" when it can
    echo      which topics that it pushes come back over another link; "" for none
    key       random part of the client identifier; "" for none
    is_node   the upstream is another node of the cluster (federation/links/links.py), and none of the definitions
    """

    link_id: str
    kind: str
    upstream: Upstream
    policies: tuple[Policy, ...]
    error: str = ""
    echo: str = ""
    key: str = ""
    is_node: bool = False


class Resolution:
    """A snapshot: changes of the definitions make another one."""

    def __init__(
        self,
        upstreams: Iterable[Upstream],
        sets: Iterable[UpstreamSet],
        policies: Iterable[Policy],
        link_keys: Mapping[str, str] | None = None,
    ) -> None:
        """`link_keys`: by the name of an upstream, LinkPlan.key of its links."""
        self.upstreams = {upstream.name: upstream for upstream in upstreams}
        self.sets = {upstream_set.name: upstream_set for upstream_set in sets}
        self.policies = tuple(sorted(policies, key=lambda policy: policy.rank))
        self._topic_policies = [policy for policy in self.policies if policy.apply_to is ApplyTo.TOPICS]
        self._queue_policies = [policy for policy in self.policies if policy.apply_to is ApplyTo.QUEUES]
        self._link_keys = link_keys or {}
        self._links = self._plan()

    def queue_policy_of(self, share_name: bytes, topic_filter: bytes) -> Policy | None:
        """The one policy that applies to a shared group: the highest priority, then the first name."""
        for policy in self._queue_policies:
            if policy.matches_group(share_name, topic_filter):
                return policy
        return None

    def links(self) -> list[LinkPlan]:
        """The links that must run, sorted by upstream, kind and id."""
        return list(self._links)

    def explain(self, topic: bytes) -> Explanation:
        """Explain a topic, or a shared group as `$share/GROUP/FILTER`: policies that match, the one that applies, why, and the
        links that carry its messages."""
        if topic.startswith(SHARE_PREFIX):
            share_name, topic_filter = parse_filter(topic)
            found = [policy for policy in self._queue_policies if policy.matches_group(share_name, topic_filter)]
        else:
            found = [policy for policy in self._topic_policies if policy.matches(topic)]
        answer = Explanation(topic=topic.decode())
        for policy in found:
            answer.policies.add(
                name=policy.name,
                pattern=policy.pattern,
                priority=policy.priority,
                applies=policy is found[0],
                reason=_reason(policy, found),
            )
        for plan in self._links:
            if found and found[0] in plan.policies:
                uris = [uri.redacted() for uri in plan.upstream.uris]
                answer.links.add(id=plan.link_id, upstream=plan.upstream.name, uris=uris)
        if found:
            answer.missing.extend(self._missing(found[0]))
        return answer

    def _missing(self, policy: Policy) -> tuple[str, ...]:
        found = [self.unresolved_name(policy)]
        upstream_set = self.sets.get(policy.definition.value)
        if policy.definition.selector is Selector.UPSTREAM_SET and upstream_set is not None:
            found += self._missing_members(upstream_set)
        return tuple(text for text in found if text)

    def _missing_members(self, upstream_set: UpstreamSet) -> list[str]:
        return [
            f'federation-upstream-set "{upstream_set.name}": [{index}].upstream: no upstream "{upstream}"'
            for index, (upstream, _) in enumerate(upstream_set.members)
            if upstream not in self.upstreams
        ]

    @cached_property
    def collisions(self) -> list[Collision]:
        """Mappings of upstreams that give different topics one name here."""
        return collisions(self._ways(self._links).values(), self._topic_policies)

    def _ways(self, plans: Iterable[LinkPlan]) -> dict[str, Way]:
        """The links for topics that can run, by id."""
        topics = ApplyTo.TOPICS.value
        return {
            plan.link_id: Way(plan.upstream, plan.policies, self._topic_policies)
            for plan in plans
            if plan.kind == topics and not plan.error
        }

    def unresolved(self) -> list[str]:
        """A text for each name that a policy or a set has and nothing defines."""
        texts = [text for _, found in sorted(self.sets.items()) for text in self._missing_members(found)]
        if self._left_out:
            texts.append(f"more than {LINKS_MAX} links: {self._left_out} of them do not run, the last ones by upstream")
        texts += self.faults(self.upstreams)
        found = [(policy.name, self.unresolved_name(policy)) for policy in self.policies]
        return texts + [f'policy "{name}": {text}' for name, text in found if text]

    def unresolved_name(self, policy: Policy) -> str:
        """Name what a policy needs and nothing defines; "" when it has an upstream, or needs none."""
        definition = policy.definition
        selector = definition.selector
        if selector is None or self._members(policy):
            return ""
        match selector:
            case Selector.UPSTREAM:
                what = f'no upstream "{definition.value}"'
            case Selector.UPSTREAM_SET if definition.value == ALL:
                what = "there is no upstream yet"
            case Selector.UPSTREAM_SET if definition.value in self.sets:
                what = f'none of the upstreams of the set "{definition.value}" exists'
            case Selector.UPSTREAM_SET:
                what = f'no upstream set "{definition.value}"'
            case _:
                what = "no upstream has a name that matches"
        return f"definition.{selector.value}: {what}"

    def copied(self, policy: Policy) -> list[str]:
        """A warning for each policy for topics that brings copies to the groups of a federated policy for queues, or the
        reverse. `policy`: one of the two."""
        others = self._topic_policies if policy.apply_to is ApplyTo.QUEUES else self._queue_policies
        return [
            f"pattern: it shares topics with the policy {other.name}: a message that comes over a link for topics is a job "
            "of its own for groups here, beside the one that moves between the domains"
            for other in others
            if policy.definition.selector is not None
            and other.definition.selector is not None
            and intersection(policy.filter, other.filter) is not None
        ]

    def _members(self, policy: Policy) -> list[tuple[Upstream, Overrides]]:
        """The upstreams of a policy that exist, with the overrides of its set."""
        value = policy.definition.value
        match policy.definition.selector:
            case None:
                return []
            case Selector.UPSTREAM:
                found = self.upstreams.get(value)
                return [(found, ())] if found else []
            case Selector.UPSTREAM_PATTERN:
                pattern = UpstreamPattern(value)
                return [(upstream, ()) for name, upstream in self.upstreams.items() if pattern.matches(name)]
            case _ if value == ALL:
                return [(upstream, ()) for upstream in self.upstreams.values()]
            case _:
                upstream_set = self.sets.get(value)
                members = upstream_set.members if upstream_set else ()
                return [(self.upstreams[name], overrides) for name, overrides in members if name in self.upstreams]

    def _plan(self) -> tuple[LinkPlan, ...]:
        policies: dict[tuple[str, str, Overrides], list[Policy]] = {}
        for policy in self.policies:
            for upstream, overrides in self._members(policy):
                policies.setdefault((upstream.name, policy.apply_to.value, overrides), []).append(policy)
        plans = [self._link(*key, tuple(found)) for key, found in policies.items()]
        plans.sort(key=lambda plan: (plan.upstream.name, plan.kind, plan.link_id))
        self._left_out = max(0, len(plans) - LINKS_MAX)
        return tuple(self._with_echoes(_without_conflicts(plans[:LINKS_MAX])))

    def _with_echoes(self, plans: list[LinkPlan]) -> list[LinkPlan]:
        """The plans, those with the direction `out` with their `echo`."""
        if not any(plan.upstream.direction is Direction.OUT for plan in plans):
            return plans
        ways = self._ways(plans)
        return [
            replace(plan, echo=echo_of(ways[plan.link_id], ways.values())) if plan.link_id in ways else plan
            for plan in plans
        ]

    def faults(self, upstreams: Collection[str] = (), policy: Policy | None = None) -> list[str]:
        """Warn of links of some upstreams, or of a policy, that cannot run."""
        return [
            f'link {plan.link_id} to "{plan.upstream.name}" cannot run: {plan.error}'
            for plan in self._links
            if plan.error and (plan.upstream.name in upstreams or policy in plan.policies)
        ]

    def echo_warnings(self, upstream: str | None = None, policy: Policy | None = None) -> list[str]:
        """Warn of links of an upstream, or of a policy, that get back what they push."""
        return [
            _echo_text(plan)
            for plan in self._links
            if plan.echo and (plan.upstream.name == upstream or policy in plan.policies)
        ]

    def echoes(self) -> list[str]:
        """`echo_warnings` of all upstreams."""
        return [f'upstream "{plan.upstream.name}": {_echo_text(plan)}' for plan in self._links if plan.echo]

    def _link(self, name: str, kind: str, overrides: Overrides, policies: tuple[Policy, ...]) -> LinkPlan:
        upstream, error = self.upstreams[name], ""
        try:
            upstream = upstream.with_overrides(overrides)
        except DefinitionError as fault:
            error = f"the overrides of the set do not fit the upstream: {fault}"
        if kind == ApplyTo.QUEUES.value:
            expires = QUEUE_EXPIRES_MAX if upstream.expires is None else min(upstream.expires, QUEUE_EXPIRES_MAX)
            tag = f"{upstream.consumer_tag}-{kind}" if upstream.consumer_tag else ""
            upstream = replace(upstream, expires=expires, consumer_tag=tag)
            if upstream.direction is Direction.OUT:
                error = error or "an upstream with direction out is pushed to, and jobs of queues are pulled"
        return LinkPlan(
            link_id(name, kind, overrides), kind, upstream, policies, error, key=self._link_keys.get(name, "")
        )


def _reason(policy: Policy, found: list[Policy]) -> str:
    """Return why one of the policies that match, the one that applies in front, applies or not."""
    best = found[0]
    if policy is not best:
        if policy.priority < best.priority:
            return f"priority {policy.priority} is lower than {best.priority} of {best.name}"
        return f"the same priority as {best.name}, whose name comes first"
    if len(found) == 1:
        return "the only policy whose pattern matches"
    if found[1].priority < best.priority:
        return f"priority {best.priority} is the highest of {len(found)} policies whose patterns match"
    return f"priority {best.priority} is the highest, and the name comes first of those with it"


def _echo_text(plan: LinkPlan) -> str:
    return (
        f"direction: {plan.echo} again. A broker without MQTT 5 tells such messages from no others: the link does "
        "not run there. Prefixes in `exchange` keep the directions apart"
    )


def _without_conflicts(plans: list[LinkPlan]) -> list[LinkPlan]:
    """The plans. One whose client identifier another one before it has at the same address cannot run: each would take the
    session of the other."""
    taken: dict[tuple[str, str, int], str] = {}
    found: list[LinkPlan] = []
    for plan in plans:
        tag = plan.upstream.consumer_tag
        keys = [(tag, uri.host, uri.port) for uri in plan.upstream.uris] if tag and not plan.error else []
        if other := next((taken[key] for key in keys if key in taken), ""):
            found.append(replace(plan, error=f"consumer-tag: the link {other} has it at the same address"))
        else:
            taken.update(dict.fromkeys(keys, plan.link_id))
            found.append(plan)
    return found


def link_id(upstream: str, kind: str, overrides: Overrides) -> str:
    """The id of a link. It does not depend on the upstream's own keys, so that status and session outlive changes of them."""
    plain = [(name, [astuple(uri) for uri in value] if name == "uris" else value) for name, value in overrides]
    return sha256(repr((upstream, kind, plain)).encode()).hexdigest()[:LINK_ID_LENGTH]
