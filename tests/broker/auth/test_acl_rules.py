"""Access rules: the order of rules, patterns, `$` topics, and which SUBSCRIBE may match something readable."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.auth.acl_filters import DENIED, PUBLISH, READ, Rule
from broker.auth.acl_rules import AclRules, intersect
from broker.authorization import ALLOW, DENY, NO_OPINION, Verdict
from broker.routing.names import filter_matches
from effort import effort

BOTH = READ | PUBLISH

LEVELS = ["a", "b", "$a", ""]
NAMES = ["a", "b", "", "a/b", "$a", "a+", "%c", "c"]
filters = (
    st.lists(st.sampled_from(["a", "b", "+", "$a", "%u", "%c", "x%u", "$%u", ""]), min_size=1, max_size=3)
    .flatmap(lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])]))
    .filter(bool)
)
plain_filters = filters.filter(lambda found: "%" not in found)
rules = st.builds(Rule, filters, st.sampled_from([READ, PUBLISH, BOTH, DENIED]))
plain_rules = st.builds(Rule, plain_filters, st.sampled_from([READ, PUBLISH, BOTH, DENIED]))
names = st.sampled_from(NAMES)
client_ids = names.filter(bool)


def matches(topic_filter: str, topic: str) -> bool:
    """By the text of the specification, level by level [MQTT5 4.7]."""
    levels, names = topic_filter.split("/"), topic.split("/")
    if topic[:1] == "$" and levels[0] in ("+", "#"):
        return False
    while levels:
        level = levels.pop(0)
        if level == "#":
            return True
        if not names:
            return False
        name = names.pop(0)
        if level not in ("+", name):
            return False
    return not names


def test_hash_matches_the_level_above_it() -> None:
    assert filter_matches(b"a/#", b"a")
    assert not filter_matches(b"a/#", b"ab")


@given(plain_filters, st.lists(st.sampled_from(LEVELS), min_size=1, max_size=4).map("/".join))
def test_filter_matches_as_the_specification_says(topic_filter: str, topic: str) -> None:
    # "a/#" matches "a": `matches` above needs a level for "#".
    expected = matches(topic_filter, topic) or (
        topic_filter.endswith("/#") and matches(topic_filter[:-2], topic) and topic_filter != "/#"
    )
    if topic_filter == "/#":
        expected = topic == "" or topic.startswith("/")
    assert filter_matches(topic_filter.encode(), topic.encode()) is expected


@given(plain_filters, plain_filters, st.lists(st.sampled_from(LEVELS), min_size=1, max_size=5).map("/".join))
def test_an_intersection_has_the_topics_of_both(first: str, second: str, name: str) -> None:
    topic = name.encode()
    both = intersect(first.encode(), second.encode())
    expected = filter_matches(first.encode(), topic) and filter_matches(second.encode(), topic)
    if both is None:
        assert not expected
        return
    levels, is_open = both
    assert filter_matches(b"/".join([*levels, b"#"] if is_open else levels), topic) is expected


def model(
    users: dict[str, list[Rule]], patterns: list[Rule], topic: str, wanted: int, username: str, client_id: str
) -> Verdict:
    """As mosquitto evaluates the lists: denials first, one rule after the other."""

    def first_of(found: list[tuple[str, int]]) -> Verdict:
        for topic_filter, gives in sorted(found, key=lambda rule: rule[1] != DENIED):
            if filter_matches(topic_filter.encode(), topic.encode()):
                if gives == DENIED:
                    return DENY
                if gives & wanted:
                    return ALLOW
        return NO_OPINION

    verdict = first_of([(rule.topic_filter, rule.gives) for rule in users.get(username, [])])
    if verdict is not NO_OPINION or not patterns:
        return verdict
    if any(sign in name for sign in "+#" for name in (username, client_id)):
        return DENY
    substituted = []
    for rule in patterns:
        if "%u" in rule.topic_filter and not username:
            continue
        if topic.startswith("$") and not rule.topic_filter.startswith("$"):
            continue
        text, rest = "", rule.topic_filter
        while rest:
            if rest[:2] in ("%u", "%c"):
                text += username if rest[:2] == "%u" else client_id
                rest = rest[2:]
            else:
                text += rest[0]
                rest = rest[1:]
        substituted.append((text, rule.gives))
    return first_of(substituted)


user_rules = st.dictionaries(names, st.lists(plain_rules, max_size=4), max_size=2)
topics = (
    st.lists(st.sampled_from(["a", "b", "$a", "xa", "", "c", "$b"]), min_size=1, max_size=4).map("/".join).filter(bool)
)


@pytest.mark.thorough
@settings(max_examples=effort(500))
@given(user_rules, st.lists(rules, max_size=4), topics, st.sampled_from([READ, PUBLISH]), names, client_ids)
def test_rules_are_judged_like_the_model(
    users: dict[str, list[Rule]], patterns: list[Rule], topic: str, wanted: int, username: str, client_id: str
) -> None:
    found = AclRules(users, patterns).judge(topic.encode(), wanted, username, client_id)
    assert found is model(users, patterns, topic, wanted, username, client_id)


short_filters = st.lists(st.sampled_from(["a", "b", "+", "$a", "%u", "x%u"]), min_size=1, max_size=2).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])])
)
short_rules = st.builds(Rule, short_filters, st.sampled_from([READ, PUBLISH, DENIED]))
plain_short_rules = st.builds(
    Rule, short_filters.filter(lambda found: "%" not in found), st.sampled_from([READ, DENIED])
)


@pytest.mark.thorough
@settings(max_examples=effort(400))
@given(
    st.lists(plain_short_rules, max_size=3),
    st.lists(short_rules, max_size=3),
    short_filters.filter(lambda found: "%" not in found),
    st.sampled_from(["u", "a/b", "$a", ""]),
)
def test_a_filter_is_readable_when_one_of_its_topics_is(
    user_rules: list[Rule], patterns: list[Rule], topic_filter: str, username: str
) -> None:
    """All topics of up to four levels, with a name that no rule has."""
    acl = AclRules({username: user_rules}, patterns)
    of_user = {"u": [b"u", b"xu"], "a/b": [b"xa"], "$a": [b"x$a"], "": []}[username]
    found = any(
        filter_matches(topic_filter.encode(), topic) and acl.judge(topic, READ, username, "c") is ALLOW
        for count in range(1, 5)
        for topic in map(b"/".join, product([b"a", b"b", b"$a", b"fresh", *of_user], repeat=count))
    )
    assert acl.may_read_any(topic_filter.encode(), username, "c") is found


def test_a_name_that_begins_with_dollar_gives_no_dollar_topics() -> None:
    """Stricter than mosquitto 2.0, where the client id $SYS may read $SYS/# here."""
    acl = AclRules({}, [Rule("%c/#", READ), Rule("%u/x", READ), Rule("$%c/y", READ)])
    assert acl.judge(b"$SYS/x", READ, "$SYS", "$SYS") is NO_OPINION
    assert not acl.may_read_any(b"$SYS/#", "$SYS", "$SYS")
    assert acl.judge(b"$SYS/y", READ, "", "SYS") is ALLOW


@pytest.mark.parametrize(
    ("topic_filter", "is_readable"),
    [
        ("#", True),
        ("a/#", True),
        ("a/b", False),
        ("a/b/#", False),
        ("a/b/c", False),
        ("+/b", False),
        ("+/c", True),
        ("c", False),
        ("a", True),
        ("$SYS/#", True),
        ("$SYS/x", False),
        ("+/b/c", False),
        ("+/broker", True),
    ],
)
def test_subscriptions_of_one_user(topic_filter: str, is_readable: bool) -> None:
    acl = AclRules(
        {"u": [Rule("a/#", READ), Rule("a/b/#", DENIED), Rule("w/#", PUBLISH), Rule("$SYS/broker/#", READ)]}, []
    )
    assert acl.may_read_any(topic_filter.encode(), "u", "c") is is_readable
    assert not acl.may_read_any(topic_filter.encode(), "other", "c")


# Steps of a slice: nothing that a client sends makes one question take more than the rules that concern it.

MANY = 10_000
DEEP = b"/".join([b"a"] * 128)
WIDE = b"/".join([b"+"] * 128)


def steps_of(acl: AclRules, topic_filter: bytes, username: str = "u", client_id: str = "c") -> tuple[bool, int]:
    acl.take_steps(username)
    return acl.may_read_any(topic_filter, username, client_id), acl.take_steps(username)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "topic_filter", "is_readable", "steps_max"),
    [
        ([], DEEP, False, 10),  # no rule begins with this level
        ([], b"r/7/#", True, 20),
        ([], b"r/+/x", False, 3 * MANY),  # each of these rules has the first two levels
        ([Rule("r/#", DENIED)], b"r/#", False, 10),
        ([Rule("r/#", DENIED)], b"#", False, 7 * MANY),
        ([Rule("#", DENIED)], WIDE, False, 10),
        ([Rule("#", READ)], WIDE, True, 2 * MANY),
    ],
)
def test_a_question_takes_steps_of_the_rules_that_concern_it(
    more: list[Rule], topic_filter: bytes, is_readable: bool, steps_max: int
) -> None:
    rules = [Rule(f"r/{number}", READ) for number in range(MANY)] + more
    for acl in (AclRules({"u": rules}, []), AclRules({}, rules)):
        found, steps = steps_of(acl, topic_filter)
        assert found is is_readable
        assert steps <= steps_max


@pytest.mark.parametrize("client_id", ["c", "a/b/c", "/".join(["x"] * 1_000)])
def test_patterns_are_found_by_the_levels_of_the_names(client_id: str) -> None:
    """2,000 patterns: a topic is compared with the one that may match, also where a placeholder stands for many levels."""
    acl = AclRules({}, [Rule(f"%c/{number}", READ) for number in range(2_000)])
    acl.judge(b"x", READ, "u", client_id)
    acl.take_steps("u")
    topic = client_id.encode() + b"/7"
    assert acl.judge(topic, READ, "u", client_id) is (ALLOW if len(client_id) < 10 else NO_OPINION)
    assert acl.judge(b"c/7/x", READ, "u", client_id) is NO_OPINION
    assert acl.take_steps("u") < 20


def test_a_search_takes_steps_of_the_names() -> None:
    acl = AclRules({}, [Rule(f"%c/{number}", READ) for number in range(2_000)] + [Rule("%c/x/#", DENIED)])
    found, steps = steps_of(acl, b"a/b/x/#", client_id="a/b")
    assert not found
    assert 0 < steps < 40_000  # the tree for names with one slash is made
    found, steps = steps_of(acl, b"a/b/x/#", client_id="a/b")
    assert (found, steps < 100) == (False, True)
