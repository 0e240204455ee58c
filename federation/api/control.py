"""The node as the Membership service sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from federation.serf.events import Member


class MembershipControl(ABC):
    """Each method may raise NotRunning."""

    @abstractmethod
    async def join(self, hosts: list[str]) -> None:
        """Join through the nodes at these gossip addresses (HOST:PORT). Raises JoinFailed when none of them answers."""

    @abstractmethod
    async def leave(self) -> None:
        """Leave gracefully, within a bounded time. The node goes on serving its own clients."""

    @abstractmethod
    def force_leave(self, name: str) -> None:
        """Turn a failed member into one that has left. An unknown name is ignored; ValueError for the node's own name."""

    @abstractmethod
    def members(self) -> list[Member]:
        """All members that the node knows, itself included."""
