"""The start of a subscription to `$stream/`, from the text that the client gives.

The text is the User Property `from` of SUBSCRIBE, or else the first level behind `$stream/`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from broker.codec.reason_codes import TOPIC_FILTER_INVALID
from broker.config.durations import DurationError, parse_duration
from broker.errors import MqttError
from broker.routing.names import FEED_PREFIX

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LAST: Final = "last"
TEXT_BYTES_MAX: Final = 4096  # of a text: a session keeps it with its position
NODES_MAX: Final = 1000  # of offsets by node
OFFSET_EARLIEST: Final = -2
OFFSET_LATEST: Final = -1
OFFSET_MAX: Final = 2**63 - 1  # of times in ns, too
RFC_3339: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
FORMS: Final = (
    "earliest, latest, last, a time before now as -15m, a time as 2026-11-26T10:00:00Z, or offsets by node as "
    '{"node1": 1000}'
)


@dataclass(frozen=True, slots=True)
class Start:
    """since_ns  Unix time of the first record; 0 for all
    is_last  the last record of each topic comes first
    offsets  by node: the first record, OFFSET_EARLIEST or OFFSET_LATEST. Other nodes are read from their first record
    """

    since_ns: int = 0
    is_last: bool = False
    offsets: dict[str, int] = field(default_factory=dict)


class StartFault(ValueError):
    """The text is no start. The message says what is wrong and what would be right."""


def split_filter(full_filter: bytes, start: str) -> tuple[str, bytes]:
    """Return (the text of the start, the topic filter) of a filter with `$stream/`. `start` is the User Property, "" for none.
    Raises MqttError."""
    rest = full_filter[len(FEED_PREFIX) :]
    if start:
        text, topic_filter = start, rest
    else:
        level, slash, topic_filter = rest.partition(b"/")
        text = level.decode()
        if not slash:
            raise MqttError(
                TOPIC_FILTER_INVALID, f"$stream/START/FILTER, or $stream/FILTER with the User Property from: {FORMS}"
            )
    if not topic_filter:
        raise MqttError(
            TOPIC_FILTER_INVALID, "no topic filter stands behind $stream/, for example $stream/-15m/sensors/#"
        )
    return text, topic_filter


def parse_start(text: str, now_ns: int) -> Start:
    """Return what a text means at this Unix time. Raises StartFault."""
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise StartFault(f"from has more than {TEXT_BYTES_MAX} bytes")
    if text == EARLIEST:
        return Start()
    if text == LATEST:
        return Start(now_ns)
    if text == LAST:
        return Start(is_last=True)
    if text.startswith("{"):
        return Start(offsets=_offsets(text))
    if text.startswith("-"):
        try:
            return Start(max(0, now_ns + round(parse_duration(text) * 1e9)))
        except DurationError as error:
            raise StartFault(f"from: {error}") from None
    if RFC_3339.fullmatch(text):
        return Start(_unix_ns(text))
    raise StartFault(f'from is "{text[:64]}", but should be {FORMS}')


def _unix_ns(text: str) -> int:
    """Raises StartFault."""
    try:
        instant = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise StartFault(f'from: there is no time "{text}": {error}') from None
    seconds = instant.replace(microsecond=0).timestamp()
    since_ns = int(seconds) * 1_000_000_000 + instant.microsecond * 1000
    if since_ns > OFFSET_MAX:  # it goes to other nodes in 63 bits
        raise StartFault(f'from is "{text}", but should be a time before 2262-04-11')
    return max(0, since_ns)


def _offsets(text: str) -> dict[str, int]:
    """Raises StartFault."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartFault(f"from is no JSON: {error}") from None
    if not isinstance(found, dict) or not 0 < len(found) <= NODES_MAX:
        raise StartFault(f'from has 1 to {NODES_MAX} offsets by node, as {{"node1": 1000}}')
    for node, offset in found.items():
        if type(offset) is not int or not OFFSET_EARLIEST <= offset <= OFFSET_MAX:
            raise StartFault(
                f"from: the offset of node {node[:64]!a} is a whole number, -2 for earliest or -1 for latest"
            )
    return found
