"""The base class of plugins, and the search for a plugin that `plugin_order` names.

The broker imports no plugin. A plugin gets the running node (broker/server/host.py) and attaches itself to the seams:
broker/hooks.py and the API. Order of the calls: prepare (all), API and listeners open, tags (all), start (all); reload (all,
at each SIGHUP); leave (all), stop (all, in reverse).
"""

from __future__ import annotations

from broker.alarm import Alarm
from broker.config.installed import PluginFault, installed_plugins, load
from broker.metrics.metric import Metric
from broker.server.host import Host
from broker.server.start_error import StartError


class Plugin:
    """Base of all plugins. Overriding a method is optional. The plugin's keys are `server.settings.plugins.NAME`."""

    def __init__(self, server: Host) -> None:
        self.server = server

    async def prepare(self) -> None:
        """Attach to the seams; no port is open yet. Raises StartError."""

    def tags(self) -> dict[str, str]:
        """Return what other nodes are told about this one: short texts by name, in the tags of the federation. The
        addresses of the API are known."""
        return {}

    async def start(self) -> None:
        """Open the plugin's own ports and connections. Raises StartError."""

    async def reload(self) -> None:
        """The configuration was read again (SIGHUP): read the plugin's own files again. Changed keys of the plugin take effect
        after a restart. Raises StartError for a file that cannot be used; the plugin then keeps the former one."""

    async def leave(self) -> None:
        """Leave the federation. The listeners are closed already. The call is cancelled after LEAVE_SECONDS_MAX."""

    async def stop(self) -> None:
        """Close everything. Also called when `prepare` or `start` failed."""

    def lost_messages(self) -> dict[str, int]:
        """Totals of messages that the plugin dropped, by reason: for the log."""
        return {}

    def metrics(self) -> list[Metric]:
        """Metrics of the plugin. No metric may take time for each client or message."""
        return []

    def not_ready(self) -> list[str]:
        """Return why clients should be sent to other nodes, as sentences without a full stop; none when the plugin is
        ready."""
        return []

    async def alarms(self) -> list[Alarm]:
        """Tell what an operator has to look at first, apart from `not_ready`; none when all is well. It takes no time for each
        client or message, and waits for other nodes for some seconds at most."""
        return []

    def refused_input(self) -> dict[str, int]:
        """Totals of input that was refused, by reason: for the log."""
        return {}


def load_plugin(name: str) -> type[Plugin] | None:
    """The class of an installed plugin; None when no distribution has a plugin with this name. Raises StartError."""
    entry_point = installed_plugins().get(name)
    if entry_point is None:
        return None
    try:
        loaded = load(entry_point)
    except PluginFault as fault:
        raise StartError(f"plugin_order: {fault}") from fault
    if not (isinstance(loaded, type) and issubclass(loaded, Plugin)):
        raise StartError(f"plugin_order: {name} = {entry_point.value} is not a subclass of broker.plugins.Plugin")
    return loaded
