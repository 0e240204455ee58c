"""The strategies of shared groups over several nodes, against a plain model of who should get a message."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.hooks import Peer, RemoteGroup
from broker.message import Message
from broker.routing.group_choice import choose_by, choose_other, keyed, pick
from broker.routing.group_copy import GroupCopy
from broker.routing.route import GroupRoute, Route
from broker.routing.shared import GroupMember, SharedGroup
from broker.routing.strategy import (
    HASH_CLIENTID,
    HASH_TOPIC,
    LEAST_INFLIGHT,
    LOCAL_FIRST,
    ROUND_ROBIN,
    hash_of,
    score,
    weighted_score,
)

pytestmark = pytest.mark.interpreted  # members are subclasses

TOPIC = b"devices/7/state"
HASHED = st.sampled_from((HASH_TOPIC, HASH_CLIENTID))


class Member(GroupMember):
    def __init__(self, name: bytes, available: bool = True, messages: int = 0) -> None:
        super().__init__(available)
        self.name = name
        self.messages = messages

    def load(self) -> int:
        return self.messages

    def hash(self) -> int:
        return hash_of(self.name)


class OtherNode(Peer):
    """As the choosing node sees it."""

    def __init__(self, name: str, under_way: int = 0, reachable: bool = True) -> None:
        super().__init__(name, True)
        self.takes_copies = True
        self.under_way = under_way
        self.reachable = reachable

    def load(self) -> int:
        return self.under_way


def node_name(number: int) -> str:
    return f"n{number}"


def members_of(number: int, count: int) -> list[Member]:
    return [Member(b"member %d of n%d" % (at, number)) for at in range(count)]


def route_of(own: list[Member], others: list[tuple[OtherNode, int]]) -> GroupRoute:
    """The group as a node sees it that has the members `own`; of each other node with the number of its members."""
    route = GroupRoute(b"g", b"devices/+/state")
    if own:
        route.local = SharedGroup(b"g", b"devices/+/state")
        for member in own:
            route.local.add(member)
    if others:
        route.remote = RemoteGroup(b"g", b"devices/+/state", [])
        for peer, count in others:
            route.remote.add(peer)
            route.remote.tell_members(peer, count)
    return route


class Nodes:
    """Nodes n0, n1, … with so many members of the group, each of which chooses."""

    def __init__(self, counts: list[int]) -> None:
        self.members = [members_of(number, count) for number, count in enumerate(counts)]
        self.routes: list[GroupRoute] = []
        for own in range(len(counts)):
            others = [(OtherNode(node_name(at)), count) for at, count in enumerate(counts) if count and at != own]
            self.routes.append(route_of(self.members[own], others))

    def publish(self, number: int, strategy: int, message: Message) -> GroupMember | None:
        """Who gets a message that is published on the node."""
        group = self.routes[number]
        copy = keyed(strategy, group.copy, message)
        found = choose_by(strategy, copy.key, group, [], hash_of(node_name(number).encode()))
        if isinstance(found, Peer):
            # A node that has another strategy heeds the key, too.
            return pick(LOCAL_FIRST if copy.key else strategy, copy.key, self.routes[int(found.name[1:])], False)
        return found


COUNTS = st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)


@given(COUNTS, HASHED, st.integers(0, 1000))
def test_a_hash_has_the_same_member_on_every_node(counts: list[int], strategy: int, number: int) -> None:
    nodes = Nodes(counts)
    message = Message(b"devices/%d/state" % number, b"", 1, False, client_id=f"device {number}")
    key = hash_of(message.topic if strategy == HASH_TOPIC else message.client_id.encode())
    at = max(
        (number for number, count in enumerate(counts) if count),
        key=lambda number: weighted_score(key, hash_of(node_name(number).encode()), counts[number]),
    )
    expected = max(nodes.members[at], key=lambda member: score(key, hash_of(member.name)))
    assert {nodes.publish(number, strategy, message) for number in range(len(counts))} == {expected}


@given(COUNTS, st.integers(0, 4), st.integers(1, 4))
def test_round_robin_gives_every_member_of_all_nodes_the_same(counts: list[int], chooser: int, rounds: int) -> None:
    nodes = Nodes(counts)
    everybody = [member for members in nodes.members for member in members]
    chooser %= len(counts)
    taken = Counter(
        nodes.publish(chooser, ROUND_ROBIN, Message(TOPIC, b"", 1, False)) for _ in range(rounds * len(everybody))
    )
    assert taken == dict.fromkeys(everybody, rounds)


LOADED = st.tuples(st.integers(0, 5), st.booleans())  # messages, and whether it is available


@given(
    st.lists(LOADED, max_size=4), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.booleans()), max_size=3)
)
def test_the_least_loaded_gets_it(own: list[tuple[int, bool]], others: list[tuple[int, int, bool]]) -> None:
    members = [Member(b"%d" % at, available, messages) for at, (messages, available) in enumerate(own)]
    peers = [(OtherNode(node_name(at), load, reached), count) for at, (load, count, reached) in enumerate(others, 1)]
    found = choose_by(LEAST_INFLIGHT, 0, route_of(members, peers), [], 1)
    here = [Fraction(member.messages) for member in members if member.available]
    there = [Fraction(peer.under_way, count) for peer, count in peers if peer.reachable]
    if here and (not there or min(here) <= min(there)):
        assert isinstance(found, Member)
        assert found.available
        assert found.messages == min(here)
    elif there:
        assert isinstance(found, OtherNode)
        assert found.reachable
        assert Fraction(found.under_way, dict(peers)[found]) == min(there)
    else:
        assert found in members or (not members and (found in dict(peers) or not peers))


STRATEGIES = st.sampled_from((ROUND_ROBIN, LEAST_INFLIGHT, HASH_TOPIC, HASH_CLIENTID))


@given(STRATEGIES, st.lists(st.booleans(), max_size=4), st.lists(st.booleans(), max_size=4), st.integers(1, 9))
def test_who_takes_nothing_is_passed_over(strategy: int, own: list[bool], others: list[bool], count: int) -> None:
    """Whatever the strategy: available members and reachable nodes first, then other members here, then other nodes."""
    members = [Member(b"%d" % at, available) for at, available in enumerate(own)]
    peers = [OtherNode(node_name(at), 0, reachable) for at, reachable in enumerate(others, 1)]
    group = route_of(members, [(peer, 1 + at) for at, peer in enumerate(peers)])
    takers = [*filter(lambda member: member.available, members), *filter(lambda peer: peer.reachable, peers)]
    for number in range(count):
        message = Message(b"%d" % number, b"", 1, False, client_id=f"{number}")
        copy = keyed(strategy, group.copy, message)
        found = choose_by(strategy, copy.key, group, [], 1)
        assert found in (takers or members or peers or [None])


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1, max_size=5), st.integers(1, 1000))
def test_a_key_decides_to_whom_a_copy_is_handed_on(others: list[tuple[bool, int]], key: int) -> None:
    peers = [(OtherNode(node_name(at), 0, reachable), count) for at, (reachable, count) in enumerate(others)]
    without = peers[0][0]
    copy = GroupCopy(b"g", b"devices/+/state", 0, key)
    found = choose_other(Route(TOPIC, False), route_of([], peers), copy, Message(TOPIC, b"", 1, False), without)
    candidates = [(peer.reachable, weighted_score(key, peer.hash, count), peer) for peer, count in peers[1:]]
    assert found is (max(candidates, key=lambda one: one[:2])[2] if candidates else None)


def test_a_node_that_comes_or_goes_begins_the_round_anew() -> None:
    nodes = Nodes([1, 2, 3])
    remote = nodes.routes[0].remote
    assert remote is not None
    for _ in range(4):
        nodes.publish(0, ROUND_ROBIN, Message(TOPIC, b"", 1, False))
    remote.remove(remote.peers[0])
    taken = Counter(nodes.publish(0, ROUND_ROBIN, Message(TOPIC, b"", 1, False)) for _ in range(8))
    assert taken == dict.fromkeys((*nodes.members[0], *nodes.members[2]), 2)
