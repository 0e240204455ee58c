"""Topic names and filters by example; tests/data/packets.json has more."""

import pytest

from broker.errors import MqttError
from broker.routing.names import TOPIC_LEVELS_MAX, check_topic_filter, check_topic_name, full_filter, parse_filter


@pytest.mark.parametrize("topic", [b"a", b"/", b"a//b", b" ", b"$SYS/x", "ä/日本".encode(), b"a" * 65_535])
def test_good_names(topic: bytes) -> None:
    check_topic_name(topic)
    check_topic_filter(topic)


@pytest.mark.parametrize(
    ("topic", "reason_code", "words"),
    [
        (b"", 0x90, "empty"),
        (b"a/+", 0x90, "wildcard"),
        (b"#", 0x90, "wildcard"),
        (b"a\0", 0x81, "U\\+0000"),
        (b"\xed\xa0\x80", 0x81, "UTF-8"),
        (b"a" * 65_536, 0x90, "65535"),
        (b"/" * TOPIC_LEVELS_MAX, 0x90, "129 levels, at most 128"),
    ],
)
def test_bad_names(topic: bytes, reason_code: int, words: str) -> None:
    with pytest.raises(MqttError, match=words) as caught:
        check_topic_name(topic)
    assert caught.value.reason_code == reason_code


def test_levels_at_the_limit() -> None:
    check_topic_name(b"/" * (TOPIC_LEVELS_MAX - 1))
    check_topic_filter(b"/".join([b"+"] * TOPIC_LEVELS_MAX))
    with pytest.raises(MqttError, match="129 levels"):
        check_topic_filter(b"/".join([b"+"] * (TOPIC_LEVELS_MAX + 1)))


@pytest.mark.parametrize("topic_filter", [b"#", b"+", b"/+", b"+/+/#", b"a/#", b"$share/g/#", b"$shared/x", b"$sharex"])
def test_good_filters(topic_filter: bytes) -> None:
    check_topic_filter(topic_filter)


def test_error_texts_are_short_and_printable() -> None:
    with pytest.raises(MqttError) as caught:
        check_topic_name(b"\x1b[31m\xff" * 1_000 + b"#")
    assert caught.value.text.isprintable()
    assert len(caught.value.text) < 400


@pytest.mark.parametrize(
    ("full", "parts"),
    [
        (b"a/b", (b"", b"a/b")),
        (b"$share/g/a/+", (b"g", b"a/+")),
        (b"$share/g//", (b"g", b"/")),
        (b"$shared/g/a", (b"", b"$shared/g/a")),
    ],
)
def test_parse_filter(full: bytes, parts: tuple[bytes, bytes]) -> None:
    assert parse_filter(full) == parts
    assert full_filter(*parts) == full
