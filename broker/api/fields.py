"""Fields that several services have: pages of a list, times, topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from broker.api.errors import invalid_argument
from broker.errors import MqttError

PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 1000  # a larger page_size is cut to it, so that scripts for the Go broker work


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """(offset, count) of a page in the list. `page` counts from 1; 0 stands for the default of either number."""
    size = min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    return (max(page, 1) - 1) * size, size


def timestamp(unix_seconds: float) -> Timestamp:
    made = Timestamp()
    made.FromNanoseconds(int(unix_seconds * 1_000_000_000))
    return made


def topic_field(text: str, check: Callable[[bytes], None], place: str) -> bytes:
    """A topic of a request as MQTT has it. Raises ApiError that names its place, where `check` raises MqttError."""
    topic = text.encode()
    try:
        check(topic)
    except MqttError as error:
        raise invalid_argument(f"{place}: {error.text}") from None
    return topic
