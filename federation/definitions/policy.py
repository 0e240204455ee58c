"""A policy: which topics, or which shared groups, are federated with which upstreams."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from broker.errors import MqttError
from broker.routing.names import SHARE_PREFIX, check_topic_filter, filter_matches
from federation.definitions.error import (
    DefinitionError,
    Readers,
    check_name,
    read_fields,
    read_mapping,
    read_text,
    read_whole,
    read_word,
    shown,
)
from federation.topics.filters import covers

PRIORITY_MAX: Final = 2**31 - 1
MILLISECONDS: Final = 1_000
LENGTH_MAX: Final = 1_000_000_000  # messages of a queue
LENGTH_BYTES_MAX: Final = 2**40
TTL_MAX: Final = 10 * 365 * 86_400 * MILLISECONDS
OVERFLOWS: Final = ("drop-head", "reject-publish")
PATTERN_BYTES_MAX: Final = 256
REPEATS_MAX: Final = 3

_CLASS: Final = r"\[\^?\]?(?:\\[^\dpPNuUxo]|[^\]\\\[])*\]"
_ATOM: Final = re.compile(rf"(?:\\[\W_dDsSwW]|{_CLASS}|[^\\\[\]()|*+?{{}}^$])([*+?]?)")


class ApplyTo(Enum):
    """TOPICS: the pattern is a topic filter. QUEUES: it is `$share/GROUP/FILTER`, where GROUP may be `+`."""

    TOPICS = "topics"
    QUEUES = "queues"


class Selector(Enum):
    """The key of a policy's definition that names its upstreams; each policy has one of them."""

    UPSTREAM = "federation-upstream"
    UPSTREAM_SET = "federation-upstream-set"
    UPSTREAM_PATTERN = "federation-upstream-pattern"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Of the queue of a shared group; None where the policy leaves one to the settings.

    max_length        messages
    max_length_bytes  their bytes
    message_ttl       seconds that a message waits
    rejects           a full queue takes no new message, instead of dropping its oldest one
    """

    max_length: int | None = None
    max_length_bytes: int | None = None
    message_ttl: float | None = None
    rejects: bool = False


@dataclass(frozen=True, slots=True)
class PolicyDefinition:
    """`value`: name of an upstream or a set, or the expression that names of upstreams match. A policy for queues may have no
    selector: its groups have queues, and are not federated."""

    selector: Selector | None
    value: str
    limits: QueueLimits = QueueLimits()


@dataclass(frozen=True, slots=True)
class Policy:
    """`pattern` as written; `filter` is its topic filter, `group` its share name (b"+": every group; b"" for topics)."""

    name: str
    pattern: str
    apply_to: ApplyTo
    priority: int
    definition: PolicyDefinition
    filter: bytes = field(init=False)
    group: bytes = field(init=False)

    def __post_init__(self) -> None:
        group, topic_filter = _split(self.pattern.encode())
        object.__setattr__(self, "filter", topic_filter)
        object.__setattr__(self, "group", group)

    @property
    def rank(self) -> tuple[int, str]:
        """Of all policies that match a topic the one of the lowest rank applies."""
        return -self.priority, self.name

    def matches(self, topic: bytes) -> bool:
        """Return whether this policy for topics has a topic in its pattern."""
        return self.apply_to is ApplyTo.TOPICS and filter_matches(self.filter, topic)

    def matches_group(self, share_name: bytes, topic_filter: bytes) -> bool:
        """Return whether this policy for queues has a shared group in its pattern: its name, and a filter that covers its
        filter."""
        return (
            self.apply_to is ApplyTo.QUEUES
            and self.group in (b"+", share_name)
            and (self.filter == topic_filter or covers(self.filter, topic_filter))
        )


class UpstreamPattern:
    """The expression of `federation-upstream-pattern`, matched against names of upstreams in bounded time.

    It is a part of the regular expressions of RabbitMQ (and of Python) whose worst case is known: quantifiers stand behind
    single characters and classes only, and at most REPEATS_MAX of them are `*` or `+`. A name has at most 128 bytes.
    Raises DefinitionError that names `key` for an expression outside of this syntax.
    """

    def __init__(self, text: str, key: str = "definition.federation-upstream-pattern") -> None:
        if len(text.encode()) > PATTERN_BYTES_MAX:
            raise DefinitionError(key, f"an expression has at most {PATTERN_BYTES_MAX} bytes")
        _check_expression(text, key)
        try:
            self._pattern = re.compile(text)
        except re.error as error:
            raise DefinitionError(key, f"{shown(text)} is no regular expression: {error.msg}") from None

    def matches(self, name: str) -> bool:
        """Return whether the expression is found in a name, at any place unless it has ^ or $."""
        return self._pattern.search(name) is not None


def _check_expression(text: str, key: str) -> None:
    position = repeats = 0
    while position < len(text):
        if text[position] in "()|^$":
            is_special = text.startswith("(?", position)
            is_repeated = text[position] == ")" and text[position + 1 : position + 2] in ("*", "+", "?", "{")
            if is_special or is_repeated:
                what = "(? is not possible" if is_special else "a group cannot be repeated"
                raise DefinitionError(key, f"{shown(text)}: {what} here; use . * + ? | [] ( ) ^ $")
            position += 1
            continue
        match = _ATOM.match(text, position)
        if match is None:
            raise DefinitionError(
                key, f"{shown(text)} cannot be read at character {position + 1}; use . * + ? | [] ( ) ^ $"
            )
        repeats += match.group(1) in ("*", "+")
        position = match.end()
    if repeats > REPEATS_MAX:
        raise DefinitionError(key, f"{shown(text)} has {repeats} of * and +, at most {REPEATS_MAX} are possible")


_KEYS: Final = dict.fromkeys(("pattern", "apply-to", "priority", "definition"))


def parse_policy(name: object, value: object) -> Policy:
    """A policy from `{"pattern": …, "apply-to": …, "priority": …, "definition": {…}}`. Raises DefinitionError.

    `apply-to` may be left out: a pattern with `$share/` is for queues, each other for topics.
    """
    checked = check_name("name", name)
    found = read_mapping("", value, _KEYS)
    for key, example in (("pattern", "sensors/#"), ("definition", '{"federation-upstream-set": "all"}')):
        if key not in found:
            raise DefinitionError(key, f"this key is missing; for example {example}")
    pattern = read_text("pattern", found["pattern"], 65535)
    apply_to = apply_to_of(pattern)
    if "apply-to" in found:
        if found["apply-to"] in ("exchanges", "all"):
            raise DefinitionError("apply-to", f"{shown(found['apply-to'])} is not known to MQTT; use topics")
        apply_to = ApplyTo(read_word("apply-to", found["apply-to"], tuple(item.value for item in ApplyTo)))
    _check_pattern(pattern, apply_to)
    priority = read_whole("priority", found.get("priority", 0), -PRIORITY_MAX, PRIORITY_MAX)
    return Policy(checked, pattern, apply_to, priority, _read_definition(found["definition"], apply_to))


def doubt(policy: Policy) -> str:
    """A warning for a pattern that may be a regular expression, as RabbitMQ's policies have; "" for others. A topic may have
    such a name. Raises DefinitionError where no topic has it: the policy would apply to nothing. One that is stored stays."""
    if _NO_TOPIC.search(policy.pattern):
        raise DefinitionError("pattern", f"{shown(policy.pattern)} matches no topic: {_NO_EXPRESSION}")
    return _NO_EXPRESSION if _EXPRESSION.search(policy.pattern) else ""


def apply_to_of(pattern: str) -> ApplyTo:
    """Return the kind of a pattern where `apply-to` is left out."""
    return ApplyTo.QUEUES if pattern.startswith(SHARE_PREFIX.decode()) else ApplyTo.TOPICS


def _read_ttl(key: str, value: object) -> float:
    return read_whole(key, value, 1, TTL_MAX) / MILLISECONDS


def _read_overflow(key: str, value: object) -> bool:
    return read_word(key, value, OVERFLOWS) == OVERFLOWS[1]


_LIMITS: Final[Readers] = {
    "max-length": ("max_length", lambda key, value: read_whole(key, value, 1, LENGTH_MAX)),
    "max-length-bytes": ("max_length_bytes", lambda key, value: read_whole(key, value, 1, LENGTH_BYTES_MAX)),
    "message-ttl": ("message_ttl", _read_ttl),
    "overflow": ("rejects", _read_overflow),
}


def _read_definition(value: object, apply_to: ApplyTo) -> PolicyDefinition:
    selectors: dict[str, object] = {item.value: None for item in Selector}
    is_queue = apply_to is ApplyTo.QUEUES
    found = read_mapping("definition", value, {**selectors, **_LIMITS} if is_queue else selectors)
    given = {key: inner for key, inner in found.items() if key in _LIMITS}
    limits = QueueLimits(**dict(read_fields("definition", given, _LIMITS)))
    named = [key for key in found if key in selectors]
    if is_queue and not named:
        return PolicyDefinition(None, "", limits)
    if len(named) != 1:
        what = "none" if not named else " and ".join(named)
        raise DefinitionError("definition", f"exactly one of {', '.join(selectors)} belongs here, not {what}")
    selector = Selector(named[0])
    key = f"definition.{selector.value}"
    if selector is Selector.UPSTREAM_PATTERN:
        text = read_text(key, found[selector.value])
        UpstreamPattern(text, key)
    else:
        text = check_name(key, found[selector.value])
    return PolicyDefinition(selector, text, limits)


_NO_TOPIC: Final = re.compile(r"^\^|\.\*|\\\.")
_EXPRESSION: Final = re.compile(r"\$$|\.[+?]|\\")
_NO_EXPRESSION: Final = "a pattern is a topic filter, not a regular expression; for example sensors/#"
_SHARED: Final = re.compile(rb"\$share/([^/]+)/(.+)", re.DOTALL)


def _split(pattern: bytes) -> tuple[bytes, bytes]:
    """(share name, topic filter) of a pattern. The share name may be `+`, which no client may subscribe to."""
    match = _SHARED.fullmatch(pattern)
    return (match[1], match[2]) if match else (b"", pattern)


def _check_pattern(pattern: str, apply_to: ApplyTo) -> None:
    group, topic_filter = _split(pattern.encode())
    if apply_to is ApplyTo.QUEUES:
        if not group:
            raise DefinitionError(
                "pattern", f"{shown(pattern)} is not $share/GROUP/FILTER, as apply-to queues needs it"
            )
        if group != b"+" and (b"+" in group or b"#" in group):
            raise DefinitionError("pattern", "GROUP of $share/GROUP/FILTER is a name, or + for every group")
    elif group or pattern == "$share":
        raise DefinitionError("pattern", f"{shown(pattern)} is a shared group; apply-to topics takes a topic filter")
    try:
        check_topic_filter(topic_filter)
    except MqttError as error:
        raise DefinitionError("pattern", f"{error.text}; for example sensors/#") from None
    if topic_filter.startswith(b"$"):
        raise DefinitionError("pattern", f"{shown(pattern)} has topics that begin with $, which are not federated")
