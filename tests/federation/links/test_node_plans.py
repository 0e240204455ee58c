"""Links between the nodes of a cluster: which there are."""

from __future__ import annotations

import random

import pytest

from broker.broker import Broker
from broker.config.settings import MqttSettings
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import LinkPlan, Resolution
from federation.definitions.upstream import parse_upstream
from federation.links.links import AWAY_SECONDS_MAX, JOBS_MAX, Links, node_plans
from federation.links.status import LinkState
from federation.trust import NO_WAY, Reach

JOBS = parse_policy("jobs", {"pattern": "$share/workers/jobs/#", "definition": {}})
TOPICS = parse_policy("t", {"pattern": "t/#", "definition": {"federation-upstream-set": "all"}})


def uris(plans: list[LinkPlan]) -> list[str]:
    return [plan.upstream.uris[0].redacted() for plan in plans]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({}, []),
        (
            {"b": Reach("10.0.0.2:8901"), "a": Reach("one.example.com:1")},
            ["mqtt://one.example.com:1", "mqtt://10.0.0.2:8901"],
        ),
        ({"a": Reach("[fe80::1]:8901")}, ["mqtt://[fe80::1]:8901"]),
        ({"a": NO_WAY, "d": Reach(":8901"), "e": Reach("10.0.0.2:0"), "f": Reach("x:1")}, ["mqtt://x:1"]),
        ({"a": Reach("a:1", is_tls=True), "b": Reach("b:1", is_go_only=True)}, ["mqtts://a:1"]),
    ],
)
def test_a_link_to_each_node_whose_address_is_known(nodes: dict[str, Reach], expected: list[str]) -> None:
    plans = node_plans(nodes, [JOBS, TOPICS])
    assert uris(plans) == expected
    for plan in plans:
        assert (plan.kind, plan.policies, plan.is_node, plan.error) == ("queues", (JOBS,), True, "")
        assert (plan.upstream.prefetch_count, plan.upstream.expires) == (JOBS_MAX, AWAY_SECONDS_MAX)
    assert node_plans(nodes, [TOPICS]) == []


def test_ids_are_of_the_node_and_of_no_upstream() -> None:
    upstream = parse_upstream("b", {"uri": "mqtt://b.example.com"})
    policy = parse_policy("jobs", {"pattern": "$share/workers/#", "definition": {"federation-upstream-set": "all"}})
    ids = {plan.link_id for plan in Resolution([upstream], [], [policy]).links()}
    ids |= {plan.link_id for plan in node_plans({"b": Reach("b:1"), "c": Reach("c:1")}, [policy])}
    assert len(ids) == 3
    (other,) = node_plans({"b": Reach("elsewhere:1")}, [policy])
    assert other.link_id in ids


def test_links_follow_the_nodes_and_the_policies() -> None:
    links = Links(b"berlin", Broker(MqttSettings(), random.Random(1), 1.0), random.Random(1))
    links.set_nodes({"b": Reach("b:1")}, 1.0)
    assert links.by_id == {}
    links.resolve(Resolution([], [], [JOBS]), 2.0)
    (link,) = links.by_id.values()
    assert (link.state, link.address.redacted()) == (LinkState.STARTING, "mqtt://b:1")
    assert links.plans() == {}, "no node of the cluster runs it for the others"
    links.set_nodes({"b": Reach("b:1"), "c": Reach("c:1")}, 3.0)
    assert len(links.by_id) == 2
    assert links.by_id[link.plan.link_id] is link
    links.set_nodes({"b": Reach("b:2")}, 4.0)
    (moved,) = links.by_id.values()
    assert moved is not link
    assert (link.state, moved.address.redacted()) == (LinkState.SHUTDOWN, "mqtt://b:2")
    links.resolve(Resolution([], [], [TOPICS]), 5.0)
    assert links.by_id == {}
