"""What another plugin adds to the federation of a node: services between nodes, and what it does when members change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Extension:
    """Base of all extensions: `FederationPlugin.extensions.append(…)` while plugins are prepared. Overriding is optional."""

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        """Handlers of gRPC by full name of the service and name of the method. Every node that reaches fed_addr can call
        them, without a proof of who it is."""
        return {}

    def members_changed(self) -> None:
        """Members came, left, failed, or have other tags; or this node left the federation, or is in it again."""

    async def before_leave(self) -> None:
        """Called when this node is about to leave: hand over to others what it does for all. Must not take longer than a
        second."""
