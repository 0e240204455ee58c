"""Which links get back what they push."""

from __future__ import annotations

from typing import Any

import pytest

from federation.definitions.policy import parse_policy
from federation.definitions.resolution import Resolution
from federation.definitions.upstream import parse_upstream

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
