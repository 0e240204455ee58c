"""Rules of alerts: when a device is silent, and when a value is outside of its usual range. One event at each end of an
episode. No Spark here: states are tuples of columns, and the time comes in.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final, NamedTuple

BEGAN: Final = "began"
ENDED: Final = "ended"
# A timer that fires so much later than it was due tells that the pipeline was away, not the device.
AWAY_MS: Final = 60_000
# Beyond it a square is no number any more.
VALUE_MAX: Final = 1e150
# A longer name of a device, and one with more levels, is a digest in the alert's topic.
NAME_BYTES_MAX: Final = 1000
NAME_LEVELS_MAX: Final = 100
WILDCARDS: Final = str.maketrans({"%": "%25", "+": "%2B", "#": "%23"})


class Silence(NamedTuple):
    """heard_ms  when the pipeline saw the last message, its processing time in Unix ms
    last_ns    time of that message, Unix ns; `topic` is its topic
    episode    number of the last episode; `is_silent` while it lasts
    """

    heard_ms: int
    last_ns: int
    topic: str
    episode: int = 0
    is_silent: bool = False


def due_ms(state: Silence, silent_after_ms: int, forget_ms: int) -> int:
    """Return when to look at a device again: for its silence, and in an episode to forget it."""
    return state.heard_ms + (forget_ms if state.is_silent else silent_after_ms)


def hear(state: Silence | None, last_ns: int, topic: str, now_ms: int) -> tuple[Silence, bool]:
    """(the state after messages came, whether an episode ended)."""
    if state is None:
        return Silence(now_ms, last_ns, topic), False
    if last_ns < state.last_ns:
        last_ns, topic = state.last_ns, state.topic
    return Silence(now_ms, last_ns, topic, state.episode), state.is_silent


def look(state: Silence, now_ms: int, silent_after_ms: int, forget_ms: int) -> tuple[Silence | None, bool]:
    """(the state after a timer fired, whether an episode began). None: the device is forgotten."""
    late_ms = now_ms - due_ms(state, silent_after_ms, forget_ms)
    if late_ms < 0:
        return state, False
    if state.is_silent:
        return None, False
    if late_ms > max(AWAY_MS, silent_after_ms):
        return state._replace(heard_ms=now_ms), False
    return state._replace(episode=state.episode + 1, is_silent=True), True


class Usual(NamedTuple):
    """seen               values so far
    mean, variance      of the recent ones, exponentially weighted
    streak              values in a row that speak for a change: outside, or in an episode inside
    episode, is_outside  as in Silence
    """

    seen: int = 0
    mean: float = 0.0
    variance: float = 0.0
    streak: int = 0
    episode: int = 0
    is_outside: bool = False


class Limits(NamedTuple):
    """width       half of the range, in deviations
    least        half of the range is at least this
    learn_after  values before anything is unusual
    memory       values after which an old one counts for a third
    confirm      values in a row that begin and end an episode
    """

    width: float
    least: float
    learn_after: int
    memory: int
    confirm: int


def half_range(usual: Usual, limits: Limits) -> float:
    return max(limits.least, limits.width * math.sqrt(usual.variance))


def watch(usual: Usual, value: float, limits: Limits) -> tuple[Usual, str]:
    """(the state after a value, BEGAN, ENDED or ""). Values outside are learned in an episode only: a level that lasts
    becomes the usual one, a single spike changes nothing."""
    if not abs(value) < VALUE_MAX:
        return usual, ""
    is_unusual = usual.seen >= limits.learn_after and abs(value - usual.mean) > half_range(usual, limits)
    streak = usual.streak + 1 if is_unusual is not usual.is_outside else 0
    event = ""
    if streak >= limits.confirm:
        event = ENDED if usual.is_outside else BEGAN
        streak = 0
        usual = usual._replace(is_outside=not usual.is_outside, episode=usual.episode + (0 if usual.is_outside else 1))
    usual = usual._replace(streak=streak)
    if is_unusual and not usual.is_outside:
        return usual, event
    return learn(usual, value, limits.memory), event


def learn(usual: Usual, value: float, memory: int) -> Usual:
    weight = 1.0 / min(usual.seen + 1, memory)
    away = value - usual.mean
    return usual._replace(
        seen=usual.seen + 1,
        mean=usual.mean + weight * away,
        variance=(1.0 - weight) * (usual.variance + weight * away * away),
    )


def topic_part(name: str) -> str:
    """The name of a device or topic as the last part of an alert's topic name: wildcards and `%` are percent-encoded."""
    part = name.translate(WILDCARDS)
    if len(part.encode()) > NAME_BYTES_MAX or part.count("/") >= NAME_LEVELS_MAX:
        return hashlib.sha256(name.encode()).hexdigest()
    return part
