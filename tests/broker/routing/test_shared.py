"""The round robin of a shared group."""

from broker.routing.shared import GroupMember, SharedGroup


def group_of(*members: GroupMember) -> SharedGroup:
    group = SharedGroup(b"g", b"a/+")
    for member in members:
        group.add(member)
    return group


def test_an_empty_group_picks_none() -> None:
    assert SharedGroup(b"g", b"a").pick() is None


def test_available_members_first() -> None:
    a, b, c = GroupMember(), GroupMember(False), GroupMember()
    group = group_of(a, b, c)
    assert [group.pick() for _ in range(4)] == [a, c, a, c]
    a.available = c.available = False
    assert group.pick(available_only=True) is None
    assert {group.pick(), group.pick(), group.pick()} == {a, b, c}
    b.available = True
    assert [group.pick() for _ in range(2)] == [b, b]


def test_removal_keeps_the_order() -> None:
    a, b, c = GroupMember(), GroupMember(), GroupMember()
    group = group_of(a, b, c)
    assert group.pick() is a
    group.remove(a)
    assert [group.pick() for _ in range(3)] == [b, c, b]
    group.remove(c)
    assert group.pick() is b
    group.remove(b)
    assert group.pick() is None
    assert len(group) == 0


def test_new_members_are_last() -> None:
    a, b, c = GroupMember(), GroupMember(), GroupMember()
    group = group_of(a, b)
    assert [group.pick(), group.pick()] == [a, b]
    group.add(c)
    assert group.members() == [a, b, c]
    assert [group.pick() for _ in range(4)] == [a, b, c, a]
    group.remove(a)
    group.add(a)
    assert group.members() == [b, c, a]
    assert [group.pick() for _ in range(3)] == [b, c, a]


def test_a_hundred_thousand_members_come_and_go() -> None:
    """`add` and `remove` take constant time; a linear search would take minutes."""
    members = [GroupMember() for _ in range(100_000)]
    group = SharedGroup(b"g", b"a")
    for member in members:
        group.add(member)
    assert len(group) == 100_000
    for member in reversed(members):
        group.remove(member)
    assert group.members() == []
