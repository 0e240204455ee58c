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
    ("keys", "key", "said"),
    [
        ("topics: [a#]", "topics[0]", '"a#"'),
        ("exclude: [a, '']", "exclude[1]", '""'),
        ("topics: [$share/g/t]", "topics[0]", '"$share/g/t" is shared'),
        ("topics: []", "topics", '["#"]'),
        ("retention: {bytes: 100MiB}", "retention.bytes", "segment_bytes"),
        ("hold: {max_age: 1h}", "hold.max_age", "retention.age"),
        ("retention: {age: 0s}", "hold.max_age", "retention.age"),
        ("hold: {max_bytes: 1GiB}", "hold.max_bytes", "retention.bytes"),
        ("sync: always", "sync", "commit, interval, none"),
        ("segment_bytes: 1KiB", "segment_bytes", "64KiB..1GiB"),
        ("sync_interval: 0s", "sync_interval", "1ms"),
        ("on_full: panic", "on_full", "stop_logging, refuse_publishes"),
        ("dir: ' '", "dir", '" "'),
        ("retain: 5", "retain", "retention"),
    ],
)
def test_bad_settings(keys: str, key: str, said: str) -> None:
    (found,) = faults(keys)
    assert f": plugins.event_log.{key}: " in found
    assert said in found


def test_keys_of_a_log_that_does_not_run_break_no_rule() -> None:
    assert faults("topics: []", FILE.replace("plugin_order: [event_log]", "plugin_order: []")) == []
