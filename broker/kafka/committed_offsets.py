"""The committed offsets of consumer groups: retained messages `$kafka/offsets/GROUP/TOPIC/PARTITION`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from broker.errors import NotCommitted
from broker.kafka.asked_partitions import in_turns
from broker.kafka.committed import OFFSETS, OFFSETS_MAX, Committed, decode_committed
from broker.kafka.heard_offsets import HeardOffsets
from broker.kafka.retained_messages import RetainedMessages
from broker.server.committed import committed

if TYPE_CHECKING:
    from broker.server.host import Host

COMMIT_SECONDS: Final = 30 * 86_400.0  # that a committed offset is kept after its last commit, or its renewal
RENEWAL_SECONDS: Final = 86_400.0  # from a commit to its renewal while the group has members


class Kept(NamedTuple):
    """A committed offset that counts. expires_at: monotonic seconds."""

    group: str
    expires_at: float


class CommittedOffsets:
    """refused  commits beyond OFFSETS_MAX, or that the store did not take
    heard    what other nodes had when this one started
    """

    def __init__(
        self, server: Host, retained: RetainedMessages, heard: HeardOffsets, coordinates: Callable[[str], bool]
    ) -> None:
        """`coordinates`: whether this node coordinates a group."""
        self.refused = 0
        self.heard = heard
        self._server = server
        self._retained = retained
        self._coordinates = coordinates
        self._kept: dict[bytes, Kept] = {}  # by their topics, the oldest first

    def count_kept(self) -> None:
        """Count what the store has. Once, before any commit."""
        now = self._server.now()
        found = sorted(self._retained.below(OFFSETS, OFFSETS_MAX), key=lambda message: message.expires_at)
        for message in found:
            group = _group_of(message.topic)
            self._kept[message.topic] = Kept(group, min(message.expires_at, now + COMMIT_SECONDS))

    def _make_room(self, has_members: Callable[[str], bool]) -> bool:
        """Forget the oldest committed offset that may go, where OFFSETS_MAX are kept. False where none may go."""
        if len(self._kept) < OFFSETS_MAX:
            return True
        now = self._server.now()
        while topic := self._oldest(has_members, now):
            kept = self._kept.pop(topic)
            message = self._retained.get(topic)
            expires_at = 0.0 if message is None else min(message.expires_at, now + COMMIT_SECONDS)
            if expires_at > kept.expires_at:  # another node has coordinated the group meanwhile
                self._kept[topic] = Kept(kept.group, expires_at)
                continue
            if self._coordinates(kept.group):  # else it is another node's
                self._retained.put(topic, b"")
            return True
        return False

    def _oldest(self, has_members: Callable[[str], bool], now: float) -> bytes | None:
        """The topic of the oldest committed offset that may go, as far as this node knows."""
        return next(
            (topic for topic, kept in self._kept.items() if kept.expires_at <= now or not has_members(kept.group)), None
        )

    async def commit(
        self, group: str, offsets: dict[tuple[str, int], Committed], has_members: Callable[[str], bool]
    ) -> bool:
        """Keep the offsets of a group by (topic, partition), on disk where the node has a store. False when they are not
        kept. has_members: says which groups have members here."""
        async for (topic, partition), committed_offset in in_turns(offsets.items()):
            payload = json.dumps(committed_offset._asdict()).encode()
            if not self._keep(_offset_topic(group, topic, partition), group, payload, has_members):
                self.refused += 1
                return False
        try:
            await committed(self._server)
        except NotCommitted:
            self.refused += 1
            return False
        return True

    def _keep(self, key: bytes, group: str, payload: bytes, has_members: Callable[[str], bool]) -> bool:
        self._kept.pop(key, None)
        expires_at = self._server.now() + COMMIT_SECONDS
        if not (self._make_room(has_members) and self._retained.put(key, payload, expires_at)):
            return False
        self._kept[key] = Kept(group, expires_at)
        self.heard.forget(key)
        return True

    async def renew(self, has_members: Callable[[str], bool]) -> None:
        """Keep what groups with members here have committed, also at former coordinators: it ages from the group's end on. To
        be called more often than once in RENEWAL_SECONDS."""
        async for message in in_turns(self._retained.below(OFFSETS, OFFSETS_MAX)):
            group = _group_of(message.topic)
            if not has_members(group) or not self._coordinates(group):
                continue
            payload, expires_at = self.heard.later(message.topic, message.payload, message.expires_at)
            now = self._server.now()
            if now < expires_at <= now + COMMIT_SECONDS - RENEWAL_SECONDS and decode_committed(payload) is not None:
                self._keep(message.topic, group, payload, has_members)

    def committed(self, group: str, topic: str, partition: int) -> Committed | None:
        key = _offset_topic(group, topic, partition)
        message = self._retained.get(key)
        payload, expires_at = (b"", 0.0) if message is None else (message.payload, message.expires_at)
        payload, expires_at = self.heard.later(key, payload, expires_at)
        return decode_committed(payload) if expires_at > self._server.now() else None


def _group_of(topic: bytes) -> str:
    return unquote(topic.decode().removeprefix(OFFSETS).partition("/")[0])


def _offset_topic(group: str, topic: str, partition: int) -> bytes:
    return f"{OFFSETS}{quote(group, safe='')}/{topic}/{partition}".encode()
