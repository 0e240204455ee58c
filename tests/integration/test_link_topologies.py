"""The topologies of RabbitMQ's guides with real processes, some domains as clusters of nodes: every message arrives once in
each domain that links reach within max-hops, and in no other; no filter of a link is left after the last reader.

The graphs and what they reach are those of the simulator. `scripts/chaos topologies` does the same with 10,000 messages.
"""

from __future__ import annotations

from typing import Final

import pytest

from linked_domains import CASES, LinkedDomains
from mqtt_client import Clients
from node_process import Nodes

pytestmark = pytest.mark.slow

MESSAGES: Final = 200  # of each domain


@pytest.mark.parametrize("case", CASES)
async def test_messages_arrive_once_where_links_reach(nodes: Nodes, clients: Clients, case: str) -> None:
    domains = LinkedDomains(nodes, clients, CASES[case])
    await domains.start()
    await domains.publish(MESSAGES)
    assert domains.faults() == []
    await domains.no_filter_seconds()
