"""Additions of another plugin to the federation of a node: services and connections between nodes, and what it does
when members change."""

# not a core: types of the loop
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from federation.trust import Caller


class Extension:
    """Base of all extensions: `FederationPlugin.extensions.append(…)` while plugins are prepared. Overriding is optional."""

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        """Handlers of gRPC by full name of the service and name of the method. On a node with TLS a call comes from a node
        with a certificate, and the field `node` of its request, where it has one, is a name of that certificate. On a node
        without TLS everybody who reaches fed_addr can call them, without a proof."""
        return {}

    def mqtt_protocol(self, ended: Callable[[], None], caller: Caller) -> asyncio.Protocol | None:
        """Return who takes a connection to the address of the event streams that begins as one of MQTT, and calls
        `ended` behind it; None: this extension does not. `caller` says what the other end has proved."""
        return None

    def members_changed(self) -> None:
        """Members came, left, failed, or have other tags; or this node left the federation, or is in it again."""

    async def before_leave(self) -> None:
        """Called when this node is about to leave: hand over to others what it does for all. Must not take longer than a
        second."""
