"""The meaning of definitions together: the policy of a topic, links, explanations, names that nothing defines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.definitions.policy import Policy, parse_policy
from federation.definitions.resolution import LINKS_MAX, QUEUE_EXPIRES_MAX, Resolution
from federation.definitions.upstream import Upstream, UpstreamSet, parse_upstream, parse_upstream_set
from wording import check_each_named, check_named

ALL = {"federation-upstream-set": "all"}


def upstream(name: str, **keys: Any) -> Upstream:
    return parse_upstream(name, {"uri": f"mqtt://{name}"} | keys)


def policy(name: str, pattern: str, priority: int = 0, definition: dict[str, str] = ALL) -> Policy:
    return parse_policy(name, {"pattern": pattern, "priority": priority, "definition": definition})


def members(name: str, *value: Any) -> UpstreamSet:
    return parse_upstream_set(name, list(value))


@pytest.mark.parametrize(
    ("topic", "expected"),
    [(b"a/b", "high"), (b"a/c", "first"), (b"x", "rest"), (b"$SYS/x", None), (b"g/a", "rest")],
)
def test_the_highest_priority_applies_and_then_the_first_name(topic: bytes, expected: str | None) -> None:
    policies = [
        policy("rest", "#", -1),
        policy("second", "a/+"),
        policy("first", "a/#"),
        policy("high", "a/b", 5),
        policy("queues", "$share/g/#", 9),
    ]
    matches = Resolution([], [], policies).explain(topic).policies
    assert [match.name for match in matches if match.applies] == ([expected] if expected else [])


@given(
    st.permutations([policy(name, "a/#", priority) for name in "abc" for priority in (0,)] + [policy("d", "a/b", 1)])
)
def test_the_order_of_definitions_does_not_matter(policies: list[Policy]) -> None:
    resolution = Resolution([upstream("u"), upstream("v")], [], policies)
    assert resolution.explain(b"a/b") == Resolution(
        [upstream("v"), upstream("u")], [], sorted(policies, key=repr)
    ).explain(b"a/b")


def test_each_upstream_has_one_link_of_each_kind() -> None:
    policies = [policy(f"p{index}", f"a/{index}") for index in range(3)]
    queue = policy("q", "$share/g/a")
    links = Resolution([upstream("u"), upstream("v")], [], [*policies, queue]).links()
    assert [(link.upstream.name, link.kind, len(link.policies)) for link in links] == [
        ("u", "queues", 1),
        ("u", "topics", 3),
        ("v", "queues", 1),
        ("v", "topics", 3),
    ]
    assert len({link.link_id for link in links}) == 4
    assert all(len(bytes.fromhex(link.link_id)) == 4 for link in links)


def test_a_link_for_queues_has_a_session_of_its_own() -> None:
    policies = [policy("p", "a"), policy("q", "$share/g/b")]
    keys: dict[str, Any] = {"expires": 3_600_000, "consumer-tag": "t"}
    queues, topics = Resolution([upstream("u", **keys)], [], policies).links()
    assert (queues.upstream.expires, queues.upstream.consumer_tag) == (QUEUE_EXPIRES_MAX, "t-queues")
    assert (topics.upstream.expires, topics.upstream.consumer_tag) == (3_600.0, "t")
    queues, _ = Resolution([upstream("u", expires=1_000)], [], policies).links()
    assert (queues.upstream.expires, queues.upstream.consumer_tag) == (1.0, "")


def test_the_policy_of_a_group_is_explained() -> None:
    policies = [policy("wide", "$share/+/#"), policy("own", "$share/g/jobs/#", 5), policy("topics", "#", 9)]
    resolution = Resolution([upstream("u")], [], policies)
    found = resolution.explain(b"$share/g/jobs/#")
    assert [(match.name, match.applies) for match in found.policies] == [("own", True), ("wide", False)]
    assert [link.id for link in found.links] == [plan.link_id for plan in resolution.links() if plan.kind == "queues"]
    assert resolution.queue_policy_of(b"h", b"jobs/#") is policies[0]
    assert Resolution([], [], policies[1:]).queue_policy_of(b"h", b"jobs/#") is None


def test_policies_that_bring_copies_of_jobs_are_warned_about() -> None:
    queue, topics = policy("q", "$share/g/jobs/#"), policy("t", "jobs/+")
    resolution = Resolution([upstream("u")], [], [queue, topics, policy("other", "sensors/#")])
    (text,) = resolution.copied(queue)
    check_named(text, ["pattern: ", "policy t"])
    assert len(resolution.copied(topics)) == 1
    plain = parse_policy("plain", {"pattern": "$share/g/jobs/#", "definition": {}})
    assert Resolution([], [], [plain, topics]).copied(topics) == []
    assert Resolution([], [], [plain]).unresolved() == []


def test_a_link_keeps_its_id_when_keys_of_its_upstream_change() -> None:
    before = Resolution([upstream("u")], [], [policy("p", "a")]).links()
    after = Resolution([upstream("u", **{"max-hops": 3})], [], [policy("p", "a"), policy("q", "b")]).links()
    assert [link.link_id for link in before] == [link.link_id for link in after]


def test_each_way_to_select_upstreams_finds_its_own() -> None:
    upstreams = [upstream("eu-1"), upstream("eu-2"), upstream("us-1")]
    sets = [members("s", {"upstream": "us-1"}, {"upstream": "eu-1", "max-hops": 7})]
    found = {}
    for name, definition in {
        "one": {"federation-upstream": "eu-2"},
        "set": {"federation-upstream-set": "s"},
        "pattern": {"federation-upstream-pattern": "^eu"},
        "all": ALL,
    }.items():
        links = Resolution(upstreams, sets, [policy(name, "a", 0, definition)]).links()
        found[name] = [(link.upstream.name, link.upstream.max_hops) for link in links]
    assert found == {
        "one": [("eu-2", 1)],
        "set": [("eu-1", 7), ("us-1", 1)],
        "pattern": [("eu-1", 1), ("eu-2", 1)],
        "all": [("eu-1", 1), ("eu-2", 1), ("us-1", 1)],
    }


def test_members_with_other_overrides_are_links_of_their_own() -> None:
    sets = [
        members("s", {"upstream": "u", "exchange": "# -> x/{#}"}, {"upstream": "u", "exchange": "# -> y/{#}"}),
        members("t", {"upstream": "u", "exchange": "# -> x/{#}"}),
    ]
    policies = [policy(name, name, 0, {"federation-upstream-set": name}) for name in "st"]
    links = Resolution([upstream("u")], sets, policies).links()
    served = {link.upstream.exchange: [found.name for found in link.policies] for link in links}
    assert served == {("# -> x/{#}",): ["s", "t"], ("# -> y/{#}",): ["s"]}
    assert len({link.link_id for link in links}) == 2


@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        ({"consumer-tag": "t"}, {"consumer-tag": "t"}, 1),
        ({"consumer-tag": "t"}, {"consumer-tag": "u"}, 2),
        ({"consumer-tag": "t"}, {"consumer-tag": "t", "uri": "mqtt://b"}, 2),
        ({"max-hops": 1}, {"max-hops": 2}, 2),
    ],
)
def test_two_links_have_no_consumer_tag_in_common_at_one_address(
    first: dict[str, Any], second: dict[str, Any], runs: int
) -> None:
    members = [{"upstream": "a", **first, "prefetch-count": 1}, {"upstream": "a", **second}]
    policy = parse_policy("p", {"pattern": "#", "definition": {"federation-upstream-set": "s"}})
    upstream = parse_upstream("a", {"uri": "mqtt://a"})
    found = Resolution([upstream], [parse_upstream_set("s", members)], [policy])
    assert sum(not link.error for link in found.links()) == runs
    told = [text for text in found.unresolved() if "has it at the same address" in text]
    assert len(told) == 2 - runs


def test_overrides_that_do_not_fit_make_one_link_invalid() -> None:
    upstreams = [upstream("u", uri="mqtts://u", tls={"cacertfile": "/a"}), upstream("v")]
    sets = [members("s", {"upstream": "u", "uri": "mqtt://u"}, {"upstream": "v"})]
    links = Resolution(upstreams, sets, [policy("p", "a", 0, {"federation-upstream-set": "s"})]).links()
    assert [(link.upstream.name, bool(link.error)) for link in links] == [("u", True), ("v", False)]
    assert "tls" in links[0].error


def test_an_explanation_names_missing_definitions() -> None:
    sets = [members("s", {"upstream": "u"}, {"upstream": "gone"})]
    for definition, missing in (
        ({"federation-upstream": "u"}, []),
        ({"federation-upstream": "gone"}, [("definition.federation-upstream: ", '"gone"')]),
        ({"federation-upstream-set": "t"}, [("definition.federation-upstream-set: ", '"t"')]),
        ({"federation-upstream-set": "s"}, [('federation-upstream-set "s": [1].upstream: ', '"gone"')]),
    ):
        policies = [policy("p", "a", 1, definition), policy("low", "a", 0, {"federation-upstream": "never"})]
        check_each_named(list(Resolution([upstream("u")], sets, policies).explain(b"a").missing), missing)


def test_an_explanation_says_why_each_policy_applies_or_not() -> None:
    policies = [policy("low", "#", -1), policy("z", "a/#", 3), policy("b", "a/+", 3), policy("other", "x")]
    explanation = Resolution([upstream("u")], [], policies).explain(b"a/b")
    assert [(match.name, match.applies) for match in explanation.policies] == [
        ("b", True),
        ("z", False),
        ("low", False),
    ]
    reasons = [("3", "highest", "name"), ("same priority", "b", "name"), ("-1", "lower", "3 of b")]
    check_each_named([match.reason for match in explanation.policies], reasons)
    assert [link.upstream for link in explanation.links] == ["u"]


def test_an_explanation_without_a_policy_is_empty() -> None:
    explanation = Resolution([upstream("u")], [], [policy("p", "a")]).explain(b"b")
    assert not explanation.policies
    assert not explanation.links


def test_names_that_nothing_defines_are_told_with_their_keys() -> None:
    sets = [members("s", {"upstream": "u"}, {"upstream": "gone"}), members("t", {"upstream": "gone"})]
    policies = [
        policy("a", "a", 0, {"federation-upstream": "gone"}),
        policy("b", "a", 0, {"federation-upstream-set": "gone"}),
        policy("c", "a", 0, {"federation-upstream-set": "t"}),
        policy("d", "a", 0, {"federation-upstream-pattern": "^x"}),
        policy("e", "a"),
    ]
    expected = [
        ('federation-upstream-set "s": [1].upstream: ', '"gone"'),
        ('federation-upstream-set "t": [0].upstream: ', '"gone"'),
        ('policy "a": definition.federation-upstream: ', '"gone"'),
        ('policy "b": definition.federation-upstream-set: ', '"gone"'),
        ('policy "c": definition.federation-upstream-set: ', '"t"'),
        ('policy "d": definition.federation-upstream-pattern: ', "matches"),
    ]
    check_each_named(Resolution([upstream("u")], sets, policies).unresolved(), expected)
    (text,) = Resolution([], [], [policies[4]]).unresolved()
    check_named(text, ['policy "e": definition.federation-upstream-set: ', "no upstream"])


def test_links_beyond_their_bound_are_left_out_and_told() -> None:
    members = tuple(("a", (("reconnect_delay", float(number)),)) for number in range(LINKS_MAX + 2))
    policy = parse_policy("p", {"pattern": "#", "definition": {"federation-upstream-set": "s"}})
    found = Resolution([parse_upstream("a", {"uri": "mqtt://a"})], [UpstreamSet("s", members)], [policy])
    assert len(found.links()) == LINKS_MAX
    check_each_named(found.unresolved(), [(str(LINKS_MAX), " 2 ")])
