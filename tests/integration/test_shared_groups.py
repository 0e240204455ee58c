"""Shared groups of two processes, one of which is killed with messages in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from broker.codec.packets import PubAck
from mqtt_client import reached
from node_process import FAILED_SECONDS
from waiting import eventually

if TYPE_CHECKING:
    from mqtt_client import Clients
    from node_process import Nodes

JOBS: Final = 100
DONE: Final = 5  # acknowledged on the node that dies


@pytest.mark.parametrize(
    "strategy",
    [
        "round_robin",
        pytest.param("least_inflight", marks=pytest.mark.slow),
        pytest.param("hash_topic", marks=pytest.mark.slow),
    ],
)
@pytest.mark.one_process("reads what one process keeps for one other")
async def test_what_a_killed_node_had_in_flight_is_worked_on(nodes: Nodes, clients: Clients, strategy: str) -> None:
    """Each job is worked on; none twice but those that the killed node's member had and had not acknowledged."""
    overrides = {
        "mqtt": {"shared_subscription_strategy": strategy},
        "plugin_order": ["admin", "federation", "prometheus"],
        "plugins": {"prometheus": {"listen_address": "127.0.0.1:0"}},
    }
    node1, node2 = await nodes.federation(2, overrides)
    here, there = await clients.connect(node1.port, "here"), await clients.connect(node2.port, "there")
    for member in (here, there):
        await member.subscribe("$share/team/jobs/#", "fence", qos=1)
    publisher = await clients.connect(node1.port, "publisher")
    await reached(publisher, "fence", here, there)

    there.acknowledges = False
    await publisher.publish_all((f"jobs/{number}", b"%d" % number, 1) for number in range(JOBS))
    await eventually(lambda: here.messages.qsize() + there.messages.qsize() == JOBS, "every job has a member")
    jobs = await there.take(there.messages.qsize())
    assert DONE < len(jobs) < JOBS
    there.send(*(PubAck(job.packet_id) for job in jobs[:DONE]))

    async def are_told() -> bool:
        _, text = await node1.rest_text("GET", "/metrics")
        return f'gmqtt_federation_copies_kept{{node="{node2.name}"}} {len(jobs) - DONE}.0' in text.splitlines()

    await eventually(are_told, "the other node tells which jobs are done")
    await node2.kill()
    left = {job.payload for job in jobs[DONE:]}
    own = [job.payload for job in await here.take(here.messages.qsize())]
    again = [job.payload for job in await here.take(len(left), FAILED_SECONDS)]
    assert sorted(own + [job.payload for job in jobs]) == sorted(b"%d" % number for number in range(JOBS))
    assert sorted(again) == sorted(left)
    await publisher.publish("fence", b"", 1)
    assert (await here.message()).topic == b"fence"
