"""Settings that make no sense are faults of the file, with key and remedy."""

from __future__ import annotations

import pytest

from broker.config.loader import load_bytes

FILE = """\
listeners: [{{address: ":1883"}}]
plugin_order: [event_log]
plugins:
  event_log: {{{keys}}}
"""


def faults(keys: str, text: str = FILE) -> list[str]:
    return [str(fault) for fault in load_bytes(text.format(keys=keys).encode(), "x.yml").faults]


@pytest.mark.parametrize(
    "keys",
    [
        "",
        "dir: /x, topics: [a/+, 'b/#'], exclude: ['$SYS/#'], sync: none",
        "retention: {age: 1h, bytes: 1GiB}, hold: {max_age: 1h, max_bytes: 1GiB}",
        "retention: {age: 0s, bytes: 0}, hold: {max_age: 0s, max_bytes: 0}",
        "retention: {bytes: 128KiB}, segment_bytes: 64KiB",
    ],
)
def test_sound_settings(keys: str) -> None:
    assert faults(keys) == []


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("topics: [a#]", 'x.yml:4: plugins.event_log.topics[0]: "a#" is not a topic filter: '),
        ("exclude: [a, '']", 'x.yml:4: plugins.event_log.exclude[1]: "" is not a topic filter: empty topic filter'),
        ("topics: [$share/g/t]", 'plugins.event_log.topics[0]: "$share/g/t" is shared; name the topic filter without'),
        (
            "topics: []",
            'x.yml:4: plugins.event_log.topics: the list is empty, so nothing would be logged; for example ["#"]',
        ),
        (
            "retention: {bytes: 100MiB}",
            "x.yml:4: plugins.event_log.retention.bytes: 104857600 is less than two segments (134217728); raise it, or lower "
            "segment_bytes",
        ),
        ("hold: {max_age: 1h}", "plugins.event_log.hold.max_age: it is shorter than retention.age, which it extends"),
        ("retention: {age: 0s}", "plugins.event_log.hold.max_age: it is shorter than retention.age"),
        ("hold: {max_bytes: 1GiB}", "plugins.event_log.hold.max_bytes: it is less than retention.bytes"),
        ("sync: always", 'plugins.event_log.sync: "always" is not one of commit, interval, none'),
        ("segment_bytes: 1KiB", 'plugins.event_log.segment_bytes: "1KiB" is not a size of 64KiB..1GiB'),
        ("sync_interval: 0s", 'plugins.event_log.sync_interval: "0s" is shorter than 1ms'),
        ("on_full: panic", 'plugins.event_log.on_full: "panic" is not one of stop_logging, refuse_publishes'),
        ("dir: ' '", "plugins.event_log.dir"),
        ("retain: 5", "plugins.event_log.retain: unknown key"),
    ],
)
def test_bad_settings(keys: str, expected: str) -> None:
    found = faults(keys)
    assert len(found) == 1
    assert expected in found[0]


def test_keys_of_a_log_that_does_not_run_break_no_rule() -> None:
    assert faults("topics: []", FILE.replace("plugin_order: [event_log]", "plugin_order: []")) == []
