"""Which nodes keep copies of a store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.replication.placement import Candidate, choose_keepers
from federation.serf.events import Member, MemberFailed, MemberJoin, MemberStatus
from federation.settings import FederationSettings
from federation.tags import TAG_STORE, TAG_ZONE, own_tags
from stored_node import Station

HOME = "store of the home"


@given(st.sets(st.integers(0, 30), min_size=1), st.integers(0, 30), st.integers(1, 3))
def test_a_member_that_comes_or_goes_moves_no_other_copy(members: set[int], other: int, wanted: int) -> None:
    living = {f"n{number}": Candidate(f"store {number}") for number in members}
    chosen = choose_keepers(HOME, "", [], living, wanted)
    assert len(chosen) == len(set(chosen)) == min(wanted, len(living))
    more = {**living, f"n{other}": Candidate(f"store {other}")}
    assert choose_keepers(HOME, "", chosen, more, wanted)[: len(chosen)] == chosen
    first = chosen[0]
    left = {name: member for name, member in living.items() if name != first}
    remaining = choose_keepers(HOME, "", chosen[1:], left, wanted)
    assert remaining[: len(chosen) - 1] == chosen[1:]


MEMBERS = st.dictionaries(
    st.sampled_from([f"n{number}" for number in range(8)]),
    st.tuples(st.sampled_from(["", "a", "b", "c"]), st.booleans()),
    max_size=8,
)


@given(MEMBERS, st.sampled_from(["", "a"]), st.integers(1, 3))
def test_zones_without_a_copy_come_first_and_new_members_last(
    members: dict[str, tuple[str, bool]], zone: str, wanted: int
) -> None:
    living = {name: Candidate(f"store {name}", where, is_new) for name, (where, is_new) in members.items()}
    chosen = choose_keepers(HOME, zone, [], living, wanted)
    assert len(set(chosen)) == len(chosen) <= wanted
    zones = [zone]
    for place, name in enumerate([*chosen, ""][:wanted]):
        open_zones = {living[other].zone for other in living if other not in chosen[:place]} - {"", *zones}
        others = [other for other in living if other not in chosen[:place]]
        if not name:  # nobody else counts: those who are left are new, in a zone that has a copy
            assert not (zone and open_zones)
            assert all(living[other].is_new and zone for other in others)
        elif zone and open_zones:
            assert living[name].zone in open_zones
            if living[name].is_new:
                assert all(living[other].is_new for other in others if living[other].zone in open_zones)
        else:
            assert not (zone and living[name].is_new)
            if living[name].is_new:
                assert all(living[other].is_new for other in others)
        if name:
            zones.append(living[name].zone)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.integers(1, 3))
def test_two_workers_of_one_node_keep_copies_only_where_no_other_node_does(nodes: list[str], wanted: int) -> None:
    living = {f"{node}/{index}": Candidate(f"store {index}", node=node) for index, node in enumerate(nodes)}
    chosen = choose_keepers(HOME, "", [], living, wanted)
    assert len(chosen) == min(wanted, len(living))
    assert len({living[name].node for name in chosen}) == min(len(chosen), len(set(nodes)))


def test_a_member_of_another_zone_is_worth_waiting_for() -> None:
    same = Candidate("s1", "a", is_new=True)
    assert choose_keepers(HOME, "a", [], {"n1": same}, 1) == []
    assert choose_keepers(HOME, "a", [], {"n1": same, "n2": Candidate("s2", "b", is_new=True)}, 1) == ["n2"]
    same.is_new = False
    assert choose_keepers(HOME, "a", [], {"n1": same}, 1) == ["n1"]
    assert choose_keepers(HOME, "", [], {"n1": Candidate("s1", is_new=True)}, 1) == ["n1"]


def member(name: str, zone: str) -> Member:
    tags = {**own_tags(f"127.0.0.1:{8900 + int(name[1:])}", True), TAG_STORE: name[1:] * 32, TAG_ZONE: zone}
    return Member(name, "127.0.0.1", 8902, tags, MemberStatus.ALIVE)


def test_a_node_takes_a_member_of_another_zone_at_once_and_one_of_its_own_when_that_has_settled() -> None:
    settled = FederationSettings().stabilization_time
    station = Station({}, zone="a")
    node = station.node
    assert node.copies is not None
    listed = node.copies.replication.listed
    node.member_events([MemberJoin(member("n2", "a"))], 1.0)
    node.handle_timeout(1.0 + settled / 2)
    assert listed.names == []
    node.handle_timeout(1.0 + settled)
    assert listed.names == ["n2"]
    node.member_events([MemberJoin(member("n3", "b"))], 20.0)
    assert listed.names == ["n2"]  # who keeps a copy stays

    other = Station({}, zone="a")
    assert other.node.copies is not None
    other.node.member_events([MemberJoin(member("n2", "a")), MemberJoin(member("n3", "b"))], 1.0)
    assert other.node.copies.replication.listed.names == ["n3"]


def test_a_member_that_was_away_is_new_again() -> None:
    station = Station({}, zone="a")
    node = station.node
    assert node.copies is not None
    node.member_events([MemberJoin(member("n2", "a"))], 1.0)
    node.member_events([MemberFailed(member("n2", "a"))], 2.0)
    node.member_events([MemberJoin(member("n2", "a"))], 9.0)
    node.handle_timeout(12.0)
    assert node.copies.replication.listed.names == []
    node.handle_timeout(9.0 + FederationSettings().stabilization_time)
    assert node.copies.replication.listed.names == ["n2"]
