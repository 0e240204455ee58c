"""The receivers of a node by the name of the other node: where a Hello finds its own."""

from __future__ import annotations

from federation.stream.receiver import PeerReceiver


class NotAMember(Exception):
    """Hello from a name that is not in the federation (yet)."""


class Receivers:
    """by_name   changed by the node, as others join and leave"""

    def __init__(self) -> None:
        self.by_name: dict[str, PeerReceiver] = {}

    def get(self, name: str) -> PeerReceiver:
        """Raises NotAMember."""
        receiver = self.by_name.get(name)
        if receiver is None:
            raise NotAMember(f"{name} has not yet joined")
        return receiver
