"""Links for queues between the nodes of one cluster: each node borrows jobs from all others, by the rules between domains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker.config.addresses import AddressError, parse_address
from broker.routing.subscriber import NODE_PREFIX
from federation.definitions.policy import ApplyTo, Policy
from federation.definitions.resolution import LinkPlan, link_id
from federation.definitions.upstream import Upstream
from federation.definitions.uri import LinkUri

JOBS_MAX: Final = 1_000  # without an acknowledgement, of one node at another
RECONNECT_SECONDS: Final = 1.0  # base of the delay before the next try
AWAY_SECONDS_MAX: Final = 60.0
"""A node that is away for so long has lost the jobs that it did not acknowledge: they go back to the queue."""


def node_plans(nodes: Mapping[str, str], policies: Iterable[Policy]) -> list[LinkPlan]:
    """One link to each other node of the cluster, while there are policies for queues.

    nodes  the address of its event streams (HOST:PORT) by the name of a node; one that cannot be read is left out
    """
    for_queues = tuple(policy for policy in policies if policy.apply_to is ApplyTo.QUEUES)
    plans: list[LinkPlan] = []
    for name, text in sorted(nodes.items()) if for_queues else ():
        try:
            address = parse_address(text, unix_allowed=False)
        except AddressError:
            continue  # the federation has said so
        if not address.host or not address.port:
            continue
        upstream = Upstream(
            name,
            (LinkUri("mqtt", address.host, address.port),),
            prefetch_count=JOBS_MAX,
            reconnect_delay=RECONNECT_SECONDS,
            expires=AWAY_SECONDS_MAX,
            consumer_tag=f"{NODE_PREFIX}jobs",  # the link adds the name of this node
        )
        plans.append(LinkPlan(link_id(name, "node", ()), ApplyTo.QUEUES.value, upstream, for_queues, is_node=True))
    return plans
