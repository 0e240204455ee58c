"""The members of a shared group: round robin, by load, by hash."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.routing.shared import KEYS_MAX, GroupMember, SharedGroup
from broker.routing.strategy import hash_of, score


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


class Loaded(GroupMember):
    """A member with a client identifier and messages; a subclass, so that its tests are of the sources."""

    def __init__(self, name: bytes, messages: int = 0, available: bool = True) -> None:
        super().__init__(available)
        self.name = name
        self.messages = messages

    def load(self) -> int:
        return self.messages

    def hash(self) -> int:
        return hash_of(self.name)


def member_name(member: GroupMember | None) -> bytes:
    assert isinstance(member, Loaded)
    return member.name


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("loads", "available", "picked"),
    [
        ((0, 0, 0), (True, True, True), (0, 1, 2, 0)),
        ((2, 1, 1), (True, True, True), (1, 2, 1, 2)),
        ((2, 0, 1), (True, True, True), (1, 1, 1, 1)),
        ((2, 0, 1), (True, False, True), (2, 2, 2, 2)),
        ((5, 0, 1), (True, False, False), (0, 0, 0, 0)),
        ((5, 0, 1), (False, False, False), (0, 1, 2, 0)),
    ],
)
def test_the_least_loaded_member(loads: tuple[int, ...], available: tuple[bool, ...], picked: tuple[int, ...]) -> None:
    members = [Loaded(b"%d" % at, loads[at], available[at]) for at in range(3)]
    group = group_of(*members)
    assert [group.pick_least(False) for _ in picked] == [members[at] for at in picked]
    if not any(available):
        assert group.pick_least(True) is None


@pytest.mark.interpreted
def test_a_key_has_the_same_member_until_that_goes_or_takes_nothing() -> None:
    members = [Loaded(b"%d" % at) for at in range(4)]
    group = group_of(*members)
    keys = [hash_of(b"%d" % number) for number in range(200)]
    first = {key: group.pick_hashed(key, True) for key in keys}
    assert set(first.values()) == set(members)
    for key in keys:
        assert group.pick_hashed(key, True) is first[key]
    others = group_of(*[Loaded(member.name) for member in reversed(members)])
    assert [member_name(others.pick_hashed(key, True)) for key in keys] == [member_name(first[key]) for key in keys]
    members[0].available = False
    for key in keys:
        found = group.pick_hashed(key, True)
        assert found is first[key] if first[key] is not members[0] else found in members[1:]
        assert group.pick_hashed(key, True, {members[1]: None}) not in (members[0], members[1])
    members[0].available = True
    group.remove(members[3])
    for key in keys:
        found = group.pick_hashed(key, True)
        assert found is first[key] if first[key] is not members[3] else found in members[:3]


@pytest.mark.interpreted
def test_where_no_member_is_available_the_key_has_its_member_or_the_queue() -> None:
    members = [Loaded(b"%d" % at, available=False) for at in range(3)]
    group = group_of(*members)
    found = group.pick_hashed(7, False)
    assert found in members
    assert group.pick_hashed(7, True) is None
    assert group.pick_hashed(7, False, dict.fromkeys(members)) is None
    group.queue = GroupMember()
    assert group.pick_hashed(7, False) is group.queue
    assert SharedGroup(b"g", b"a").pick_hashed(7, False) is None


@pytest.mark.interpreted
def test_the_known_members_of_keys_are_bounded() -> None:
    """Also more keys than are kept have their members."""
    members = [Loaded(b"%d" % at) for at in range(3)]
    group = group_of(*members)
    first = [group.pick_hashed(key, True) for key in range(1, 2 * KEYS_MAX)]
    assert len(group._found) <= KEYS_MAX
    assert [group.pick_hashed(key, True) for key in range(1, 2 * KEYS_MAX)] == first


class Coming(Loaded):
    """A member that comes and goes, as a session does."""

    def __init__(self, name: bytes, state: str = "free") -> None:
        super().__init__(name)
        self.is_aside = False
        self.state = state

    def is_available(self) -> bool:
        return self.state == "free"

    def is_away(self) -> bool:
        return self.state == "away"

    def set_aside(self, is_aside: bool) -> None:
        self.is_aside = is_aside

    def become(self, state: str) -> None:
        if self.is_aside and state != "away":
            assert self.group is not None
            self.group.returned(self)
        self.state = state


@pytest.mark.interpreted
@pytest.mark.parametrize("how", ["pick", "pick_least", "pick_hashed"])
def test_members_that_are_away_are_looked_at_once(how: str) -> None:
    away = [Coming(b"%d" % number, "away") for number in range(200)]
    there = [Coming(b"a"), Coming(b"b")]
    group = group_of(*away, *there)

    def take() -> GroupMember | None:
        return group.pick_hashed(7, False) if how == "pick_hashed" else getattr(group, how)(False)

    take()
    assert 0 < group.take_looked() <= 2 * len(group)
    taken = [take() for _ in range(10)]
    assert group.take_looked() <= 20
    assert set(taken) <= set(there)
    assert {taken.count(member) for member in there} == ({0, 10} if how == "pick_hashed" else {5})
    away[0].become("free")
    there[0].become("away")
    there[1].become("away")
    assert [take() for _ in range(3)] == [away[0]] * 3
    assert len(group) == len(group.members()) == 202


@pytest.mark.interpreted
def test_messages_that_nobody_takes_go_to_all_sessions_in_turn() -> None:
    """Those of members that are away, and those whose queues are past their half."""
    members = [Coming(b"%d" % number, state) for number, state in enumerate(["full", "away", "away", "full", "away"])]
    group = group_of(*members)
    assert Counter(group.pick() for _ in range(20)) == dict.fromkeys(members, 4)
    assert group.pick(True) is None
    assert group.pick(False, dict.fromkeys(members[:4])) is members[4]


@pytest.mark.interpreted
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(["free", "full", "away", "come", "go", "pick", "pick_least", "pick_hashed"]),
            st.integers(0, 4),
            st.sets(st.integers(0, 4), max_size=2),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_any_sequence_of_calls(calls: list[tuple[str, int, set[int], bool]]) -> None:
    """Against a model that looks at all members each time."""
    members = [Coming(b"%d" % number) for number in range(5)]
    group = SharedGroup(b"g", b"a")
    for call, number, left_out, available_only in calls:
        member = members[number]
        skipped: dict[GroupMember, None] | None = dict.fromkeys(members[at] for at in left_out) or None
        if call == "come" and member.group is None:
            group.add(member)
        elif call == "go" and member.group is not None:
            group.remove(member)
            assert not member.is_aside
        elif call in ("free", "full", "away"):
            member.become(call)
        elif call.startswith("pick"):
            if call == "pick_hashed":
                found = group.pick_hashed(number + 1, available_only, skipped)
            else:
                found = getattr(group, call)(available_only, skipped)
            allowed = [its for its in members if its.group is not None and (skipped is None or its not in skipped)]
            free = [its for its in allowed if its.state == "free"]
            candidates = free or ([] if available_only else allowed)
            if call == "pick_hashed" and candidates:
                candidates = [max(candidates, key=lambda its: score(number + 1, its.hash()))]
            assert found in candidates if candidates else found is None
        assert set(group.members()) == {its for its in members if its.group is not None}
        assert len(group) == len(group.members())
