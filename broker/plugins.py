"""Plugins: what `plugin_order` names. They are found as entry points of the group `gmqttd.plugins`.

The broker knows none of them by import; a plugin knows the server and attaches itself to its seams (broker/hooks.py, the
API). Order of the calls: prepare (all), listeners open, start (all); leave (all), stop (all, in reverse).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from broker.server.start_error import StartError

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

ENTRY_POINT_GROUP: Final = "gmqttd.plugins"


class Plugin:
    """Base of all plugins; each method may be left as it is."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def prepare(self) -> None:
        """Attach to the seams; no port is open yet. Raises StartError."""

    async def start(self) -> None:
        """Open what is the plugin's own. Raises StartError."""

    async def leave(self) -> None:
        """Say goodbye to others; listeners are closed already. Must keep to its part of the stop budget (5 s)."""

    async def stop(self) -> None:
        """Give everything back. Called also when start failed half-way."""

    def lost_messages(self) -> dict[str, int]:
        """Totals of messages that the plugin dropped, by reason: for the log."""
        return {}

    def refused_input(self) -> dict[str, int]:
        """Totals of what came in and was refused, by reason: for the log."""
        return {}


def load_plugin(name: str) -> type[Plugin] | None:
    """The plugin class of that name, None when no installed distribution has one."""
    for entry_point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        loaded: object = entry_point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Plugin)):
            raise StartError(f"plugin {name!r}: {entry_point.value} is no subclass of broker.plugins.Plugin")
        return loaded
    return None
