"""Messages that a link has pushed and that another link brings back, where the way strips user properties: told by content.

Two messages with one topic and payload are the same here, which may be wrong. So this is off, unless both upstreams have
`content-window`. As many copies of a content are dropped as were pushed in the time of the window, and no more.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

CONTENTS_MAX: Final = 65_536
"""Pushed messages that a window remembers. Policy: the oldest one is forgotten, and its echo comes in. `evicted` counts."""

Push = tuple[float, float, int]  # when, until when it is remembered, the hash of its content


class ContentWindow:
    """What the links of a node have pushed. Topics are those at the upstreams."""

    def __init__(self, contents_max: int = CONTENTS_MAX) -> None:
        self.evicted = 0
        self._contents_max = contents_max
        self._pushes: deque[Push] = deque()  # those whose echo has come, too
        self._waiting: dict[int, deque[Push]] = {}  # by the hash: those whose echo has not come

    def __len__(self) -> int:
        return len(self._pushes)

    def pushed(self, topic: bytes, payload: bytes, seconds: float, now: float) -> None:
        """A link pushes this message. Its echo may come for `seconds`."""
        while self._pushes and self._pushes[0][1] <= now:
            self._forget_first()
        if len(self._pushes) >= self._contents_max:
            self.evicted += 1
            self._forget_first()
        content = hash((topic, payload))
        push = (now, now + seconds, content)
        self._pushes.append(push)
        waiting = self._waiting.get(content)
        if waiting is None:
            waiting = self._waiting[content] = deque()
        waiting.append(push)

    def is_echo(self, topic: bytes, payload: bytes, seconds: float, now: float) -> bool:
        """Whether this message was pushed in the last `seconds`. Each push has one echo."""
        content = hash((topic, payload))
        waiting = self._waiting.get(content)
        found = False
        while waiting and not found:
            at, until, _ = waiting.popleft()
            found = now < until and now < at + seconds
        if waiting is not None and not waiting:
            del self._waiting[content]
        return found

    def _forget_first(self) -> None:
        push = self._pushes.popleft()
        waiting = self._waiting.get(push[2])
        if waiting is not None and waiting[0] is push:
            waiting.popleft()
            if not waiting:
                del self._waiting[push[2]]


class ContentCheck:
    """The part of one link in a window. `seconds`: those of its upstream. `echoes` counts messages that came back."""

    def __init__(self, window: ContentWindow, seconds: float, is_out: bool) -> None:
        self.echoes = 0
        self._window = window
        self._seconds = seconds
        self._is_out = is_out

    def crosses(self, topic: bytes, payload: bytes, now: float) -> bool:
        """Whether a message crosses the link. `topic`: at the upstream."""
        if self._is_out:
            self._window.pushed(topic, payload, self._seconds, now)
            return True
        if self._window.is_echo(topic, payload, self._seconds, now):
            self.echoes += 1
            return False
        return True
