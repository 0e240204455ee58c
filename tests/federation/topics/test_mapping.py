"""Topic mappings: examples, each error, and properties: a mapping can be reversed, and filters map as their topics do."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.codec.wire import STRING_BYTES_MAX
from broker.routing.names import check_topic_filter, check_topic_name, filter_matches
from federation.topics.mapping import RULES_MAX, MappingError, TopicMapping


@pytest.mark.parametrize(
    ("rule", "upstream", "local"),
    [
        ("a/+/b/# -> x/{1}/{#}", b"a/1/b/c/d", b"x/1/c/d"),
        ("a/+/b/# -> x/{1}/{#}", b"a/1/b", b"x/1"),
        ("a/+/b/# -> x/{1}/{#}", b"a//b", b"x/"),
        ("+/+ -> {2}/of/{1}", b"room/house", b"house/of/room"),
        ("eu/# -> {#}", b"eu/a/b", b"a/b"),
        ("# -> from/eu/{#}", b"a", b"from/eu/a"),
        ("  status->eu/status ", b"status", b"eu/status"),
        ("$SYS/# -> sys/eu/{#}", b"$SYS/broker/uptime", b"sys/eu/broker/uptime"),
        ("ä/# -> {#}", "ä/日本".encode(), "日本".encode()),
    ],
)
def test_topics_in_and_out(rule: str, upstream: bytes, local: bytes) -> None:
    mapping = TopicMapping([rule])
    assert mapping.map_in(upstream) == local
    assert mapping.map_out(local) == upstream


@pytest.mark.parametrize(
    ("rule", "upstream"),
    [
        ("a/# -> x/{#}", b"b/c"),  # no rule for it
        ("eu/# -> {#}", b"eu"),  # nothing is left of it
        ("eu/# -> {#}", b"eu/$SYS/x"),  # would become a topic with $
        ("# -> x/{#}", b"$SYS/x"),
        ("+/a -> {1}", b"/a"),  # an empty name
        ("a/# -> longer/{#}", b"a/" + b"b" * (STRING_BYTES_MAX - 2)),
        ("a/# -> x/y/{#}", b"a" + b"/" * 127),
    ],
)
def test_topics_outside_the_rules_do_not_cross(rule: str, upstream: bytes) -> None:
    assert TopicMapping([rule]).map_in(upstream) is None


def test_local_topics_that_do_not_cross() -> None:
    mapping = TopicMapping(["# -> from/eu/{#}"])
    assert mapping.map_out(b"from/eu") is None
    assert mapping.map_out(b"elsewhere") is None


@pytest.mark.parametrize(
    ("rule", "local", "upstream"),
    [
        ("a/+/b/# -> x/{1}/{#}", b"x/#", [b"a/+/b/#"]),
        ("a/+/b/# -> x/{1}/{#}", b"#", [b"a/+/b/#"]),
        ("a/+/b/# -> x/{1}/{#}", b"+/7/+", [b"a/7/b/+"]),
        ("a/+/b/# -> x/{1}/{#}", b"x/7", [b"a/7/b"]),
        ("a/+/b/# -> x/{1}/{#}", b"x", []),
        ("eu/# -> {#}", b"#", [b"eu/#"]),
        ("eu/# -> {#}", b"+/b", [b"eu/+/b"]),
        ("# -> from/eu/{#}", b"from/#", [b"#"]),
        ("# -> from/eu/{#}", b"from/eu/$SYS/#", []),
        ("# -> from/eu/{#}", b"from/eu", []),
        ("+/# -> {1}/eu/{#}", b"#", [b"+/#"]),
        ("a/# -> longer/{#}", b"a/" + b"b" * 60_000, []),
        ("aaa/# -> x/{#}", b"x/" + b"b" * (STRING_BYTES_MAX - 2), []),
    ],
)
def test_filters_out(rule: str, local: bytes, upstream: list[bytes]) -> None:
    assert TopicMapping([rule]).map_filter_out(local) == upstream


def test_a_filter_has_a_part_in_each_rule() -> None:
    mapping = TopicMapping(["eu/# -> x/{#}", "us/# -> y/{#}"])
    assert mapping.map_filter_out(b"+/a") == [b"eu/a", b"us/a"]
    assert mapping.map_filter_in(b"eu/a") == [b"x/a"]
    assert mapping.map_in(b"us/a") == b"y/a"


def test_no_rules_keep_all_names() -> None:
    mapping = TopicMapping()
    assert (mapping.map_in(b"a"), mapping.map_out(b"a")) == (b"a", b"a")
    assert (mapping.map_filter_in(b"a/#"), mapping.map_filter_out(b"a/#")) == ([b"a/#"], [b"a/#"])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("a/b", "is not UPSTREAM -> LOCAL"),
        ("a -> b -> c", "is not UPSTREAM -> LOCAL"),
        ("a/# -> ", "empty topic filter"),
        (" -> a", "empty topic filter"),
        ("a/+/# -> x/{#}", "two topics would become one: {1} is missing"),
        ("a/# -> x", "two topics would become one: {#} is missing"),
        ("a/+ -> x/{1}/{1}", "more than once"),
        ("a/+ -> x/{1}/{2}", "{2} stands for no +: a/+ has 1"),
        ("a -> x/{#}", "{#} stands for no #"),
        ("a/# -> {#}/x", "{#} is no capture"),
        ("a/+ -> x-{1}", "x-{1} is no capture"),
        ("a/+ -> x/{0}", "{0} is no capture"),
        ("a/+ -> x/+", "has a wildcard: write {1}"),
        ("a/{1} -> x/{1}", "captures belong on the right"),
        ("a/b+ -> x", "must be a whole level"),
        ("a/#/b -> x/{#}", "must be the whole last level"),
        ("$share/g/a -> x", "leave $share/NAME/ out"),
        ("a/# -> $SYS/{#}", "begins with $"),
        ("a\0 -> x", "U+0000"),
        ("\ud800 -> x", "UTF-8"),
        ("a -> \ud800", "UTF-8"),
    ],
)
def test_a_text_that_is_no_rule(rule: str, words: str) -> None:
    with pytest.raises(MappingError) as caught:
        TopicMapping([rule])
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("a/# -> x/{#}", "b/# -> x/y/{#}", "topics here that match x/y/# belong to both"),
        ("a/# -> x/{#}", "a/b/# -> y/{#}", "topics of the upstream that match a/b/# belong to both"),
        ("+/a -> x/{1}", "b/+ -> y/{1}", "that match b/a belong to both"),
    ],
)
def test_rules_that_collide(first: str, second: str, words: str) -> None:
    with pytest.raises(MappingError, match=words):
        TopicMapping([first, second])


def test_rules_have_a_limit() -> None:
    rules = [f"a/{number} -> b/{number}" for number in range(RULES_MAX + 1)]
    TopicMapping(rules[:-1])
    with pytest.raises(MappingError, match="101 mapping rules, at most 100"):
        TopicMapping(rules)


def test_an_error_is_short() -> None:
    with pytest.raises(MappingError) as caught:
        TopicMapping(["\x1b" * 100_000])
    assert len(str(caught.value)) < 300


MAPPINGS: Final = [
    TopicMapping(["a/+/b/# -> x/{1}/{#}"]),
    TopicMapping(["a/# -> {#}"]),
    TopicMapping(["# -> a/{#}"]),
    TopicMapping(["+/+/# -> {2}/b/{1}/{#}"]),
    TopicMapping(["a/# -> b/{#}", "b/+ -> a/{1}", "$SYS/# -> x/{#}"]),
    TopicMapping(),
]
_LEVELS: Final = ["", "a", "b", "x", "$SYS"]
TOPICS: Final = (
    st.lists(st.sampled_from(_LEVELS), min_size=1, max_size=6).map(lambda levels: "/".join(levels).encode()).filter(len)
)
FILTERS: Final = st.builds(
    lambda levels, end: "/".join(levels + end).encode(),
    st.lists(st.sampled_from([*_LEVELS, "+"]), min_size=1, max_size=5),
    st.sampled_from([[], ["#"]]),
).filter(len)


@given(st.sampled_from(MAPPINGS), TOPICS)
def test_a_mapping_can_be_reversed(mapping: TopicMapping, topic: bytes) -> None:
    local = mapping.map_in(topic)
    if local is not None:
        check_topic_name(local)
        assert mapping.map_out(local) == topic
    upstream = mapping.map_out(topic)
    if upstream is not None:
        check_topic_name(upstream)
        assert mapping.map_in(upstream) == topic


@given(st.sampled_from(MAPPINGS), FILTERS, TOPICS)
def test_filters_map_as_their_topics_do(mapping: TopicMapping, topic_filter: bytes, topic: bytes) -> None:
    out = mapping.map_filter_out(topic_filter)
    for mapped in [*out, *mapping.map_filter_in(topic_filter)]:
        check_topic_filter(mapped)
    local = mapping.map_in(topic)
    if local is not None:
        assert any(filter_matches(mapped, topic) for mapped in out) == filter_matches(topic_filter, local)
    upstream = mapping.map_out(topic)
    if upstream is not None:
        matched = any(filter_matches(mapped, topic) for mapped in mapping.map_filter_in(topic_filter))
        assert matched == filter_matches(topic_filter, upstream)
