"""Sections of bridges in a mosquitto.conf, their `topic` lines (the table of mosquitto.conf(5)), and the rules of mappings."""

from __future__ import annotations

import pytest

from federation.definitions.imports.imported import ImportFault
from federation.definitions.imports.mosquitto_conf import Topic, mapping_of, parse_config, parse_topic
from federation.topics.mapping import TopicMapping


def test_sections_begin_with_connection_and_end_with_listener() -> None:
    found = parse_config(
        "listener 1883\nallow_anonymous true\n# comment\n\nconnection one\n address  a:1\ntopic # in 1\n"
        "listener 1884\nprotocol mqtt\nconnection two words\nremote_password a  b \n"
    )
    assert [(bridge.line, bridge.name) for bridge in found.bridges] == [(5, "one"), (10, "two words")]
    assert [(option.line, option.key, option.text) for option in found.bridges[0].options] == [
        (6, "address", "a:1"),
        (7, "topic", "# in 1"),
    ]
    assert found.bridges[0].options[1].words == ("#", "in", "1")
    assert [option.text for option in found.bridges[1].options] == ["a  b"]


def test_included_folders_are_told() -> None:
    assert parse_config("\ninclude_dir /etc/mosquitto/conf.d\n").includes == [2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("connection", "line 1: connection has no name"),
        ("connection a\nconnection a", 'line 2: there are two connections "a"'),
        ("x" * 200_000, "line 1: more than"),
    ],
)
def test_faults_name_the_line(text: str, fault: str) -> None:
    with pytest.raises(ImportFault, match=fault):
        parse_config(text)


def topic(text: str) -> Topic:
    return parse_topic(parse_config(f"connection a\ntopic {text}").bridges[0].options[0])


@pytest.mark.parametrize(
    ("text", "direction", "qos", "local", "remote"),
    [
        ("a/#", "out", 0, "a/#", "a/#"),
        ("a/# in", "in", 0, "a/#", "a/#"),
        ("a/# both 2", "both", 2, "a/#", "a/#"),
        ("pattern in 1 L/ R/", "in", 1, "L/pattern", "R/pattern"),
        ('pattern in 1 L/ ""', "in", 1, "L/pattern", "pattern"),
        ('pattern in 1 "" R/', "in", 1, "pattern", "R/pattern"),
        ("pattern in 1 L/", "in", 1, "L/pattern", "pattern"),
        ('"" in 1 local remote', "in", 1, "local", "remote"),
        ("clients/total in 0 test/ $SYS/broker/", "in", 0, "test/clients/total", "$SYS/broker/clients/total"),
    ],
)
def test_lines(text: str, direction: str, qos: int, local: str, remote: str) -> None:
    found = topic(text)
    assert (found.direction, found.qos, found.local, found.remote) == (direction, qos, local, remote)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected is PATTERN"),
        ("a in 1 b c d", "expected is PATTERN"),
        ("a up", "the direction is not one of out, in, both"),
        ("a in 3", "the QoS is not one of 0, 1, 2"),
        ('"" in 0 local ""', "needs both prefixes"),
        ("a in 0 b+/ c/", "a prefix has no wildcards"),
        ("# in 0 b c/", "ends with /"),
        ("a/#/b in", "# must be the whole last level"),
        ("a in 0 $share/g/ b/", "no shared subscription"),
    ],
)
def test_faults_of_topics_name_the_line(text: str, fault: str) -> None:
    with pytest.raises(ImportFault, match=r"^line 2: topic: ") as caught:
        topic(text)
    assert fault in str(caught.value)


def test_a_rule_maps_topics_both_ways() -> None:
    mapping = TopicMapping([topic("a/+/b/# both 0 here/ there/").rule()])
    assert mapping.map_in(b"there/a/1/b/2/3") == b"here/a/1/b/2/3"
    assert mapping.map_out(b"here/a/1/b") == b"there/a/1/b"


def test_equal_names_need_no_mapping() -> None:
    assert mapping_of([topic("a/# in"), topic("a/b in")]) == []


def test_other_lines_have_rules_too_when_one_has_prefixes() -> None:
    assert mapping_of([topic("a/# in"), topic("a/b in"), topic('c/# in 0 d/ ""')]) == ["a/# -> a/{#}", "c/# -> d/c/{#}"]


def test_a_wider_line_replaces_a_narrower_one() -> None:
    assert mapping_of([topic("a/b in 0 x/"), topic("a/# in 0 x/")]) == ["a/# -> x/a/{#}"]
