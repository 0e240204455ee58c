"""What the layer above gossip (Serf) is told and asked. Calls come from inside the core, at once, and must not block."""

from __future__ import annotations

from federation.gossip.members import NodeFacts


class GossipDelegate:
    """Does nothing and has nothing to say; Serf overrides all of it."""

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        """A member is alive that was unknown, dead or left before. The local node too."""

    def node_updated(self, facts: NodeFacts, now: float) -> None:
        """An alive member changed its meta."""

    def node_left(self, facts: NodeFacts, gracefully: bool, now: float) -> None:
        """A member is dead, or said itself that it goes."""

    def node_conflict(self, existing: NodeFacts, other: NodeFacts, now: float) -> None:
        """Somebody claims the name of a member from another address; the claim is ignored."""

    def user_message(self, message: bytes, now: float) -> None:
        """A user message arrived."""

    def local_state(self, join: bool) -> bytes:
        """The layer's part of our push-pull."""
        return b""

    def merge_remote_state(self, state: bytes, join: bool, now: float) -> None:
        """The layer's part of the other side's push-pull, after its nodes were merged. May raise WireError."""

    def take_broadcasts(self, overhead: int, budget: int, count_max: int) -> list[bytes]:
        """User messages that ride on a packet: each costs its length and `overhead`."""
        return []

    def has_broadcasts(self) -> bool:
        """Whether `take_broadcasts` would give anything to a packet with room."""
        return False

    def join_finished(self, join_id: int, index: int, error: str, now: float) -> None:
        """Address number `index` of a join was exchanged with, or `error` says why not."""

    def name_taken(self, ip: str, port: int, now: float) -> None:
        """Another living node answered to our name at this address while we tried to join."""
