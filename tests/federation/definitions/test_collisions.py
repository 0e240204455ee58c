"""Mappings of several upstreams that give different topics one name here, and links that get back what they push."""

from __future__ import annotations

from typing import Any

import pytest

from federation.definitions.collisions import STEPS_MAX
from federation.definitions.definitions import Definitions
from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream

ALL = {"federation-upstream-set": "all"}
Keys = dict[str, Any]


def resolution(first: Keys, second: Keys, pattern: str = "#") -> Resolution:
    upstreams = [
        parse_upstream(name, {"uri": f"mqtt://{name}"} | keys) for name, keys in (("north", first), ("south", second))
    ]
    return Resolution(upstreams, [], [parse_policy("p", {"pattern": pattern, "definition": ALL})])


@pytest.mark.parametrize(
    ("first", "second", "pattern", "words"),
    [
        (["eu/# -> {#}"], ["us/# -> {#}"], "#", "eu/x1 and us/x1 are both x1"),
        (["eu/# -> {#}"], [], "#", "eu/x1 and x1 are both x1"),
        (["eu/# -> {#}"], [], "a/+", "eu/a/x2 and a/x2 are both a/x2"),
        (["a/+/+ -> x/{1}/{2}"], ["a/+/+ -> x/{2}/{1}"], "#", "a/x2/x3 and a/x3/x2 are both x/x2/x3"),
        (["q -> z", "eu/# -> b/{#}"], ["w -> y", "us/a -> b/a"], "#", "eu/a and us/a are both b/a"),
        (["eu/# -> {#}"], ["eu/# -> {#}"], "#", ""),
        (["# -> north/{#}"], ["# -> south/{#}"], "#", ""),
        (["# -> all/{#}"], ["# -> all/{#}"], "#", ""),
        (["eu/# -> in/{#}"], ["us/# -> in/{#}"], "out/#", ""),
        ([], [], "#", ""),
    ],
)
def test_different_topics_of_two_upstreams_with_one_name_here(
    first: list[str], second: list[str], pattern: str, words: str
) -> None:
    one, other = ({"exchange": rules} if rules else {} for rules in (first, second))
    texts = [found.text for found in resolution(one, other, pattern).collisions]
    assert len(texts) == bool(words)
    assert words in "".join(texts)


def test_the_text_names_both_keys() -> None:
    (found,) = resolution({"exchange": "eu/# -> {#}"}, {"exchange": "us/# -> {#}"}).collisions
    assert (found.policy, found.upstreams) == ("p", ("north", "south"))
    assert found.text.startswith('upstream "north": exchange and upstream "south": exchange give different topics')
    (found,) = resolution({"exchange": "eu/# -> {#}"}, {}).collisions
    assert 'upstream "south" (without exchange)' in found.text


def test_a_link_that_pushes_brings_nothing_here() -> None:
    pushes = {"exchange": "us/# -> {#}", "direction": "out"}
    assert resolution({"exchange": "eu/# -> {#}"}, pushes).collisions == []


def test_the_number_of_comparisons_is_bounded() -> None:
    rules = 100
    assert rules * rules < STEPS_MAX < 3 * rules * rules
    upstreams = [
        parse_upstream(name, {"uri": f"mqtt://{name}", "exchange": [f"{name}/{n} -> {n}" for n in range(rules)]})
        for name in "abc"
    ]
    found = Resolution(upstreams, [], [parse_policy("p", {"pattern": "#", "definition": ALL})]).collisions
    assert [collision.upstreams for collision in found] == [("a", "b"), ("a", "c")]


def test_writing_a_definition_of_a_collision_warns() -> None:
    definitions = Definitions("n")

    def put(component: str, name: str, value: object) -> list[str]:
        return [text for text in definitions.put(component, name, value, 1.0) if "give different topics" in text]

    north: Keys = {"uri": "mqtt://n", "exchange": "eu/# -> {#}"}
    south: Keys = {"uri": "mqtt://s", "exchange": "us/# -> {#}"}
    assert put("federation-upstream", "north", north) == []
    assert put("federation-upstream", "south", south) == []
    assert put("federation-upstream-set", "near", [{"upstream": "north"}, {"upstream": "south"}]) == []
    policy: Keys = {"pattern": "#", "definition": {"federation-upstream-set": "near"}}
    assert len(put("policy", "p", policy)) == 1
    assert len(put("policy", "q", policy)) == 1
    assert len(put("federation-upstream", "south", south)) == 1
    assert len(put("federation-upstream-set", "near", [{"upstream": "north"}, {"upstream": "south"}])) == 1
    assert len(definitions.collisions()) == 1
    assert put("federation-upstream", "south", {**south, "exchange": "us/# -> us/{#}"}) != []
    assert put("federation-upstream", "north", {**north, "exchange": "eu/# -> eu/{#}"}) == []
    assert definitions.collisions() == []


BOTH = {"federation-upstream-set": "all"}


def echo(out: dict[str, Any], into: dict[str, Any], *policies: tuple[str, dict[str, str]]) -> str:
    """That of the upstream `out`, beside the upstream `in`. Each policy has a higher priority than the one before."""
    upstreams = [
        parse_upstream("out", {"uri": "mqtt://north", "direction": "out", **out}),
        parse_upstream("in", {"uri": "mqtt://north", **into}),
    ]
    parsed = [
        parse_policy(f"p{number}", {"pattern": pattern, "definition": definition, "priority": number})
        for number, (pattern, definition) in enumerate(policies)
    ]
    (plan,) = [plan for plan in Resolution(upstreams, [], parsed).links() if plan.upstream.name == "out"]
    return plan.echo.partition(" comes back")[0]


ONLY_OUT = {"federation-upstream": "out"}
ONLY_IN = {"federation-upstream": "in"}


@pytest.mark.parametrize(
    ("out", "into", "policies", "expected"),
    [
        ({}, {}, [("a/#", BOTH)], "a/#"),
        ({}, {"uri": "mqtt://north:1883"}, [("a/#", BOTH)], "a/#"),
        ({}, {"uri": ["ws://other", "mqtts://north:1883"]}, [("a/#", BOTH)], "a/#"),
        ({}, {"uri": "mqtt://south"}, [("a/#", BOTH)], ""),
        ({}, {"uri": "mqtt://north:1884"}, [("a/#", BOTH)], ""),
        ({}, {"direction": "out"}, [("a/#", BOTH)], ""),
        # A topic belongs to one policy.
        ({}, {}, [("a/#", ONLY_OUT), ("a/#", ONLY_IN)], ""),
        ({}, {}, [("a/+", ONLY_IN), ("a/b", ONLY_OUT)], ""),
        ({"content-window": 1000}, {"content-window": 2000}, [("a/#", BOTH)], "a/#"),
        # Mappings.
        ({"exchange": "from/us/# -> {#}"}, {}, [("a/#", BOTH)], ""),
        ({"exchange": "from/us/# -> {#}"}, {"exchange": "from/us/# -> {#}"}, [("a/#", BOTH)], "a/#"),
        ({"exchange": "from/us/# -> {#}"}, {"exchange": "from/us/# -> echo/{#}"}, [("a/#", BOTH)], ""),
        ({"exchange": "from/us/# -> {#}"}, {"exchange": "from/us/# -> echo/{#}"}, [("#", BOTH)], "echo/#"),
        ({"exchange": "b/# -> a/{#}"}, {"exchange": "b/c/+ -> a/c/{1}"}, [("a/+/+", BOTH)], "a/c/+"),
    ],
)
def test_topics_that_come_back_over_another_link(
    out: dict[str, Any], into: dict[str, Any], policies: list[tuple[str, dict[str, str]]], expected: str
) -> None:
    assert echo(out, into, *policies) == expected
