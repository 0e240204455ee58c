"""Who the nodes are: found by asking, away, without a log."""

from __future__ import annotations

import pytest

from broker.event_log.pb import event_log_pb2 as pb
from event_log_node import become_members, event_log_nodes
from gmqttctl.connection import Connection
from pipeline.cluster import Cluster, members_of
from pipeline.errors import NodeAway, NodeError, NoEventLog, OptionError, PipelineError

pytestmark = pytest.mark.usefixtures("asks_at_once")


def ask(*servers: str) -> tuple[set[str], set[str], set[str]]:
    cluster = Cluster(Connection(servers))
    try:
        members = cluster.ask()
    finally:
        cluster.close()
    return set(members.nodes), set(members.away), members.without_log


def test_the_other_members_are_found_by_asking() -> None:
    with event_log_nodes("n1", "n2", "n3") as nodes:
        assert ask(nodes[0].address) == ({"n1", "n2", "n3"}, set(), set())


def test_a_member_that_is_known_to_one_node_only_is_found() -> None:
    with event_log_nodes("n1", "n2") as (a, b), event_log_nodes("n3") as (c,):
        become_members(b, c)
        assert ask(a.address)[0] == {"n1", "n2", "n3"}


def test_a_node_that_does_not_answer_is_away_in_the_answer_of_each_server() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        b.stop()
        assert ask(a.address) == ({"n1"}, {"n2"}, set())
        assert ask(b.address, a.address) == ({"n1"}, {"n2"}, set())


def test_servers_that_do_not_answer_are_an_error_of_the_option() -> None:
    with event_log_nodes("n1") as (a,):
        a.stop()
        with pytest.raises(
            OptionError, match=f'option servers: "{a.address}" leads to no event log: .*does not answer'
        ):
            ask(a.address)


def test_a_query_goes_on_while_all_servers_are_away() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        cluster = Cluster(Connection((a.address,)))
        cluster.ask()
        a.stop()
        assert (set(cluster.ask().nodes), set(cluster.ask().away)) == ({"n2"}, {"n1"})
        b.stop()
        assert (set(cluster.ask().nodes), set(cluster.ask().away)) == (set(), {"n1", "n2"})
        cluster.close()


def described(node: str, *members: pb.LogMember, log_id: str = "L") -> pb.LogDescription:
    return pb.LogDescription(node=node, log_id=log_id, members=members)


def member(node: str, status: str = "ALIVE", api_addr: str = "") -> pb.LogMember:
    return pb.LogMember(node=node, status=status, api_addr=api_addr)


def test_members_without_a_log_are_named() -> None:
    members = members_of(
        {"a:1": described("n1", member("go1"), member("n2", api_addr="b:1")), "b:1": NoEventLog("b:1", "")}
    )
    assert (set(members.nodes), members.without_log, members.away) == ({"n1"}, {"go1", "n2"}, {})
    with pytest.raises(PipelineError, match=r"go1 keeps no event log; n2 keeps no event log.*allowPartial"):
        members.check(allow_partial=False, needs_all=False)
    members.check(allow_partial=True, needs_all=True)


def test_a_member_that_left_is_not_waited_for() -> None:
    gone = NodeAway("b:1", "does not answer")
    members = members_of({"a:1": described("n1", member("n2", "LEFT", "b:1"), member("go1", "LEFT")), "b:1": gone})
    assert (members.away, members.without_log) == ({}, set())
    members.check(allow_partial=False, needs_all=True)


def test_a_member_that_is_away_matters_where_all_are_needed() -> None:
    gone = NodeAway("b:1", "does not answer")
    members = members_of({"a:1": described("n1", member("n2", "FAILED", "b:1")), "b:1": gone})
    members.check(allow_partial=False, needs_all=False)
    with pytest.raises(PipelineError, match=r"n2 is away \(FAILED, does not answer\)"):
        members.check(allow_partial=False, needs_all=True)


def test_a_server_of_no_known_member_counts_as_away() -> None:
    """It may be a node of its own, whose records a batch would miss."""
    members = members_of({"a:1": described("n1"), "b:1": NodeAway("b:1", "does not answer")})
    assert members.away == {"b:1": "does not answer"}
    with pytest.raises(PipelineError, match=r"b:1 is away \(does not answer\)"):
        members.check(allow_partial=False, needs_all=True)
    members.check(allow_partial=False, needs_all=False)


def test_a_node_that_the_others_forgot_keeps_its_name() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        cluster = Cluster(Connection((a.address,)))
        cluster.ask()
        b.stop()
        a.members.clear()
        assert set(cluster.ask().away) == {"n2"}
        cluster.close()


def test_a_token_goes_to_no_address_that_only_gossip_gives() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        cluster = Cluster(Connection((a.address,), token="secret"))
        members = cluster.ask()
        cluster.close()
        assert (set(members.nodes), b.metadata) == ({"n1"}, [])
        for needs_all in (False, True):
            with pytest.raises(PipelineError, match=rf"n2 .*{b.address}.*servers.*tlsCaFile"):
                members.check(allow_partial=False, needs_all=needs_all)
        members.check(allow_partial=True, needs_all=True)

        cluster = Cluster(Connection((a.address, b.address), token="secret"))
        assert set(cluster.ask().nodes) == {"n1", "n2"}
        cluster.close()
        assert b.metadata[0]["authorization"] == "Bearer secret"


def test_a_node_of_servers_that_is_away_under_another_address_is_waited_for() -> None:
    with event_log_nodes("n1", "n2") as (a, b):
        by_name = f"localhost:{b.port}"
        cluster = Cluster(Connection((a.address, by_name), token="secret"))
        assert cluster.ask().nodes["n2"].address == by_name
        b.stop()
        members = cluster.ask()
        cluster.close()
        assert set(members.away) == {"n2"}
        members.check(allow_partial=False, needs_all=False)

        # A query that begins now does not know whose address that is; that the other members tell of a failure is enough.
        a.members[0].status = "FAILED"
        cluster = Cluster(Connection((a.address, by_name), token="secret"))
        cluster.ask().check(allow_partial=False, needs_all=False)
        cluster.close()


def test_one_node_under_two_addresses_counts_once() -> None:
    members = members_of({"localhost:1": described("n1"), "10.0.0.1:1": described("n1")})
    assert members.nodes["n1"].address == "localhost:1"


def test_two_nodes_of_one_name_are_an_error() -> None:
    with pytest.raises(PipelineError, match="two nodes are named n1: a:1 and b:1"):
        members_of({"a:1": described("n1"), "b:1": described("n1", log_id="other")})


def test_other_faults_are_raised() -> None:
    with pytest.raises(NodeError, match="refused"):
        members_of({"a:1": NodeError("a:1", "refused")})
