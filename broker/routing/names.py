"""Checks of topic names and topic filters [MQTT5 4.7] and of shared subscription filters [MQTT5 4.8.2]."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.codec.wire import STRING_BYTES_MAX, check_utf8
from broker.errors import MqttError

TOPIC_LEVELS_MAX: Final = 128  # bounds the work of one match
SHARE_PREFIX: Final = b"$share/"
FEED_PREFIX: Final = b"$stream/"  # of the topic filters of feeds (broker/feeds.py)
SYS: Final = b"$SYS"
SYS_PREFIX: Final = b"$SYS/"  # of topics about a node, which stay on it

# Every PUBLISH is checked for both. `in` with an int costs a fifth of `in` with one byte as bytes.
_PLUS: Final = 0x2B
_HASH: Final = 0x23

_TOPIC_FILTER_INVALID: Final = 0x8F
_TOPIC_NAME_INVALID: Final = 0x90


def check_topic_name(topic: bytes) -> None:
    """Raise MqttError unless `topic` is a topic name: not empty, without wildcards [MQTT-3.3.2-2], UTF-8 without U+0000,
    within the limits of size and levels."""
    if _PLUS in topic or _HASH in topic:
        raise MqttError(_TOPIC_NAME_INVALID, f"topic name {_shown(topic)} has a wildcard [MQTT-3.3.2-2]")
    # A shorter name cannot have too many levels: 128 levels need 127 separators.
    size = len(topic)
    if size == 0 or size >= TOPIC_LEVELS_MAX - 1:
        _check_size(topic, _TOPIC_NAME_INVALID, "topic name")
    check_utf8(topic)


def is_reserved(topic: bytes) -> bool:
    """Return whether clients never publish to the topic: one of `$SYS/#`."""
    return topic.startswith(SYS_PREFIX) or topic == SYS


def check_topic_filter(topic_filter: bytes) -> None:
    """Raise MqttError unless this is a topic filter [MQTT5 4.7.1], with or without `$share/name/`."""
    _check_size(topic_filter, _TOPIC_FILTER_INVALID, "topic filter")
    check_utf8(topic_filter)
    _, unshared = parse_filter(topic_filter)
    if has_wildcard(unshared):
        levels = unshared.split(b"/")
        last = len(levels) - 1
        for index, level in enumerate(levels):
            if _HASH in level and (level != b"#" or index != last):
                raise MqttError(
                    _TOPIC_FILTER_INVALID,
                    f"topic filter {_shown(topic_filter)}: # must be the whole last level [MQTT-4.7.1-1]",
                )
            if _PLUS in level and level != b"+":
                raise MqttError(
                    _TOPIC_FILTER_INVALID,
                    f"topic filter {_shown(topic_filter)}: + must be a whole level [MQTT-4.7.1-2]",
                )


def parse_filter(full: bytes) -> tuple[bytes, bytes]:
    """(share name, topic filter) of `$share/name/filter`; (b"", full) of any other filter. Raises MqttError."""
    if full[:6] != b"$share" or (len(full) > 6 and full[6:7] != b"/"):
        return b"", full
    slash = full.find(b"/", 7)
    if slash <= 7:
        raise MqttError(
            _TOPIC_FILTER_INVALID,
            f"shared filter {_shown(full)} is not $share/name/filter with a name [MQTT-4.8.2-1]",
        )
    share_name = full[7:slash]
    if _PLUS in share_name or _HASH in share_name:
        raise MqttError(_TOPIC_FILTER_INVALID, f"share name {_shown(share_name)} has a wildcard [MQTT-4.8.2-2]")
    if slash + 1 == len(full):
        raise MqttError(_TOPIC_FILTER_INVALID, f"shared filter {_shown(full)} has no topic filter [MQTT-4.8.2-2]")
    return share_name, full[slash + 1 :]


def full_filter(share_name: bytes, topic_filter: bytes) -> bytes:
    """The inverse of parse_filter."""
    if not share_name:
        return topic_filter
    return SHARE_PREFIX + share_name + b"/" + topic_filter


def has_wildcard(topic_filter: bytes) -> bool:
    return _PLUS in topic_filter or _HASH in topic_filter


def _check_size(name: bytes, reason_code: int, what: str) -> None:
    size = len(name)
    if size == 0:
        raise MqttError(reason_code, f"empty {what} [MQTT-4.7.3-1]")
    if size > STRING_BYTES_MAX:
        raise MqttError(reason_code, f"{what} of {size} bytes, at most {STRING_BYTES_MAX} [MQTT-4.7.3-3]")
    levels = name.count(b"/") + 1
    if levels > TOPIC_LEVELS_MAX:
        raise MqttError(reason_code, f"{what} with {levels} levels, at most {TOPIC_LEVELS_MAX}")


def _shown(name: bytes) -> str:
    """A name for an error text: printable, at most 64 bytes of it."""
    text = ascii(name[:64].decode("utf-8", "replace"))
    return text if len(name) <= 64 else text + "..."


def filter_matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a filter, without $share/NAME/, matches a topic name [MQTT5 4.7]."""
    levels = topic_filter.split(b"/")
    names = topic.split(b"/")
    if topic.startswith(b"$") and levels[0] in (b"+", b"#"):
        return False  # [MQTT-4.7.2-1]
    is_open = levels[-1] == b"#"
    if is_open:
        levels.pop()
    if len(names) < len(levels) or (len(names) > len(levels) and not is_open):
        return False
    for index, level in enumerate(levels):  # noqa: SIM110 (compiled without a generator)
        if level not in (b"+", names[index]):
            return False
    return True
