"""Sections of bridges in a mosquitto.conf."""

from __future__ import annotations

import pytest

from federation.definitions.imports.imported import ImportFault
from federation.definitions.imports.mosquitto_conf import parse_config


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
