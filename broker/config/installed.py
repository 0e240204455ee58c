"""The installed plugins, by the names that `plugin_order` uses, and their settings.

A distribution names the class of a plugin as an entry point of the group `gmqttd.plugins`. A plugin with keys of its own
names their class under the same name in the group `gmqttd.plugin_settings`: a frozen dataclass whose fields `setting` or
`extension` makes (broker/config/setting.py), in a module that loads quickly, because reading a file loads it and does not
load the plugin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, cast

from broker.config.schema import keys_of, walk
from broker.config.setting import Section, Setting, described

if TYPE_CHECKING:
    from broker.broker import Broker

PLUGINS_GROUP: Final = "gmqttd.plugins"
SETTINGS_GROUP: Final = "gmqttd.plugin_settings"
BRIDGING_GROUP: Final = "gmqttd.bridging"


class PluginFault(Exception):
    """An installed plugin cannot be used; the text names it and its entry point."""


@cache  # distributions that are installed while the process runs are for the next one
def installed_plugins() -> dict[str, EntryPoint]:
    """Return the entry points of the plugins' classes, sorted by name."""
    return _by_name(PLUGINS_GROUP)


def install_bridging(broker: Broker) -> None:
    """Give a broker its `Context.bridging`, where one is installed. Raises PluginFault."""
    for entry_point in _by_name(BRIDGING_GROUP).values():
        cast("Callable[[Broker], object]", load(entry_point))(broker)


def plugins_class() -> type[Any]:
    """Return the section `plugins`: a key for each plugin that has keys, with its settings as their defaults."""
    return _sections()[0]


def plugin_fault(name: str) -> str:
    """Return why the settings of an installed plugin cannot be used; empty when they can, or when it has none."""
    return _sections()[1].get(name, "")


@cache
def _sections() -> tuple[type[Any], dict[str, str]]:
    """Return the class of the section, and the faults of settings by the plugin's name."""
    sections: dict[str, tuple[type[Any], Setting]] = {}
    faults: dict[str, str] = {}
    for name, entry_point in _by_name(SETTINGS_GROUP).items():
        try:
            found = _settings_class(entry_point)
        except PluginFault as fault:
            faults[name] = str(fault)
        else:
            sections[name] = found, Setting(_first_sentence(found), Section())
    fields = [
        (name, found, dataclasses.field(default_factory=found, metadata=described(setting)))
        for name, (found, setting) in sorted(sections.items())
    ]
    made = dataclasses.make_dataclass("PluginsSettings", fields, frozen=True)
    made.__doc__ = "Keys of the plugins. They take effect where `plugin_order` names the plugin."
    return made, faults


def _by_name(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group. Of two distributions with one name `load` and `_settings_class` use neither."""
    return {entry_point.name: entry_point for entry_point in sorted(entry_points(group=group))}


def load(entry_point: EntryPoint) -> object:
    """Return the object that an entry point names. Raises PluginFault when that cannot be imported, or is not the only one of
    its name."""
    what = f"{entry_point.group}: {entry_point.name} = {entry_point.value}"
    found = entry_points(group=entry_point.group, name=entry_point.name)
    if len(found) > 1:
        owners = " and ".join(sorted({item.dist.name if item.dist else item.value for item in found}))
        raise PluginFault(f"{what} is declared by {owners}; uninstall all but one")
    try:
        return entry_point.load()
    except Exception as error:  # code of somebody else runs here
        raise PluginFault(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error


def _settings_class(entry_point: EntryPoint) -> type[Any]:
    """Return the dataclass of a plugin's settings, once it is known that it can be read, printed and documented."""
    what = f"{entry_point.group}: {entry_point.name} = {entry_point.value}"
    if not entry_point.name.isidentifier():
        raise PluginFault(f"{what}: the name of a plugin with keys has letters, digits and _ only")
    found = load(entry_point)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found) and found.__hash__ is not None):
        raise PluginFault(f"{what} is not a frozen dataclass")
    try:
        required = [key.name for key in keys_of(found) if key.is_required]
        list(walk(found))
        if required:
            raise PluginFault(f"{what}: {found.__name__}.{required[0]} is required; each key of a plugin has a default")
        found()
    except (TypeError, NameError) as error:
        raise PluginFault(f"{what}: {error}") from error
    return found


def _first_sentence(settings_class: type[Any]) -> str:
    return " ".join((settings_class.__doc__ or "").split()).partition(". ")[0].rstrip(".") + "."
