"""The calls that gossip makes to the layer above it (Serf). They come from inside the core and must not block."""

from __future__ import annotations

from collections.abc import Generator

from federation.gossip.members import NodeFacts


class GossipDelegate:
    """Ignores events and adds nothing to messages; Serf overrides every method."""

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        """A member is alive that was unknown, dead or left before. The local node's own return is reported too."""

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        """A member changed its meta."""

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        """A member is dead, or `gracefully` announced its own leave."""

    def node_conflict(self, existing: NodeFacts, other: NodeFacts, now: float) -> None:
        """Another node claims the name of a member from another address; gossip ignores the claim."""

    def ack_payload(self) -> bytes | None:
        """Return the payload of this node's acks; None for nothing."""
        return None

    def ping_completed(self, facts: NodeFacts, round_trip: float, payload: bytes | None) -> None:
        """A member acknowledged a direct ping of this node after `round_trip` seconds."""

    def user_message(self, message: bytes, now: float) -> None:
        """A user message arrived."""

    def local_state(self) -> bytes:
        """Serf's part of this node's push-pull."""
        return b""

    def merge_remote_state(self, state: bytes, now: float) -> Generator[None, float, None]:
        """Merge Serf's part of the other side's push-pull, after its members, in slices: it takes the time of each further one.
        May raise WireError."""
        yield from ()

    def take_broadcasts(self, overhead: int, budget: int, count_max: int) -> list[bytes]:
        """User messages for one packet: each costs its length and `overhead` bytes, all at most `budget` bytes."""
        return []

    def has_broadcasts(self) -> bool:
        """Return whether user messages wait to be broadcast."""
        return False

    def join_finished(self, join_id: int, index: int, error: str, now: float) -> None:
        """The push-pull with address number `index` of a join is over; `error` is "" when it succeeded."""

    def name_taken(self, ip: str, port: int, now: float) -> None:
        """Another living node at this address answered to this node's name during a join."""
