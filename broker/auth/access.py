"""A token or a webhook gives the access to topics as an object with the lists `pub`, `sub` and `all` of patterns.

The patterns are topic filters, in which %u stands for the user name and %c for the client id.
"""

from __future__ import annotations

from typing import Final

from broker.authorization import TopicAccess
from broker.errors import MqttError
from broker.routing.names import check_topic_filter

PATTERNS_MAX: Final = 1000
LISTS: Final = {"pub": (True, False), "sub": (False, True), "all": (True, True)}  # (publish, subscribe)


class AccessFault(Exception):
    """The claim cannot be understood. The text says what is wrong, without its values."""


def read_access(claim: object) -> tuple[TopicAccess, ...] | None:
    """Return the access of a claim; None where there is no claim. Raises AccessFault: nothing of a claim is guessed."""
    if claim is None:
        return None
    if not isinstance(claim, dict):
        raise AccessFault("the access is not an object with pub, sub and all")
    found: list[TopicAccess] = []
    for name, patterns in claim.items():
        if name not in LISTS:
            raise AccessFault("the access has other names than pub, sub and all")
        if not isinstance(patterns, list):
            raise AccessFault(f"{name} of the access is not a list of topic filters")
        for pattern in patterns:
            if not isinstance(pattern, str) or not _is_filter(pattern):
                raise AccessFault(f"{name} of the access has an item that is not a topic filter")
            found.append(TopicAccess(pattern, *LISTS[name]))
    if len(found) > PATTERNS_MAX:
        raise AccessFault(f"the access has more than {PATTERNS_MAX} topic filters")
    return tuple(found)


def _is_filter(pattern: str) -> bool:
    try:
        check_topic_filter(pattern.encode())
    except (MqttError, UnicodeEncodeError):
        return False
    return not pattern.startswith("$share/")
