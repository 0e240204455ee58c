"""Pairs of links that disturb each other by their mappings. Both are warnings, for either may be meant.

- A collision: two upstreams have different topics with one name here, so nobody could tell the messages apart. Two upstreams
  with the same topic are none: links bring it together on purpose.
- An echo: what a link pushes to an upstream another link takes from it again. Where the upstream strips user properties,
  nothing tells such a message from a new one. Both links have an address in common, and no mapping or policy keeps the topics
  of the two directions apart. A cycle that leads over further domains is not seen here; messages say themselves where they
  were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations
from typing import Final, NamedTuple

from federation.definitions.policy import Policy
from federation.definitions.upstream import Direction, Upstream
from federation.topics.filters import intersection
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope

STEPS_MAX: Final = 20_000  # compared pairs of rules and filters; what follows is not compared


class Collision(NamedTuple):
    """`policy` and `upstreams`: their names. `text` names the keys and the topics."""

    policy: str
    upstreams: tuple[str, str]
    text: str


class Way:
    """A link: its upstream, its policies, and the policies of all links among which they rank, the highest first."""

    def __init__(self, upstream: Upstream, policies: tuple[Policy, ...], ranked: Sequence[Policy]) -> None:
        self.upstream = upstream
        self.policies = policies
        self._ranked = ranked
        self.addresses = {(uri.host, uri.port) for uri in upstream.uris}
        self.mapping = TopicMapping(upstream.exchange)
        self.local_filters = [rule.local.filter for rule in self.mapping.rules] or [b"#"]

    @property
    def key(self) -> str:
        name = f'upstream "{self.upstream.name}"'
        return f"{name}: exchange" if self.mapping.rules else f"{name} (without exchange)"

    @cached_property
    def scope(self) -> Scope:
        own = set(self.policies)
        return Scope((policy.filter, policy in own) for policy in self._ranked)


def collisions(ways: Iterable[Way], policies: Iterable[Policy]) -> list[Collision]:
    """At most one for each policy for topics and pair of links."""
    pulling = [way for way in ways if way.upstream.direction is Direction.IN]
    found: list[Collision] = []
    steps = 0
    for policy in policies:
        own = [way for way in pulling if policy in way.policies]
        for one, other in combinations(own, 2):
            if not one.mapping.rules and not other.mapping.rules:
                continue
            steps += len(one.local_filters) * len(other.local_filters)
            if steps > STEPS_MAX:
                return found
            if text := _collide(one, other, policy.filter):
                found.append(Collision(policy.name, (one.upstream.name, other.upstream.name), text))
    return found


def _collide(one: Way, other: Way, pattern: bytes) -> str:
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


def echo_of(way: Way, others: Iterable[Way]) -> str:
    """Name the topics that a link pushes and one of the others brings back; "" for none."""
    if way.upstream.direction is not Direction.OUT:
        return ""
    for other in others:
        if other.upstream.direction is Direction.IN and way.addresses & other.addresses:
            if topics := _common(way, other):
                return f'{topics.decode()} comes back over the upstream "{other.upstream.name}"'
    return ""


def _common(way: Way, other: Way) -> bytes:
    """A filter of topics that `way` pushes, `other` takes back and `way` pushes again; b"" for none."""
    for pattern in way.scope.patterns:
        for pushed in way.mapping.map_filter_out(pattern):
            for taken in other.mapping.map_filter_in(pushed):
                for part in other.scope.parts(taken):
                    if again := way.scope.parts(part):
                        return again[0]
    return b""
