"""The committed offsets that other nodes have when this one hears of them for the first time since its start.

The retained messages that a node has missed come to it behind all other ones, which takes long where there are many: until
then it would give a group an offset from before its absence. It asks the others for theirs, and begins with no group before
they have answered.
"""

# not a core: asks other members
from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.errors import MemberFault, MethodUnknown
from broker.hooks import Members
from broker.kafka.asked_partitions import in_turns
from broker.kafka.committed import OFFSETS, OFFSETS_MAX, decode_committed
from broker.kafka.retained_messages import RetainedMessages

METHOD: Final = "kafka.Offsets"
PAGE_BYTES: Final = 2**18  # of payloads in one answer, or one of any size
PAGE_OFFSETS: Final = 1_000  # in one answer: it is encoded and taken in one turn
ASK_SECONDS: Final = 10.0  # that one member is asked at most
RETRY_SECONDS: Final = 0.5
SAME_SECONDS: Final = 1.0  # nodes tell the rest of an offset's life in whole seconds
ALIVE: Final = "ALIVE"


class Heard(NamedTuple):
    payload: bytes
    expires_at: float  # monotonic seconds; the later commit has the later one


class HeardOffsets:
    """waiting  members that have not answered"""

    def __init__(self, members: Members, retained: RetainedMessages, now: Callable[[], float]) -> None:
        self.waiting = 0
        self._members = members
        self._retained = retained
        self._now = now
        self._heard: dict[bytes, Heard] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._topics: list[bytes] | None = None  # of the answers, in their order
        members.served[METHOD] = self._answer

    # --- asking ---

    def begin(self) -> None:
        """The node has started: ask each other one once it is heard of."""
        self._members.observers.append(self._members_changed)
        self._members_changed()

    def _members_changed(self) -> None:
        """All that live are asked: what names those with this plugin, their entries, may come late."""
        others = self._members.others()
        names = {other.name for other in others}
        self._asked = {name: task for name, task in self._asked.items() if name in names or not task.done()}
        for other in others:
            if other.status == ALIVE and other.name not in self._asked:
                self.waiting += 1
                task = self._asked[other.name] = asyncio.create_task(self._ask(other.name))
                task.add_done_callback(self._has_answered)

    def _has_answered(self, _task: asyncio.Task[None]) -> None:
        self.waiting -= 1

    def stop(self) -> None:
        """Ask no more."""
        if self._members_changed in self._members.observers:
            self._members.observers.remove(self._members_changed)
        for task in self._asked.values():
            task.cancel()

    async def _ask(self, node: str) -> None:
        """Hear all that the member has, unless it does not answer, or not to this."""
        until = self._now() + ASK_SECONDS
        after = ""
        while self._now() < until:
            try:
                answer = await self._members.call(node, METHOD, after.encode(), until - self._now())
                after = self._take(answer)
            except MethodUnknown:
                return
            except MemberFault:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                return
            if not after:
                return

    def _take(self, answer: bytes) -> str:
        """Returns the last topic of the answer, "" where there are no more. Raises ValueError, TypeError, AttributeError,
        OverflowError and RecursionError for what no node says."""
        last = ""
        for topic, payload, seconds in json.loads(answer):
            last = topic
            key = topic.encode()
            heard = Heard(payload.encode(), self._now() + float(seconds))
            known = self._heard.get(key)
            if (known is None and len(self._heard) < OFFSETS_MAX) or (known and known.expires_at < heard.expires_at):
                self._heard[key] = heard
        return last

    # --- answering ---

    async def _answer(self, request: bytes) -> bytes:
        """A list of (topic, payload, seconds that it is kept), behind the topic of the request; empty behind the last one."""
        if not request or self._topics is None:
            self._topics = sorted(
                [message.topic async for message in in_turns(self._retained.below(OFFSETS, OFFSETS_MAX))]
            )
        behind = self._topics[bisect_right(self._topics, request) :]
        found: list[tuple[str, str, int]] = []
        size = 0
        async for topic in in_turns(behind):
            message = self._retained.get(topic)
            if message is None or decode_committed(message.payload) is None:
                continue
            if len(found) >= PAGE_OFFSETS or (found and size + len(message.payload) > PAGE_BYTES):
                break
            size += len(message.payload)
            seconds = int(min(message.expires_at - self._now(), 2.0**31))
            found.append((message.topic.decode(), message.payload.decode(), seconds))
        return json.dumps(found).encode()

    # --- what was heard ---

    def later(self, topic: bytes, payload: bytes, expires_at: float) -> tuple[bytes, float]:
        """Return what was heard of the topic, where it was committed after this."""
        heard = self._heard.get(topic)
        if heard is None:
            return payload, expires_at
        if heard.expires_at <= expires_at + SAME_SECONDS:
            del self._heard[topic]
            return payload, expires_at
        return heard

    def forget(self, topic: bytes) -> None:
        """The offset is committed here."""
        self._heard.pop(topic, None)
