"""The state of a broker that its node tells the other nodes."""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.message import Message
from federation.stream.frames import encode_digest
from federation.stream.full_state import LocalState
from federation.stream.retained_versions import Listed, RetainedVersions
from federation.stream.tree import FederationTree


class BrokerState(LocalState):
    """The broker behind the senders."""

    def __init__(self, broker: Broker, tree: FederationTree, versions: RetainedVersions) -> None:
        self._broker = broker
        self._tree = tree
        self._versions = versions

    def interest(self) -> list[tuple[bytes, bytes]]:
        return self._broker.local_interest()

    def interest_digest(self) -> bytes:
        return self._tree.local_digest.encode()

    def note(self, share_name: bytes, topic_filter: bytes) -> bytes:
        return self._tree.local_note(share_name, topic_filter)

    def retained_topics(self) -> list[bytes]:
        return self._versions.topics()

    def retained_message(self, topic: bytes, now: float) -> Message | None:
        return self._versions.message(topic, now)

    def retained_digest(self, now: float) -> bytes:
        return encode_digest(now + self._broker.wall_offset, self._versions.digests())

    def retained_stamps(self, part: int) -> list[Listed]:
        return self._versions.listed(part)

    def has_retained_room(self) -> bool:
        return not self._versions.is_full

    def outbox_has_room(self, now: float) -> None:
        self._broker.handle_timeout(now)
