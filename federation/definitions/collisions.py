"""Mappings of several upstreams that give different topics one name here: nobody could tell the messages apart.

That may be meant, so it is a warning. Two upstreams with the same topic are none: links bring it together on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.upstream import Direction, Upstream
from federation.topics.filters import intersection
from federation.topics.mapping import TopicMapping

STEPS_MAX: Final = 20_000  # compared pairs of rules and filters; what follows is not compared


class Collision(NamedTuple):
    """`policy` and `upstreams`: their names. `text` names the keys and the topics."""

    policy: str
    upstreams: tuple[str, str]
    text: str


class _Pulling:
    """A link that takes messages, with its mapping."""

    def __init__(self, upstream: Upstream, policies: tuple[Policy, ...]) -> None:
        self.name = upstream.name
        self.policies = policies
        self.mapping = TopicMapping(upstream.exchange)
        self.local_filters = [rule.local.filter for rule in self.mapping.rules] or [b"#"]
        self.key = (
            f'upstream "{self.name}": exchange' if upstream.exchange else f'upstream "{self.name}" (without exchange)'
        )


def collisions(links: Iterable[tuple[Upstream, tuple[Policy, ...]]], policies: Sequence[Policy]) -> list[Collision]:
    """At most one for each policy and pair of links. `links`: upstream and policies of each."""
    pulling = [_Pulling(upstream, own) for upstream, own in links if upstream.direction is Direction.IN]
    found: list[Collision] = []
    steps = 0
    for policy in policies:
        if policy.apply_to is not ApplyTo.TOPICS:
            continue
        own = [link for link in pulling if policy in link.policies]
        for one, other in combinations(own, 2):
            if not one.mapping.rules and not other.mapping.rules:
                continue
            steps += len(one.local_filters) * len(other.local_filters)
            if steps > STEPS_MAX:
                return found
            if text := _collide(one, other, policy.filter):
                found.append(Collision(policy.name, (one.name, other.name), text))
    return found


def _collide(one: _Pulling, other: _Pulling, pattern: bytes) -> str:
    """A text with a topic here that is another one at each of both upstreams; "" for none."""
    for first in one.local_filters:
        of_policy = intersection(first, pattern)
        if of_policy is None:
            continue
        for second in other.local_filters:
            common = intersection(of_policy, second)
            if common is None:
                continue
            sample = _topic_of(common)
            at_one, at_other = one.mapping.map_out(sample), other.mapping.map_out(sample)
            if at_one is not None and at_other is not None and at_one != at_other:
                return (
                    f"{one.key} and {other.key} give different topics one name here: {at_one.decode()} and "
                    f"{at_other.decode()} are both {sample.decode()}, where nobody can tell them apart"
                )
    return ""


def _topic_of(topic_filter: bytes) -> bytes:
    """A topic that the filter matches: another level for each wildcard."""
    levels = topic_filter.split(b"/")
    return b"/".join(b"x%d" % index if level in (b"+", b"#") else level for index, level in enumerate(levels, 1))
