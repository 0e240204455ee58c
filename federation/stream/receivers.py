"""The receivers of a node by the name of the other node: where a Hello finds its own."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterable

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

    def know_interest(self, names: Iterable[str]) -> bool:
        """Return whether each of these nodes has told once what it subscribes to. Go brokers do not say when that is
        complete."""
        receivers = [self.by_name.get(name) for name in names]
        return all(receiver is None or not receiver.extended or receiver.has_interest for receiver in receivers)
