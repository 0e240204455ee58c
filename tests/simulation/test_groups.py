"""The oracle of shared groups sees each kind of damage; `test_schedules.py` runs the schedules."""

from __future__ import annotations

import re

import pytest

from simulator.group_clients import Copy, Member
from simulator.groups import GROUPS, Groups


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("none", ""),
        ("lost", "has no copy"),
        ("twice", "has 2 copies"),
        ("QoS 2 to a second member", "has 1 copies, and 1 of QoS 2"),
        ("kept", "copies or events wait"),
    ],
)
def test_the_oracle_of_groups_sees_damage(damage: str, found: str) -> None:
    groups = Groups(2, 3)
    groups.run(1.0, 30.0)
    groups.check()
    published = {message.payload for message in groups.published if message.acknowledged_at < 1e9}
    at: list[tuple[Member, Copy]] = [
        (member, copy)
        for members in groups.members.values()
        for member in members
        for copy in member.copies
        if copy.topic_filter == GROUPS[0] and copy.payload in published and copy.is_ended
    ]
    member, copy = at[0]
    if damage == "lost":
        member.copies.remove(copy)
    elif damage == "twice":
        member.copies.append(copy)
    elif damage == "QoS 2 to a second member":
        at[1][0].copies.append(Copy(copy.payload, copy.topic_filter, 2, copy.at))
    elif damage == "kept":
        sender = groups.federation.node(groups.federation.hosts[0]).node.senders["n2"]
        sender.outbox.size += 1
    told = groups.difference()
    assert re.search(found, told) if found else not told, told


@pytest.mark.parametrize("strategy", ["round_robin", "hash_topic", "hash_clientid"])
def test_the_oracle_of_strategies_sees_another_one(strategy: str) -> None:
    groups = Groups(2, 3)
    with pytest.raises(AssertionError, match=r"\$share/[gh]/j/#"):
        groups.check_strategy(strategy)
