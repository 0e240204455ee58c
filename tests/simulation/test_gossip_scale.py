"""Large clusters on virtual time: what they cost and how fast they learn; `scripts/simulate gossip` measures more."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from federation.gossip.addresses import pack_ip
from federation.gossip.config import LAN
from federation.gossip.members import STATE_ALIVE, STATE_DEAD
from federation.gossip.messages import OUR_VERSIONS, SUSPECT, Accusation, Alive
from federation.gossip.suspicion import suspicion_timeout
from federation.serf.tags import encode_tags
from simulator.gossip_cluster import Cluster
from simulator.gossip_measures import SWIM, Measures, measure, slow_nodes
from simulator.network import Faults
from simulator.serf_process import GOSSIP_PORT


def check_figures(measures: Measures, loss: float) -> None:
    """The promises of SWIM: the load of a node and the time to the first suspicion do not grow with the cluster."""
    assert measures.false == 0
    assert measures.packets < 2.05 + 20 * loss  # one ping and one ack a second, and what follows a lost one
    shortest = suspicion_timeout(LAN.suspicion_mult, measures.nodes, LAN.probe_interval)
    for crash in measures.crashes:
        assert shortest < crash.first <= crash.last
    assert measures.suspected() < 4.0
    assert measures.last() - measures.first() < 3.0
    assert measures.joined < 5.0
    assert (
        measures.healed < 150.0
    )  # up to 30 s until a reconnect, and a suspicion may go on for 72 s before it is refuted


def test_hundreds_of_nodes() -> None:
    check_figures(measure(300, 1, 0.0, 0.0, is_cut=False, crashes=2), 0.0)


def test_a_partition_of_a_hundred_nodes() -> None:
    check_figures(measure(100, 1, 0.0, 0.0, crashes=2), 0.0)


@pytest.mark.slow
def test_a_partition_of_a_thousand_nodes() -> None:
    """The run before every push has hundreds of nodes, two crashes and no partition, and a partition of a hundred."""
    check_figures(measure(1000, 1, 0.0, 0.0), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "loss", "churn"), [(100, 0.1, 30.0), (200, 0.05, 10.0)])
def test_nodes_that_come_and_go_on_a_network_that_loses(nodes: int, loss: float, churn: float) -> None:
    check_figures(measure(nodes, 2, loss, churn), loss)


def test_the_same_seed_measures_the_same() -> None:
    first, second = (replace(measure(20, 3, 0.05, 6.0), cpu=0.0, memory=0.0) for _ in range(2))
    assert first == second
    assert replace(measure(20, 4, 0.05, 6.0), cpu=0.0, memory=0.0) != first


def test_slow_nodes_make_lifeguard_suspect_less_than_swim() -> None:
    """Lifeguard's paper (arXiv:1707.00788) reports less than a fiftieth of the false failures of healthy nodes."""
    swim = slow_nodes(SWIM, 1, 24, 5, 16.0)
    assert swim > 500
    assert slow_nodes(LAN, 1, 24, 5, 16.0) * 50 < swim


def test_a_second_machine_of_one_name_takes_nothing_over() -> None:
    with closing(Cluster(1, 20)) as cluster:
        cluster.world.run(5.0)
        intruder = cluster.add_host("n7")
        cluster.start(intruder)
        cluster.world.run(60.0)
        cluster.check_all()
        others = [host for host in cluster.hosts if host.name != "n7"]
        assert cluster.all_hold_alive([cluster.world.hosts["n7"]], others)


# --- the checkers find what breaks the rules


def forge(cluster: Cluster, incarnation: int, tags: dict[str, str]) -> None:
    """n3 hears of n7 at this incarnation, whoever said so."""
    alive = Alive(incarnation, "n7", pack_ip(cluster.hosts[7].ip), GOSSIP_PORT, encode_tags(tags), OUR_VERSIONS)
    cluster.process(cluster.hosts[3]).serf.receive_packet(alive.encode(), ("10.9.9.9", 1), cluster.world.now)
    cluster.hosts[3].settle()


def test_an_incarnation_that_nobody_has_said_is_found() -> None:
    with closing(Cluster(1, 12, Faults())) as cluster:
        cluster.world.run(1.0)
        with pytest.raises(AssertionError, match="n3 has n7 at 5"):
            forge(cluster, 5, {"a": "1"})


def test_a_return_without_a_refutation_is_found() -> None:
    with closing(Cluster(1, 12)) as cluster:
        n3, n7 = cluster.process(cluster.hosts[3]), cluster.hosts[7]
        cluster.crash(n7)
        cluster.world.run_until(lambda: cluster.all_hold_dead(n7, cluster.living()), 60.0, "n7 crashed")
        node = n3.serf.gossip.table.nodes["n7"]
        assert node.state == STATE_DEAD
        node.incarnation = 0  # as if the rule that compares incarnations were not there
        with pytest.raises(AssertionError, match=r"n3 .*n7"):
            forge(cluster, 1, {})


def test_an_incarnation_that_goes_back_is_found() -> None:
    with closing(Cluster(1, 12)) as cluster:
        n3 = cluster.process(cluster.hosts[3])
        accusation = Accusation(1, "n7", "n2").encode(SUSPECT)
        cluster.process(cluster.hosts[7]).serf.receive_packet(accusation, ("10.9.9.9", 1), cluster.world.now)
        forge(cluster, 2, {"a": "1"})
        n3.serf.gossip.table.nodes["n7"].incarnation = 0
        with pytest.raises(AssertionError, match="goes back"):
            forge(cluster, 1, {"a": "2"})


def test_an_incarnation_that_goes_back_without_an_event_is_found() -> None:
    """A suspicion is no event of a member."""
    with closing(Cluster(1, 12)) as cluster:
        n3 = cluster.process(cluster.hosts[3])
        accusation = Accusation(1, "n7", "n2").encode(SUSPECT)
        cluster.process(cluster.hosts[7]).serf.receive_packet(accusation, ("10.9.9.9", 1), cluster.world.now)
        forge(cluster, 2, {"a": "1"})
        n3.serf.gossip.table.nodes["n7"].incarnation = 0
        n3.serf.receive_packet(accusation, ("10.9.9.9", 1), cluster.world.now)
        with pytest.raises(AssertionError, match="goes back"):
            cluster.hosts[3].settle()


def test_a_return_that_no_event_tells_is_found() -> None:
    with closing(Cluster(1, 12)) as cluster:
        n7 = cluster.hosts[7]
        cluster.crash(n7)
        cluster.world.run_until(lambda: cluster.all_hold_dead(n7, cluster.living()), 60.0, "n7 crashed")
        cluster.process(cluster.hosts[3]).serf.gossip.table.nodes["n7"].state = STATE_ALIVE
        with pytest.raises(AssertionError, match="without a refutation"):
            cluster.check_all()


def test_a_name_that_moves_to_another_machine_is_found_at_once() -> None:
    with closing(Cluster(1, 12)) as cluster:
        n3 = cluster.process(cluster.hosts[3]).serf
        n3.gossip.table.nodes["n7"].facts = n3.gossip.table.nodes["n8"].facts
        n3.receive_packet(Accusation(1, "n7", "n2").encode(SUSPECT), ("10.9.9.9", 1), cluster.world.now)
        with pytest.raises(AssertionError, match="not its machine"):
            cluster.hosts[3].settle()


def test_a_name_at_another_machine_is_found() -> None:
    with closing(Cluster(1, 12)) as cluster:
        n3 = cluster.process(cluster.hosts[3]).serf
        n3.gossip.table.nodes["n7"].facts = n3.gossip.table.nodes["n8"].facts
        with pytest.raises(AssertionError, match="n3 has n7"):
            cluster.check_all()
