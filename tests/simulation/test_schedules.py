"""Whole federated nodes through named schedules on virtual time; `scripts/simulate` runs many more seeds of them.

A failure names its schedule and its seed: scripts/simulate --only NAME --first SEED --seeds 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from broker.message import Message
from effort import effort
from federation.stream.state import State
from simulator.copy_schedules import WITH_THREE_COPIES
from simulator.earlier_frames import EarlierFrames
from simulator.federation import ROUGH, Federation
from simulator.node_process import NodeProcess
from simulator.node_store import Disk
from simulator.schedules import SCHEDULES
from simulator.traffic import Traffic

# Seeds that broke something once; odd ones lose, double and delay packets.
ONCE_BROKEN = {
    "force_leave_a_failed_node": (5, 9),
    "two_of_one_name": (6, 7),
    "flapping": (39, 73),
    "split_and_heal": (1, 307),
    "hops_end": (9, 20),
    "linked_clusters": (4, 8),
    "queue_links_break": (1, 37),
    "nodes_with_stores_die": (1,),
    "owners_die": (1,),
    "domains_with_names": (1,),
    "clusters_with_faults": (1, 700007, 700013),
    "definitions_change": (7,),
    "retained_messages_of_domains": (4, 17, 80044, 80054),
    "queue_of_clusters_with_faults": (1,),
    "queue_nodes_die": (1,),
    "queue_definitions_change": (1,),
    "nodes_die_while_cut_off": (1, 1013),
    "older_nodes_beside": (1, 1004),
    "disks_are_full": (1, 6, 9004),  # 9004: a message that waited for a copy was refused, its packet identifier stayed
    "nodes_of_members_die": (1, 13),
    "disks_are_replaced": (1, 2),
    "subscribers_come_while_a_node_is_down": (1, 2),
    "homes_are_lost": (3, 2, 24, 7003),
    # 2: two homes at once, what one had for the other was done there; 13001: a home that came back with another store took what
    # was left of an older session; 20001: what was handed over to a new store went to the adopter of the former one, too
    # 43002: a node with an empty disk published before the sessions of another lost home were adopted
    # 40000: what waited for one lost home, and was relayed to another one that was lost then, went to all sessions of that
    "two_homes_are_lost": (2, 20, 7002, 20004, 30001, 13001, 40000, 43002),
    # 1, 2, 4: a copy for a group whose end was told before the copies of the lost home had it was chosen again by nobody
    # 6: a block for a lost home came from its node and from who had adopted that; 8: a client that had not heard of its new
    # session sent again what its former home had
    # 111: the newest of a copy were not known
    # 5: a keeper that adopted right after its start told nobody
    "homes_are_lost_that_hold": (3, 1, 2, 4, 5, 6, 8, 111),
    # 1, 3: nodes sent to a session without subscriptions, of a client that had begun anew, and no more to its former one
    # 2: a node that started took what a member with a new store says, and kept what was for that store for the lost one
    # 503: a late word of an earlier adoption took the keepers of a home that was back, which was lost then
    # 516, 519: two keepers that started at the same time adopted one store both
    "homes_are_lost_that_hold_with_three_copies": (2, 1, 3, 4, 503, 516, 519),
    # 8023: a session that came from two copies told the newer adoption alone, and the home of the other one brought all of it
    "homes_are_away": (3, 2, 8023),
    "homes_stand_still": (3, 2, 8),
    # 6, 12: clients were let in with the session that the home had, before it heard that another one had adopted it; 11: what
    # went to the adopter was taken by the home that was back, too; 8: a session that its client had used was told as new
    # 50003: a node that sent to the home again did not tell the adopter, and both took its messages
    "homes_come_back_to_their_clients": (3, 6, 8, 11, 12, 50003),
    # 10: what was sent to the home came before what the adopter handed over; 17: a session came back before it had left, and
    # took what was for the adopter
    "slow_homes_come_back": (3, 10, 17),
    # 11: what the copy of a home had, and its own disk had not when it was killed, was left out by the adopter that handed on
    # 111: as 11, a packet identifier of a publisher
    # 112, 119: a session left its adopter before its former home had heard all nodes, and what was newer went first
    # 94001: a client waited no longer for the node that its session had gone to than for others, and began anew
    "homes_come_back_while_they_are_adopted": (11, 112, 119, 111, 94001),
    # 5: as 8023 above. 5, 7000: messages for a group, to a home that was not known since a start, were brought to its adopter
    # and not delivered; 7001: a node that was away, and that the next home did not know, was waited for by the home before;
    # 7029: what was left to the adopter of a session was told as handed on, and not taken from that
    # 8010: packet identifiers of a home that was back were not taken behind its own copy; 71104: a node that had started again
    # sent to an older home than the one that was down
    "power_fails_while_clients_move": (3, 1, 2, 5, 7000, 7001, 7029, 8010, 71104),
    # 3: a session that came to one of which its client did not know was given up with that
    # 7001: as 7029 above; 7000: a copy has times of other clocks than the store
    "clocks_jump_while_clients_move": (3, 2, 7000, 7001),
    "clients_move_while_nodes_die": (1, 8, 29, 1077, 5009, 5013, 6006),
    "clients_move_between_the_sides_of_a_cut": (
        1,
        15,
        19,
        1057,
        1058,
        5003,
        6003,
        6018,
        7005,
        7011,  # a home that was back took a block that it had sent itself for a record of its copy
        7037,
        7109,  # a client was let in while a node had failed whose stream had not ended: packet identifiers of both met
        9508,
        10057,
        7114,  # a keeper with an old copy took messages that were for the home, and brought what that had handed on
        44005,  # what waited for a home that was back went to who had adopted its sessions before
        40003,  # which keepers a store has was not heard by a home that was lost and came back
        41008,  # a client that did not know that its session was a new one took that to another node, without subscriptions
        10034,  # as above, and a session from a copy went on to a third node, which forgot what was from the copy
    ),
    # 4, 9: a client did not wait longer for a worker that hung where that had begun to hand over the session
    # 3: the end of an earlier hand-over, which came before the session, ended a later one
    # 91000: a session that waited for its next home had been forgotten by the one before
    "workers_of_one_node_die": (9, 4, 3, 91000),
    # 60004: a node was drained while a client waited for its session there, which came then
    "nodes_are_drained": (1, 60004),
    # 2: a worker did not know the keepers of another one of its machine, and sent what was for its lost store to the next one
    "workers_are_lost": (2, 1, 3),
    "machines_are_lost": (1, 3, 60004),  # 3: as 2 above; 60004: the machine had all nodes that others join
    # 71104: nodes that started again sent to the home that a session was leaving, which took nothing: messages were lost
    "one_node_with_workers_dies": (1, 2, 71104),
    # 41: nodes that wanted nothing were not known after a start
    "machines_of_all_sizes_fail": (41, 1),
    # 1: an adopter that was adopted itself did not hear that all was relayed, and its sessions never left; 2: nor did it take
    # what others had for sessions that its own copy lacks; 17: a session was forgotten before a node that was back had brought
    # what it had for a lost home
    "machines_are_cut_off_while_clients_move": (0, 3, 1, 2, 17),
    # 2: a session that was adopted came to a worker beside its former home from both: messages were out of order
    # 30: of two sessions that a home handed over the first one's end was taken for that of the second; 80001: what came
    # directly did not wait for a second home that handed over, too; 60004: a node waited for a hand-over that had gone past it
    "machines_come_back_to_their_clients": (2, 1, 30, 80001, 60004),
    # 12, 20: blocks that came over gRPC, or when a cut was over, were brought by the adopter once more; 13: as these, of a
    # block from a copy; and a session that left waited for the node that it left to; 21, 23: a home that was cut off let its
    # client be taken by who had only adopted the session, and did not wait for one that it reached; 29: what came when a cut
    # was over had been given to another node; 71103: what was written without a keeper was in no copy
    "nodes_are_cut_off_with_their_clients": (12, 13, 20, 21, 23, 29, 71103),
    # 14, 20, 34: a node that started again heard first of a home that a session was leaving, and sent there and to the next
    # 1, 11, 13, 48: the end of a hand-over went to where the client was, and not to the home that its head had gone to
    "nodes_start_again_while_clients_move": (20, 14, 34, 1, 11, 13, 48),
    # 37: a home gave sessions on, and was lost behind their heads
    # 128: what a node brought for a lost home came behind the session
    "homes_begin_anew_while_clients_move": (37, 1, 128),
    # 80001: a home that died while it handed a session over, and its adopter, left the rest to each other
    # 504: a home handed over what its node had brought to the adopter, too
    "nodes_stand_still_with_their_clients": (1, 2, 80001, 504),
    # 93002: as 504, of what a home had from the copy of that node's store
    "nodes_are_cut_off_while_clients_are_away": (93002, 93000),
    # 5: a node said that its messages come behind a home, and then sent them there
    "first_flights_are_lost": (5, 1),
    "streams_break_while_clients_move": (1, 22, 25, 31, 32, 1003, 1034, 1063, 1079, 5001, 5008, 10006),
}

# Thirty nodes, fifty domains, two copies, stores that are short, machines of several workers;
# test_gossip.py has a hundred nodes before a push, too.
LARGE = (
    "thirty_nodes",
    "fifty_domains",
    "two_homes_are_lost",
    "homes_are_lost_that_hold",
    "homes_come_back_while_they_are_adopted",
    "one_node_with_workers_dies",
    "workers_of_machines_die",
    "workers_are_lost",
    "machines_are_lost",
    "machines_come_back_to_their_clients",
    "machines_are_cut_off",
    "machines_are_cut_off_while_clients_move",
    "machines_of_all_sizes_fail",
    "first_flights_are_lost",
    "nodes_of_two_builds",
    "nodes_are_cut_off_with_their_clients",
    "nodes_stand_still_with_their_clients",
    "nodes_are_cut_off_while_clients_are_away",
    "nodes_start_again_while_clients_move",
    "homes_begin_anew_while_clients_move",
    *[schedule.__name__ for schedule in WITH_THREE_COPIES],
)
# The other kind of stream, whose sessions are the same code: kills and nodes that stand still go over it before a push.
OVER_GRPC = tuple(
    f"{name}_over_grpc"
    for name in ("streams_break", "splits_with_traffic", "slow_readers", "outboxes_overflow", "nodes_are_given_up")
)


def seeds() -> Iterator[Any]:
    """One seed of each schedule; the others, and the largest one, are long."""
    for name in SCHEDULES:
        first, *others = ONCE_BROKEN.get(name, (1, 2))
        yield pytest.param(name, first, marks=[pytest.mark.slow] if name in (*LARGE, *OVER_GRPC) else [])
        yield from (pytest.param(name, seed, marks=pytest.mark.slow) for seed in others)


@pytest.mark.parametrize(("name", "seed"), list(seeds()))
def test_schedule(name: str, seed: int) -> None:
    SCHEDULES[name](seed)


def test_the_only_seed_finds_the_others_soon_after_a_quick_restart() -> None:
    """The others did not declare it failed, so gossip does not tell it about them; their pings do."""
    federation = Federation(2, 4)
    first = federation.hosts[0]
    first.crash()
    federation.run(0.3)
    first.start()
    federation.until_agreement(6.0, "a quick restart of the only seed")


def test_a_node_that_starts_again_hears_of_this_build_what_it_says() -> None:
    """Gossip tells it of the members of before one after the other; those that it has not told yet are no earlier build."""
    federation = Federation(2, 4, each=[{"disk": Disk()} for _ in range(4)])
    for host in federation.hosts:
        federation.do(host, lambda node, now: node.subscribe("t", now))
    federation.until_agreement(10.0, "a subscription")
    host = federation.hosts[3]
    host.crash()
    host.start()
    federation.until_agreement(30.0, "a start")
    receivers = federation.node(host).node.receivers.by_name.values()
    assert not any(isinstance(receiver.sessions, EarlierFrames) for receiver in receivers)


@pytest.mark.parametrize("damage", ["a filter too many", "a filter too few", "a message twice"])
def test_the_oracle_sees_damage(damage: str) -> None:
    federation = Federation(2, 3)
    first, second, _ = federation.hosts
    federation.do(first, lambda node, now: node.subscribe("t/a", now))
    federation.until_agreement(10.0, "a subscription")
    process = federation.node(second)
    if damage == "a filter too many":
        process.node.tree.add_interest("n1", b"", b"t/only/here")
    elif damage == "a filter too few":
        process.node.tree.remove_interest("n1", b"", b"t/a")
    else:
        receive = NodeProcess.publish

        def publish_twice(node: NodeProcess, topic: str, payload: bytes, now: float) -> None:
            for _ in range(2):
                receive(node, topic, payload, now)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NodeProcess, "publish", publish_twice)
            with pytest.raises(AssertionError, match=r"seed 2, virtual time .*copies of b'0'"):
                federation.check_messages()
        return
    with pytest.raises(AssertionError, match=r"seed 2, virtual time .* the tree has .* for n1, which wants"):
        federation.until_agreement(10.0, "damage")


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("none", ""),
        ("lost", "1 messages are missing, 0 were dropped and counted"),
        ("twice", "twice or out of order"),
        ("out of order", "twice or out of order"),
        ("two of a group", "the group got 2 copies of"),
        ("none of a group", "1 messages are missing, 0 were dropped and counted"),
        ("retained", "n2.1 holds .* of n1.1, which holds"),
    ],
)
def test_the_oracle_of_messages_sees_damage(damage: str, found: str) -> None:
    traffic = Traffic(2, 3)
    first, second, third = traffic.stations
    for kind in "mmmgggrrr":
        traffic.publish_by(first, kind)
    traffic.federation.run(2.0)
    received = second.reader.received
    own = [at for at, (topic, _) in enumerate(received) if topic == b"m/n1.1"]
    groups = [station.member.received for station in traffic.stations if station.member.received]
    if damage == "lost":
        del received[own[1]]
    elif damage == "twice":
        received.append(received[own[1]])
    elif damage == "out of order":
        received[own[0]], received[own[1]] = received[own[1]], received[own[0]]
    elif damage == "two of a group":
        third.member.received.append(groups[0][0])
    elif damage == "none of a group":
        del groups[0][0]
    elif damage == "retained":
        (topic, *_) = second.retained("n1.1")
        second.node.broker.retained.put(Message(topic, b"other", 1, True))
    difference = traffic.difference(0, complete=True)
    assert re.search(found, difference) if found else not difference, difference


def test_an_idle_federation_keeps_its_streams() -> None:
    """Only pings pass, and answers are milliseconds late. Hours and not a day, because gossip makes a day take too long."""
    federation = Federation(3, 3, faults=ROUGH)
    federation.run(60.0)
    nodes = [federation.node(host).node for host in federation.hosts]
    began = [{name: counters.connects for name, counters in node.counters.items()} for node in nodes]
    federation.run(effort(4 * 3600))
    for node, connects in zip(nodes, began, strict=True):
        assert {name: counters.streams_lost for name, counters in node.counters.items()} == dict.fromkeys(
            node.counters, 0
        )
        assert {name: counters.connects for name, counters in node.counters.items()} == connects
        assert all(sender.state is State.STREAMING for sender in node.senders.values())
