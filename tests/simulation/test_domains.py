"""Domains that are linked, on virtual time: which domains a message reaches, and the oracle of that.

The schedules of domains run with the others in test_schedules.py.
"""

from __future__ import annotations

import re

import pytest

from simulator.definition_schedules import DefinitionNodes
from simulator.domain_schedules import TOPOLOGIES, fan_out
from simulator.domains import Domains, Edge, reach


@pytest.mark.parametrize(
    ("topology", "origin", "expected"),
    [
        ("pair", "a", "ab"),
        ("complete_graph", "b", "abc"),
        ("fan_out", "a", "abcdefg"),
        ("fan_out", "c", "cfg"),
        ("tree", "d", "abcdefg"),
        ("ring", "d", "abcdef"),
        ("diamond", "a", "abcd"),
        ("diamond", "b", "bd"),
    ],
)
def test_domains_that_a_message_reaches(topology: str, origin: str, expected: str) -> None:
    assert reach(TOPOLOGIES[topology](), origin) == set(expected)


def test_hops_end_a_way() -> None:
    chain = [Edge("b", "a", 3), Edge("c", "b", 1), Edge("d", "c", 3)]
    assert reach(chain, "a") == {"a", "b"}
    assert reach(chain, "b") == {"b", "c", "d"}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("none", ""),
        ("lost", "d got 0 copies of b'a 0'"),
        ("twice", "d got 2 copies of b'a 0'"),
        ("elsewhere", "a got b'd 0', and no links reach it from d within their hops"),
    ],
)
def test_the_oracle_sees_damage(damage: str, found: str) -> None:
    domains = Domains(2, fan_out())
    domains.run(4.0, 20.0)
    domains.check_messages()
    received = domains.readers["d"][0].received
    if damage == "lost":
        received.remove((b"t/a", b"a 0"))
    elif damage == "twice":
        received.append((b"t/a", b"a 0"))
    elif damage == "elsewhere":
        domains.readers["a"][0].received.append((b"t/d", b"d 0"))
    assert domains.difference() == found


def test_the_oracle_sees_filters_that_stay() -> None:
    domains = Domains(2, [Edge("b", "a")])
    assert domains.link_filters() != []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Domains, "end_reading", lambda self, names: None)
        with pytest.raises(AssertionError, match=r"seed 2, virtual time .*no filter of"):
            domains.check_no_filters()


def test_the_oracle_of_definitions_sees_damage() -> None:
    nodes = DefinitionNodes(2, 3)
    nodes.run(5.0)
    nodes.check_convergence()
    key, winner = next(iter(nodes.winners.items()))
    nodes.winners[key] = type(winner)(*key, winner.clock + 1, winner.node, winner.value)
    with pytest.raises(AssertionError, match=re.escape(f"for {nodes.winners[key]}")):
        nodes.check_convergence()
