"""Which topics are logged: filters, exceptions, topics that begin with `$`."""

from __future__ import annotations

import pytest

from broker.event_log.selection import TOPIC_BYTES_MAX, TOPICS_MAX, Selection


@pytest.mark.parametrize(
    ("filters", "exclude", "topic", "expected"),
    [
        ((b"#",), (), b"a/b", True),
        ((b"#",), (), b"$SYS/x", False),
        ((b"$SYS/#",), (), b"$SYS/x", True),
        ((b"a/+", b"b"), (), b"a/1", True),
        ((b"a/+", b"b"), (), b"a/1/2", False),
        ((b"#",), (b"secret/#",), b"secret", False),
        ((b"#",), (b"secret/#",), b"secrets", True),
        ((b"a/+",), (b"a/1",), b"a/1", False),
        ((), (), b"a", False),
        ((b"#",), (), b"x" * (TOPIC_BYTES_MAX + 1), True),
    ],
)
def test_selection(filters: tuple[bytes, ...], exclude: tuple[bytes, ...], topic: bytes, expected: bool) -> None:
    selection = Selection(filters, exclude)
    assert selection.has(topic) is expected
    assert selection.has(topic) is expected, "from the cache"


def test_more_topics_than_the_cache_has() -> None:
    selection = Selection([b"1/+"])
    assert all(selection.has(b"1/%d" % number) for number in range(TOPICS_MAX + 2))
    assert not selection.has(b"2/0")
