"""Which node runs a link: claims with epochs among nodes that split, merge, die and come, with tables that are late or lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import effort
from federation.definitions.resolution import LINKS_MAX
from federation.links.ownership import (
    CLAIM_SECONDS_MAX,
    DRAIN_SECONDS_MAX,
    READY_SECONDS_MAX,
    RECLAIM_SECONDS,
    RETRY_SECONDS,
    SETTLE_SECONDS_MAX,
    Ownership,
)
from federation.links.ownership_table import (
    Claim,
    Owner,
    Phase,
    Row,
    Run,
    Table,
    weight,
)
from federation.links.reconnecting import SessionPlace
from ownership_world import LINKS, QUIET_SECONDS, World, member, phases


def world_of(names: str, view_delay: float = 2.0) -> World:
    world = World(random.Random(1), view_delay=view_delay)
    for name in names:
        world.start(name)
    world.check_rest()
    return world


def test_a_node_without_others_runs_its_links_at_once() -> None:
    world = World(random.Random(1))
    world.start("a", waits=False)
    assert sorted(world.processes["a"].running) == sorted(LINKS)


def test_a_node_that_waits_for_others_runs_its_links_when_there_are_none() -> None:
    world = World(random.Random(1))
    world.start("a")
    world.run_until(SETTLE_SECONDS_MAX - 0.1)
    assert world.processes["a"].running == {}
    world.run_until(SETTLE_SECONDS_MAX)
    assert sorted(world.processes["a"].running) == sorted(LINKS)


def test_a_node_that_does_not_know_the_interest_of_others_claims_nothing_for_a_while() -> None:
    for is_told in (True, False):
        ownership = member(waits=True)
        ownership.set_links(["0"], 0.0)
        ownership.handle_timeout(SETTLE_SECONDS_MAX)
        assert (ownership.waits_until_ready(), ownership.take_orders()) == (True, [])
        if is_told:
            ownership.ready(SETTLE_SECONDS_MAX)
        else:
            assert ownership.next_timeout() == READY_SECONDS_MAX
            ownership.handle_timeout(READY_SECONDS_MAX)
        assert (ownership.waits_until_ready(), ownership.take_orders()) == (False, [Run("0", 100)])


def test_a_link_settles_at_the_other_member_that_runs_it_and_to_which_it_falls() -> None:
    names = sorted("ab", key=lambda name: weight("0", name))
    for here, there in (names, reversed(names)):
        ownership = member(here, waits=True)
        ownership.set_links(["0"], 0.0)
        ownership.set_members([there], 0.0)
        found = []
        for serial, phase in enumerate((Phase.ABLE, Phase.CLAIMS, Phase.RUNS, Phase.DRAINS)):
            ownership.handle_table(Table(there, 1, serial, (Row("0", phase, 7),)), 0.0)
            found.append(ownership.settled_at("0"))
        falls_there = weight("0", there) > weight("0", here)
        assert found == (["", there, there, ""] if falls_there else ["", "", "", ""])
        assert ownership.settled_at("1") == ""


def test_epochs_of_links_that_no_member_knows_are_forgotten() -> None:
    ownership = member(waits=True)
    ownership.set_members(["b", "c"], 0.0)
    ownership.handle_table(Table("b", 1, 1, (Row("0", Phase.RUNS, 7), Row("1", Phase.RUNS, 8))), 0.0)
    ownership.handle_table(Table("b", 1, 2, (Row("1", Phase.RUNS, 8),)), 0.0)
    ownership.handle_table(Table("c", 1, 1, (Row("2", Phase.RUNS, 9),)), 0.0)
    ownership.set_links("012", 0.0)
    assert [row.epoch for row in ownership.table().rows] == [0, 8, 9]
    ownership.set_members([], 0.0)
    ownership.handle_table(Table("c", 1, 2, ()), 0.0)
    assert [row.epoch for row in ownership.table().rows] == [0, 8, 9], "this node knows them"


EAST, WEST = SessionPlace("federation-link", "east", 1883), SessionPlace("federation-link", "west", 1883)


def session_of(ownership: Ownership) -> SessionPlace | None:
    (row,) = ownership.table().rows
    return row.session


def test_a_node_that_takes_over_a_link_knows_where_its_session_is() -> None:
    ownership = member()
    ownership.set_members("b", 0.0)
    ownership.handle_table(Table("b", 1, 1, (Row("0", Phase.RUNS, 150, EAST),)), 0.0)
    ownership.set_links("0", 0.0)
    assert session_of(ownership) == EAST
    ownership.set_members([], 1.0)
    assert ownership.take_orders() == [Run("0", 151, EAST)]
    assert ownership.sessions() == {"0": EAST}
    assert ownership.set_sessions({"0": WEST})
    assert not ownership.set_sessions({"0": WEST})
    assert session_of(ownership) == WEST
    assert ownership.set_sessions({"0": None})
    assert (session_of(ownership), ownership.sessions()) == (None, {})


def test_of_two_nodes_that_run_a_link_that_with_the_higher_epoch_knows_where_its_session_is() -> None:
    ownership = member(waits=True)
    ownership.set_links("0", 0.0)
    ownership.set_members("bcde", 0.0)
    told = (
        ("b", Row("0", Phase.ABLE, 9, EAST), EAST),  # better than nothing
        ("c", Row("0", Phase.ABLE, 9, WEST), EAST),
        ("d", Row("0", Phase.RUNS, 7, WEST), WEST),
        ("c", Row("0", Phase.RUNS, 7, EAST), WEST),
        ("e", Row("0", Phase.DRAINS, 7, EAST), EAST),
        ("b", Row("0", Phase.CLAIMS, 10, WEST), EAST),
        ("b", Row("0", Phase.RUNS, 10, None), None),
        ("d", Row("0", Phase.RUNS, 9, WEST), None),
    )
    for serial, (name, row, found) in enumerate(told):
        ownership.handle_table(Table(name, 1, serial, (row,)), 0.0)
        assert session_of(ownership) == found, (name, row)
    assert not ownership.set_sessions({"0": WEST}), "this node does not run it"


def test_a_node_that_runs_a_link_with_a_lower_epoch_has_no_say_about_its_session() -> None:
    ownership = member(sessions={"0": EAST})
    ownership.set_links("0", 0.0)
    assert ownership.take_orders() == [Run("0", 100, EAST)]
    ownership.set_members("b", 0.0)
    ownership.handle_table(Table("b", 1, 1, (Row("0", Phase.RUNS, 101, WEST),)), 0.0)
    assert not ownership.set_sessions({"0": EAST})
    assert session_of(ownership) == WEST


def test_sessions_of_links_that_no_member_knows_are_forgotten() -> None:
    ownership = member(sessions={"0": EAST, "1": WEST})
    ownership.set_links("0", 0.0)
    assert ownership.sessions() == {"0": EAST}
    ownership.set_links("", 0.0)
    ownership.released("0", 0.0)
    assert ownership.sessions() == {}


def test_another_node_takes_over_the_links_of_a_killed_one() -> None:
    world = world_of("abc", view_delay=0.0)
    before = {link: world.runners(link)[0] for link in LINKS}
    epochs = {link: world.processes[name].running[link] for link, name in before.items()}
    world.kill("a")
    world.run_until(world.now + 4 * world.delay)  # tables there and back
    after = {link: world.runners(link) for link in LINKS}
    for link, name in before.items():
        (owner,) = after[link]
        if name == "a":
            assert world.processes[owner].running[link] > epochs[link]
        else:
            assert (owner, world.processes[owner].running[link]) == (name, epochs[link])


def test_the_links_of_a_killed_node_wait_for_a_silent_one_only_so_long() -> None:
    world = world_of("abc", view_delay=0.0)
    world.split({"a": 1, "b": 2})  # b is seen, but does not answer
    world.events.clear()
    for name in "bc":
        world.processes[name].ownership.set_members({"b", "c"}, world.now)
        world.after(name)
    world.run_until(world.now + CLAIM_SECONDS_MAX)
    assert all(set(world.runners(link)) & {"b", "c"} for link in LINKS)


def test_a_new_node_gets_links_after_they_are_drained() -> None:
    world = world_of("ab", view_delay=0.0)
    before = {link: world.runners(link) for link in LINKS}
    world.start("c")
    moved: set[str] = set()
    while world.now < 3 * QUIET_SECONDS:
        world.run_until(world.now + 0.01)
        for link in LINKS:
            running = world.runners(link)
            assert len(running) <= 1
            if running == ["c"]:
                moved.add(link)
            else:
                assert running in (before[link], [])
    assert moved
    world.check_rest()


def test_a_node_that_leaves_drains_its_links_before_others_take_them() -> None:
    world = world_of("abc", view_delay=0.0)
    leaver = world.processes["a"]
    assert leaver.running
    leaver.ownership.leave(world.now)
    world.after("a")
    assert not leaver.ownership.has_left()
    for _ in range(int(QUIET_SECONDS / 0.05)):
        world.run_until(world.now + 0.05)
        assert all(len(world.runners(link)) <= 1 for link in LINKS)
    assert leaver.ownership.has_left()
    assert leaver.running == {}
    assert all(world.runners(link) for link in LINKS)
    leaver.ownership.join(True, world.now)
    world.after("a")
    world.check_rest()


def test_a_node_that_keeps_a_link_is_told_when_the_rival_is_gone() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    assert ownership.take_orders() == [Run("0", 100)]
    ownership.set_members(["b"], 1.0)
    ownership.handle_table(Table("b", 1, 1, (Row("0", Phase.RUNS, 50),)), 1.0)
    assert ownership.take_orders() == []
    ownership.handle_table(Table("b", 1, 2, (Row("0", Phase.DRAINS, 50),)), 2.0)
    assert ownership.take_orders() == []
    ownership.handle_table(Table("b", 1, 3, ()), 3.0)
    assert ownership.take_orders() == [Run("0", 100)]


def test_definitions_that_change_end_and_begin_links() -> None:
    world = world_of("ab")
    world.links = (LINKS[0], "ffffffff")
    for name, process in world.processes.items():
        process.ownership.set_links(world.links, world.now)
        world.after(name)
    world.check_rest()
    assert all(world.runners(link) == [] for link in LINKS[1:])


def test_a_link_runs_only_where_it_is_defined() -> None:
    world = World(random.Random(1))
    world.start("a")
    world.links = ()
    world.start("b")
    world.run_until(QUIET_SECONDS)
    assert sorted(world.processes["a"].running) == sorted(LINKS)
    assert world.processes["b"].ownership.owner(LINKS[0]) == Owner("a", world.processes["a"].running[LINKS[0]])
    assert world.processes["b"].ownership.owner("unknown!") is None
    assert phases(world.processes["b"].ownership) == {}


def test_few_links_move_when_a_member_comes() -> None:
    links = [f"{number:08x}" for number in range(2_000)]

    def chosen(names: str) -> list[str]:
        return [max(names, key=lambda name: (weight(link, name), name)) for link in links]

    before = chosen("abcd")
    after = chosen("abcde")
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"e"}
    assert 300 < len(moved) < 500
    assert all(380 < count < 620 for count in Counter(before).values())


def test_a_late_table_is_ignored() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    ownership.set_members(["b"], 0.0)
    ownership.handle_table(Table("b", 7, 2, ()), 0.0)
    ownership.handle_table(Table("b", 7, 1, (Row("0", Phase.RUNS, 900),)), 0.0)
    assert ownership.owner("0") == Owner("a", 100)
    ownership.handle_table(Table("b", 8, 1, (Row("0", Phase.RUNS, 900),)), 0.0)
    assert ownership.owner("0") == Owner("b", 900)


def test_a_member_that_cannot_be_told_is_told_again_later() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    ownership.set_members(["b"], 0.0)
    (telling,) = ownership.take_tables(0.0)
    assert (telling.name, telling.table.node) == ("b", "a")
    assert ownership.take_tables(0.0) == []
    ownership.telling_failed("b", 1.0)
    assert ownership.take_tables(1.0) == []
    assert ownership.next_timeout() == 1.0 + RETRY_SECONDS
    assert len(ownership.take_tables(1.0 + RETRY_SECONDS)) == 1


def test_a_claim_waits_for_the_answers_of_all_members() -> None:
    ownership = member()
    ownership.set_members(["b", "c"], 0.0)
    for name in "bc":
        ownership.handle_table(Table(name, 1, 1, ()), 0.0)
    ownership.set_links(["0"], 0.0)
    first, second = ownership.take_tables(0.0)
    assert Row("0", Phase.CLAIMS, 100) in first.table.rows
    ownership.handle_answer("b", first.table.serial, Table("b", 1, 2, ()), 0.1)
    assert ownership.take_orders() == []
    ownership.handle_answer("c", second.table.serial, Table("c", 1, 2, ()), 0.2)
    assert ownership.take_orders() == [Run("0", 100)]


def test_a_beaten_claim_rests_before_the_next_one() -> None:
    ownership = member()
    ownership.set_members(["b"], 0.0)
    ownership.handle_table(Table("b", 1, 1, ()), 0.0)
    ownership.set_links(["0"], 0.0)
    assert phases(ownership) == {"0": Phase.CLAIMS}
    assert ownership.waiting() == [Claim("0", 100, 0.0, CLAIM_SECONDS_MAX)]
    ownership.handle_table(Table("b", 1, 2, (Row("0", Phase.CLAIMS, 100),)), 0.0)
    assert phases(ownership) == {"0": Phase.ABLE}
    ownership.handle_table(Table("b", 1, 3, ()), 0.5)
    assert phases(ownership) == {"0": Phase.ABLE}
    assert ownership.next_timeout() <= RECLAIM_SECONDS
    ownership.handle_timeout(RECLAIM_SECONDS)
    assert ownership.table().rows == (Row("0", Phase.CLAIMS, 101),)


def test_a_member_that_started_again_is_told_again() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    ownership.set_members(["b"], 0.0)
    (telling,) = ownership.take_tables(0.0)
    ownership.handle_answer("b", telling.table.serial, Table("b", 1, 1, ()), 0.0)
    assert ownership.take_tables(0.0) == []
    ownership.handle_table(Table("b", 2, 1, ()), 0.0)
    assert len(ownership.take_tables(0.0)) == 1


def test_an_answer_under_another_name_counts_as_none() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    ownership.set_members(["b"], 0.0)
    (telling,) = ownership.take_tables(0.0)
    ownership.handle_answer("b", telling.table.serial, Table("c", 1, 1, (Row("0", Phase.RUNS, 900),)), 0.0)
    assert ownership.owner("0") == Owner("a", 100)
    assert ownership.next_timeout() <= RETRY_SECONDS


def test_the_table_of_a_stranger_is_answered_and_asked_for_when_it_is_a_member() -> None:
    ownership = member()
    ownership.set_links(["0"], 0.0)
    table = Table("b", 1, 1, (Row("0", Phase.RUNS, 900),))
    assert ownership.handle_table(table, 0.0) == ownership.table()
    ownership.set_members(["b"], 1.0)
    assert ownership.owner("0") == Owner("a", 100)
    (telling,) = ownership.take_tables(1.0)
    ownership.handle_answer("b", telling.table.serial, table, 1.0)
    assert ownership.owner("0") == Owner("b", 900)


def test_too_many_links_are_refused() -> None:
    ownership = member()
    with pytest.raises(ValueError, match=str(LINKS_MAX)):
        ownership.set_links([str(number) for number in range(LINKS_MAX + 1)], 0.0)


@settings(max_examples=effort(400))
@given(
    st.integers(0, 2**32).map(random.Random),
    st.lists(
        st.tuples(
            st.sampled_from(["start", "kill", "split", "merge", "lossy", "clean"]),
            st.sampled_from("abcdef"),
            st.floats(0.0, 12.0),
        ),
        max_size=12,
    ),
)
def test_every_connected_part_comes_to_one_owner(rng: random.Random, steps: list[tuple[str, str, float]]) -> None:
    world = World(rng, LINKS[:3])
    world.start("a")
    world.start("b")
    for kind, name, seconds in steps:
        if kind == "start" and name not in world.processes:
            world.start(name)
        elif kind == "kill" and name in world.processes and len(world.processes) > 1:
            world.kill(name)
        elif kind == "split":
            world.split({other: rng.randrange(3) for other in world.processes})
        elif kind == "merge":
            world.merge()
        elif kind in ("lossy", "clean"):
            world.loss = 0.3 if kind == "lossy" else 0.0
        world.run_until(world.now + seconds)
        world.check_epochs()
    world.loss = 0.0
    world.check_rest()
    world.merge()
    world.check_rest()


@settings(max_examples=effort(120))
@given(
    st.integers(0, 2**32).map(random.Random),
    st.lists(st.tuples(st.sampled_from(["start", "kill", "leave"]), st.sampled_from("abcde")), max_size=10),
)
def test_a_healthy_network_never_has_two_owners(rng: random.Random, steps: list[tuple[str, str]]) -> None:
    world = World(rng, LINKS[:3], view_delay=0.0)
    world.start("a")
    world.run_until(QUIET_SECONDS)
    for kind, name in steps:
        process = world.processes.get(name)
        if kind == "start" and process is None:
            world.start(name)
            world.run_until(world.now + CLAIM_SECONDS_MAX)  # it hears of the epochs until now
        elif kind == "kill" and process is not None and len(world.processes) > 1:
            world.kill(name)
        elif kind == "leave" and process is not None and len(world.processes) > 1:
            process.ownership.leave(world.now)
            world.after(name)
            world.run_until(world.now + DRAIN_SECONDS_MAX)
            world.kill(name)
        for _ in range(rng.randrange(200)):
            world.run_until(world.now + 0.1)
            for link in world.links:
                assert len(world.runners(link)) <= 1
    world.check_rest()
    for link in world.links:
        epochs = [epoch for run, _, epoch in world.runs if run == link]
        assert epochs == sorted(set(epochs))
