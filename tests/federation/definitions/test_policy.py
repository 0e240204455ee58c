"""Policies: patterns, expressions, the one key of a definition, priorities, and what is refused with which key."""

from __future__ import annotations

from typing import Any

import pytest

from federation.definitions.error import DefinitionError
from federation.definitions.policy import (
    ApplyTo,
    Policy,
    PolicyDefinition,
    QueueLimits,
    Selector,
    UpstreamPattern,
    parse_policy,
)

ALL = {"federation-upstream-set": "all"}


def body(**changes: Any) -> dict[str, Any]:
    return {"pattern": "a/#", "definition": ALL} | {key.replace("_", "-"): value for key, value in changes.items()}


def queue(**definition: Any) -> dict[str, Any]:
    return body(pattern="$share/g/a", definition=definition)


def test_a_policy_has_the_defaults_of_its_pattern() -> None:
    policy = parse_policy("p", body())
    assert policy == Policy("p", "a/#", ApplyTo.TOPICS, 0, PolicyDefinition(Selector.UPSTREAM_SET, "all"))
    assert (policy.filter, policy.group) == (b"a/#", b"")


@pytest.mark.parametrize(
    ("pattern", "group", "topic_filter"),
    [("$share/g/a/+", b"g", b"a/+"), ("$share/+/#", b"+", b"#"), ("$share/g//", b"g", b"/")],
)
def test_a_pattern_with_a_group_is_for_queues(pattern: str, group: bytes, topic_filter: bytes) -> None:
    policy = parse_policy("p", body(pattern=pattern))
    assert (policy.apply_to, policy.group, policy.filter) == (ApplyTo.QUEUES, group, topic_filter)


@pytest.mark.parametrize(
    ("definition", "selector"),
    [
        ({"federation-upstream": "a"}, Selector.UPSTREAM),
        ({"federation-upstream-set": "s"}, Selector.UPSTREAM_SET),
        ({"federation-upstream-pattern": "^a"}, Selector.UPSTREAM_PATTERN),
    ],
)
def test_a_definition_selects_upstreams_in_one_way(definition: dict[str, str], selector: Selector) -> None:
    policy = parse_policy("p", body(definition=definition))
    assert policy.definition == PolicyDefinition(selector, next(iter(definition.values())))


@pytest.mark.parametrize(
    ("value", "key", "part"),
    [
        (None, "", "not an object"),
        ({"definition": ALL}, "pattern", "missing"),
        ({"pattern": "a"}, "definition", "missing"),
        (body(vhost="/"), "vhost", "unknown key"),
        (body(pattern=""), "pattern", "text"),
        (body(pattern="a/#/b"), "pattern", "[MQTT-4.7.1-1]"),
        (body(pattern="a+/b"), "pattern", "[MQTT-4.7.1-2]"),
        (body(pattern="/".join("a" * 129)), "pattern", "levels"),
        (body(pattern="$SYS/#"), "pattern", "not federated"),
        (body(pattern="$share/g"), "pattern", "$share/GROUP/FILTER"),
        (body(pattern="$share"), "pattern", "shared group"),
        (body(pattern="$share/g/$SYS/a"), "pattern", "not federated"),
        (body(pattern="$share/g+/a"), "pattern", "GROUP"),
        (body(pattern="$share/g/a", apply_to="topics"), "pattern", "apply-to topics"),
        (body(apply_to="queues"), "pattern", "$share/GROUP/FILTER"),
        (body(apply_to="exchanges"), "apply-to", "use topics"),
        (body(apply_to="all"), "apply-to", "use topics"),
        (body(apply_to="topic"), "apply-to", "nearest is topics"),
        (body(priority="1"), "priority", "whole number"),
        (body(priority=2**31), "priority", "whole number"),
        (body(definition=[]), "definition", "not an object"),
        (body(definition={}), "definition", "not none"),
        (body(definition=ALL | {"federation-upstream": "a"}), "definition", "exactly one"),
        (body(definition={"max-length": 1}), "definition.max-length", "unknown key"),
        (body(pattern="$share/g/a", definition=ALL | {"federation-upstream": "a"}), "definition", "exactly one"),
        (queue(**{"max-length": 0}), "definition.max-length", "whole number of 1.."),
        (queue(**{"max-length-bytes": "1MB"}), "definition.max-length-bytes", "whole number"),
        (queue(**{"message-ttl": 0.5}), "definition.message-ttl", "whole number"),
        (queue(overflow="reject-publish-dlx"), "definition.overflow", "drop-head"),
        (queue(expires=1), "definition.expires", "unknown key"),
        (body(definition={"federation-upstream": 1}), "definition.federation-upstream", "text"),
        (body(definition={"federation-upstream-pattern": "("}), "definition.federation-upstream-pattern", "expression"),
    ],
)
def test_a_bad_policy_is_refused_with_its_key(value: object, key: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_policy("p", value)
    assert caught.value.key == key
    assert part in caught.value.text


def test_a_policy_for_queues_has_limits_and_may_have_upstreams() -> None:
    policy = parse_policy("p", queue(**{"max-length": 10.0, "message-ttl": 1500, "overflow": "drop-head"}))
    assert policy.definition == PolicyDefinition(None, "", QueueLimits(10, None, 1.5))
    policy = parse_policy("p", queue(overflow="reject-publish"))
    assert policy.definition == PolicyDefinition(None, "", QueueLimits(rejects=True))
    policy = parse_policy("p", queue(**ALL, **{"max-length-bytes": 2**20}))
    assert policy.definition == PolicyDefinition(Selector.UPSTREAM_SET, "all", QueueLimits(None, 2**20, None))


@pytest.mark.parametrize(
    ("pattern", "group", "topic_filter", "expected"),
    [
        ("$share/g/a/#", b"g", b"a/#", True),
        ("$share/g/a/#", b"g", b"a/b", True),
        ("$share/g/a/#", b"h", b"a/b", False),
        ("$share/+/a/#", b"h", b"a/b", True),
        ("$share/+/a/b", b"h", b"a/#", False),
        ("$share/+/#", b"h", b"$SYS/a", False),
        ("a/#", b"g", b"a/b", False),
    ],
)
def test_groups_that_a_policy_is_for(pattern: str, group: bytes, topic_filter: bytes, expected: bool) -> None:
    assert parse_policy("p", body(pattern=pattern)).matches_group(group, topic_filter) is expected


def test_a_policy_does_not_match_topics_of_the_broker() -> None:
    policy = parse_policy("p", body(pattern="#"))
    assert policy.matches(b"a/b")
    assert not policy.matches(b"$SYS/a")
    assert not parse_policy("q", body(pattern="$share/g/#")).matches(b"a/b")


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("eu", "site-eu-1", True),
        ("^eu", "site-eu-1", False),
        ("^(eu|us)-[0-9]+$", "us-12", True),
        ("^(eu|us)-[0-9]+$", "us-12a", False),
        ("^site-.*", "site-", True),
        ("a.?b", "ab", True),
        (r"^\w+\.\d$", "x.1", True),
        ("[^]a]", "a]", False),
        ("", "any", True),
    ],
)
def test_an_expression_is_found_in_a_name(text: str, name: str, expected: bool) -> None:
    assert UpstreamPattern(text).matches(name) is expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(a+)+", "cannot be repeated"),
        ("(a|a)*b", "cannot be repeated"),
        ("(?=a)", "not possible"),
        ("a{2,9}", "cannot be read"),
        (r"(a)\1", "cannot be read"),
        (".*.*.*.*x", "at most 3"),
        ("[a", "cannot be read"),
        ("(a", "no regular expression"),
        ("a)", "no regular expression"),
        ("*a", "cannot be read"),
        ("a++", "cannot be read"),
        ("[z-a]", "no regular expression"),
        ("a" * 257, "bytes"),
    ],
)
def test_an_expression_outside_of_the_syntax_is_refused(text: str, part: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        UpstreamPattern(text)
    assert caught.value.key == "definition.federation-upstream-pattern"
    assert part in caught.value.text
