"""Topic filters as sets of topic names [MQTT5 4.7]: whether one holds another, and what two have in common.

Filters are valid and come without `$share/NAME/`. `#` and `+/#` match the same topics: a topic name has at least one level.
"""

from __future__ import annotations

from broker.codec.wire import STRING_BYTES_MAX


def covers(wide: bytes, narrow: bytes) -> bool:
    """Return whether `wide` matches every topic that `narrow` matches."""
    wide_levels, wide_is_open = levels_of(wide)
    levels, is_open = levels_of(narrow)
    if is_open and not wide_is_open:
        return False
    if len(levels) < len(wide_levels) or (len(levels) > len(wide_levels) and not wide_is_open):
        return False
    if levels[0].startswith(b"$") and wide_levels[0] == b"+":
        return False  # [MQTT-4.7.2-1]
    return all(level in (b"+", found) for level, found in zip(wide_levels, levels, strict=False))


def intersection(first: bytes, second: bytes) -> bytes | None:
    """The filter that matches exactly the topics that both match; None when there is none.

    None also for a filter that is longer than a UTF-8 string can be [MQTT5 1.5.4]: no client can subscribe to it.
    """
    levels, is_open = levels_of(first)
    other_levels, other_is_open = levels_of(second)
    if len(levels) < len(other_levels):
        levels, is_open, other_levels, other_is_open = other_levels, other_is_open, levels, is_open
    if len(levels) > len(other_levels) and not other_is_open:
        return None
    common = list(levels)
    for index, other in enumerate(other_levels):
        level = levels[index]
        if level == b"+":
            common[index] = other
        elif other not in (b"+", level):
            return None
    if common[0].startswith(b"$") and b"+" in (levels[0], other_levels[0]):
        return None  # [MQTT-4.7.2-1]
    text = filter_of(common, is_open and other_is_open)
    return text if 0 < len(text) <= STRING_BYTES_MAX else None  # the empty one: `/#` and `+`


def levels_of(topic_filter: bytes) -> tuple[list[bytes], bool]:
    """(levels without a last `#`, whether there was one). The levels of `#` are those of `+/#`."""
    levels = topic_filter.split(b"/")
    is_open = levels[-1] == b"#"
    if is_open:
        levels.pop()
        if not levels:
            levels.append(b"+")
    return levels, is_open


def filter_of(levels: list[bytes], is_open: bool) -> bytes:
    """The inverse of levels_of; `#` for `+/#`."""
    if not is_open:
        return b"/".join(levels)
    if levels == [b"+"]:
        return b"#"
    return b"/".join([*levels, b"#"])
