"""Rules between keys. Each gives the key to blame and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from broker.config.addresses import HOST_NAME, UNSPECIFIED_HOSTS, Address
from broker.config.installed import installed_plugins
from broker.config.rules_listeners import check_listeners
from broker.config.schema import keys_of
from broker.config.setting import AddressText, Section, Sections
from broker.config.settings import Settings


@runtime_checkable
class HasRules(Protocol):
    """A plugin's settings class with rules between its keys."""

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Yield every broken rule as (key below the plugin's, text)."""


@runtime_checkable
class Protects(Protocol):
    """A plugin's settings class with keys that say who may do what: a node whose file has them runs with the plugin."""

    def protecting_keys(self) -> Sequence[str]:
        """Return the keys below the plugin's whose values protect the node."""


def check_settings(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield every broken rule as (key, text)."""
    for prefix in ("", "link_"):
        inflight = getattr(settings.mqtt, f"{prefix}max_inflight")
        queued = getattr(settings.mqtt, f"{prefix}max_queued_messages")
        if queued < inflight:
            yield (
                f"mqtt.{prefix}max_inflight",
                f"{inflight} is more than mqtt.{prefix}max_queued_messages ({queued}), "
                "which counts the messages in flight too; lower this one or raise that one",
            )
    if settings.store_type == "sqlite" and not settings.data_dir:
        yield "persistence.type", 'sqlite needs a folder for its file; for example data_dir: "/var/lib/gmqttd"'
    for index, name in enumerate(settings.plugin_order):
        if name in settings.plugin_order[:index]:
            yield f"plugin_order[{index}]", f'"{name}" is already in the list; each plugin is loaded once'
    yield from check_listeners(settings)
    for index, api_listener in enumerate(settings.api.http):
        for name in api_listener.allowed_hosts:
            if not HOST_NAME.fullmatch(name):
                yield f"api.http[{index}].allowed_hosts", f'"{name}" is not a host name; for example gmqttd.example.com'
    for name in settings.plugin_order:
        section = getattr(settings.plugins, name, None)
        if name in installed_plugins() and isinstance(section, HasRules):
            for key, text in section.broken_rules():
                yield f"plugins.{name}.{key}", text
    taken: dict[str, Address] = {}
    for key, address in listening(settings):
        for other_key, other in taken.items():
            if _collide(address, other):
                yield key, f'"{address}" is already taken by {other_key} ("{other}"); choose another port'
                break
        taken[key] = address


def listening(settings: Any, prefix: str = "") -> Iterator[tuple[str, Address]]:
    """Yield every TCP address or socket file that the node opens, with its key."""
    for key in keys_of(type(settings)):
        value = key.of(settings)
        path = f"{prefix}{key.name}"
        kind = key.setting.kind
        if path == "plugins":
            for name in settings.plugin_order:
                if name in installed_plugins() and hasattr(value, name):
                    yield from listening(getattr(value, name), f"plugins.{name}.")
        elif isinstance(kind, Section) and value is not None:
            yield from listening(value, f"{path}.")
        elif isinstance(kind, Sections):
            for index, item in enumerate(value):
                yield from listening(item, f"{path}[{index}].")
        elif isinstance(kind, AddressText) and kind.listens:
            yield path, value


def on_every_interface(settings: Settings) -> list[str]:
    """Return the TCP addresses that the node opens on every interface, as texts with their keys."""
    return [
        f"{key} {address}"
        for key, address in listening(settings)
        if not address.is_unix and address.host in UNSPECIFIED_HOSTS
    ]


def _collide(one: Address, other: Address) -> bool:
    if one.scheme != other.scheme:
        return False
    if one.is_unix:
        return one.path == other.path
    if one.port != other.port or one.port == 0:
        return False
    if one.host and other.host and (":" in one.host) != (":" in other.host):
        return False  # IPv4 and IPv6 have ports of their own
    return one.host == other.host or one.host in UNSPECIFIED_HOSTS or other.host in UNSPECIFIED_HOSTS
