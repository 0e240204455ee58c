"""The member table: the round of probes, random choices, removal."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.members import STATE_ALIVE, STATE_DEAD, STATE_LEFT, FactsPool, MemberTable, Node
from federation.gossip.messages import OUR_VERSIONS


def table_of(states: list[int], rng: Random) -> MemberTable:
    table = MemberTable("own", rng)
    pool = FactsPool()
    own = Node(pool.get("own", bytes(4), 1, b"", OUR_VERSIONS), 0.0)
    own.state = STATE_ALIVE
    table.add(own)
    for number, state in enumerate(states):
        node = Node(pool.get(f"n{number}", bytes(4), 1, b"", OUR_VERSIONS), 0.0)
        node.state = state
        table.add(node)
    return table


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 1000))
def test_a_round_of_probes_visits_each_living_member_once(states: list[int], seed: int) -> None:
    table = table_of(states, Random(seed))
    living = sorted(f"n{number}" for number, state in enumerate(states) if state <= 1)
    table.next_to_probe(0.0, 30.0)  # the first one starts somewhere in the unshuffled round
    if not living:
        assert table.next_to_probe(0.0, 30.0) is None
        return
    seen = []
    for _ in range(3 * len(living)):
        node = table.next_to_probe(0.0, 30.0)
        assert node is not None
        seen.append(node.facts.name)
    for name in living:
        assert 2 <= seen.count(name) <= 4


@given(st.integers(0, 1000))
def test_a_node_of_three_probes_both_others_in_each_round(seed: int) -> None:
    table = table_of([STATE_ALIVE, STATE_ALIVE], Random(seed))
    names: list[str] = []
    for _ in range(101):
        node = table.next_to_probe(0.0, 30.0)
        assert node is not None
        names.append(node.facts.name)
    # A new member enters the round at a random place: the first round is whole.
    for at in range(0, 100, 2):
        assert sorted(names[at : at + 2]) == ["n0", "n1"]


@given(st.integers(2, 60), st.integers(1, 3), st.integers(0, 1000))
def test_a_random_choice_finds_the_only_member_that_fits(count: int, wanted: int, seed: int) -> None:
    table = table_of([STATE_ALIVE] + [STATE_LEFT] * count, Random(seed))
    assert [node.facts.name for node in table.random_alive(wanted, "")] == ["n0"]
    assert [node.facts.name for node in table.random_to_gossip(wanted, 0.0, 30.0)] == ["n0"]


def test_the_dead_and_left_are_removed_after_their_time() -> None:
    table = table_of([STATE_ALIVE, STATE_DEAD, STATE_LEFT], Random(1))
    for _ in range(3):
        table.next_to_probe(10.0, 30.0)
    assert len(table) == 4
    for _ in range(3):
        table.next_to_probe(31.0, 30.0)
    assert sorted(table.nodes) == ["n0", "own"]


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5), st.integers(0, 1000))
def test_random_choices_are_different_and_fit(states: list[int], count: int, seed: int) -> None:
    table = table_of(states, Random(seed))
    chosen = [node.facts.name for node in table.random_alive(count, "n0")]
    assert len(set(chosen)) == len(chosen) <= count
    assert all(name not in ("own", "n0") and table.nodes[name].state == STATE_ALIVE for name in chosen)
    to_gossip = table.random_to_gossip(count, 31.0, 30.0)
    assert all(node.state <= 1 and node.facts.name != "own" for node in to_gossip)
    if len(states) + 1 <= 3 * count:
        assert len(chosen) == min(count, sum(1 for state in states[1:] if state == STATE_ALIVE))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3))))
def test_the_alive_others_are_counted(states: list[int], changes: list[tuple[int, int]]) -> None:
    table = table_of(states, Random(1))
    for number, state in changes:
        node = table.get(f"n{number}")
        if node is not None:
            table.set_state(node, state, 1.0)
    table.set_state(table.nodes["own"], STATE_LEFT, 1.0)
    living = [node for node in table.nodes.values() if node.state <= 1 and node.facts.name != "own"]
    assert table.alive_others == len(living)
    for _ in range(2 * len(states) + 2):  # a new round removes dead members
        table.next_to_probe(100.0, 30.0)
    assert table.alive_others == len(living)
