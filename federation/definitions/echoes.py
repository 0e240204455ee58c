"""Links that push to an upstream what another link takes from it again: where the upstream strips user properties, nothing
tells such a message from a new one.

Found in the definitions of this domain: both links have an address in common, and no mapping or policy keeps the topics of the
two directions apart. A cycle that leads over further domains is not seen here; messages say themselves where they were.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.definitions.policy import Policy
from federation.definitions.upstream import Direction, Upstream
from federation.topics.mapping import TopicMapping
from federation.topics.scope import Scope


class Way:
    """A link: its upstream, and the policies of its topics among all that there are, the highest first."""

    def __init__(self, upstream: Upstream, own: Iterable[Policy], ranked: Iterable[Policy]) -> None:
        policies = set(own)
        self.upstream = upstream
        self.addresses = {(uri.host, uri.port) for uri in upstream.uris}
        self.scope = Scope((policy.filter, policy in policies) for policy in ranked)
        self.mapping = TopicMapping(upstream.exchange)


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
