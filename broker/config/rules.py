"""Rules between keys. Each gives the key to blame and what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections import abc
from typing import Any, Final, Protocol, runtime_checkable

from broker.config.addresses import HOST_NAME, UNSPECIFIED_HOSTS, Address
from broker.config.installed import installed_plugins
from broker.config.schema import keys_of
from broker.config.setting import AddressText, Section, Sections, Sequence
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings, TlsSettings
from broker.workers.shares import FEDERATION, PORT_STEP, Place, worker_settings

PORT_MAX: Final = 65_535


@runtime_checkable
class HasRules(Protocol):
    """A plugin's settings class with rules between its keys."""

    def broken_rules(self) -> abc.Iterator[tuple[str, str]]:
        """Yield every broken rule as (key below the plugin's, text)."""


@runtime_checkable
class Protects(Protocol):
    """A plugin's settings class with keys that say who may do what: a node whose file has them runs with the plugin."""

    def protecting_keys(self) -> abc.Sequence[str]:
        """Return the keys below the plugin's whose values protect the node."""


@runtime_checkable
class ClosesAddresses(Protocol):
    """A settings class that may leave an address of its own closed."""

    def closed_keys(self) -> abc.Sequence[str]:
        """Return the keys of addresses that the node does not open."""


def check_settings(settings: Settings) -> abc.Iterator[tuple[str, str]]:
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
    yield from check_worker_ports(settings, int(settings.workers) if settings.workers.isdecimal() else 2)


def check_worker_ports(settings: Settings, count: int) -> abc.Iterator[tuple[str, str]]:
    """Yield, as (key, text), each address that workers cannot share, or that one cannot have in place of the node's one."""
    of_node = dict(listening(settings))
    taken = [(f"{key}, worker 0", address) for key, address in of_node.items()]
    told: set[str] = set()
    for index in range(1, count):
        place = Place(index, count, FEDERATION in settings.plugin_order, dict.fromkeys(range(count), 0), "")
        for key, address in listening(worker_settings(settings, place)):
            if key in told or key not in of_node or address.is_unix:
                continue
            if of_node[key].port == 0:
                told.add(key)
                text = f'"{of_node[key]}" is any free port, and workers need one that is known; name a port, or set workers: 1'
                yield key, text
            if address == of_node[key]:
                continue
            fault = ""
            if address.port > PORT_MAX:
                highest = PORT_MAX - PORT_STEP * (count - 1)
                fault = f"is above {PORT_MAX}; the ports of {count} workers begin at {highest} or below"
            for other_key, other in taken:
                if _collide(address, other):
                    fault = f'is taken by {other_key} ("{other}"); choose another port'
            if fault:
                told.add(key)
                yield key, f"worker {index} has port {address.port} ({PORT_STEP} more for each worker), which {fault}"
            taken.append((f"{key}, worker {index}", address))


def listening(settings: Any, prefix: str = "") -> abc.Iterator[tuple[str, Address]]:
    """Yield every TCP address or socket file that the node opens, with its key."""
    closed = settings.closed_keys() if isinstance(settings, ClosesAddresses) else ()
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
        elif isinstance(kind, AddressText) and kind.listens and value is not None and key.name not in closed:
            yield path, value
        elif isinstance(kind, Sequence) and isinstance(kind.of, AddressText) and kind.of.listens:
            for index, item in enumerate(value):
                yield f"{path}[{index}]", item


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


ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")
MODE: Final = re.compile(r"0?[0-7]{3}")


def check_listeners(settings: Settings) -> abc.Iterator[tuple[str, str]]:
    """Yield every broken rule of `listeners` and of the addresses of the API as (key, text)."""
    if not settings.listeners:
        yield "listeners", 'the list is empty, so no client could connect; for example [{address: ":1883"}]'
    for index, listener in enumerate(settings.listeners):
        key = f"listeners[{index}]"
        yield from _check_listener(key, listener)
        if listener.allow_anonymous is False and "auth" not in settings.plugin_order:
            yield f"{key}.allow_anonymous", "only the plugin auth asks clients for a name: add it to plugin_order"
    for key, api_listener in settings.api.listeners():
        yield from _check_tls(f"{key}.tls", api_listener.tls)
    for index, api_listener in enumerate(settings.api.grpc):
        key = f"api.grpc[{index}].tls"
        if api_listener.tls is not None and api_listener.tls.crl:
            yield f"{key}.crl", "gRPC reads no revocation lists; use api.http where they are needed"
        if api_listener.tls is not None and api_listener.tls.min_version != TlsSettings().min_version:
            yield f"{key}.min_version", "gRPC chooses the version itself, 1.2 or 1.3; use api.http where 1.3 is needed"


def _check_listener(key: str, listener: ListenerSettings) -> abc.Iterator[tuple[str, str]]:
    yield from _check_tls(f"{key}.tls", listener.tls)
    if listener.each_worker and listener.address.is_unix:
        yield f"{key}.each_worker", f"{listener.address} has no port; all workers take connections from its file"
    if listener.socket_mode:
        if not listener.address.is_unix:
            yield f"{key}.socket_mode", f"{listener.address} has no file; only a Unix socket has (unix:///PATH)"
        elif not MODE.fullmatch(listener.socket_mode):
            yield f"{key}.socket_mode", f'"{listener.socket_mode}" is not a mode such as 0660'
    if listener.websocket is not None:
        if not listener.websocket.path.startswith("/"):
            yield f"{key}.websocket.path", f'"{listener.websocket.path}" does not begin with "/"; for example /mqtt'
        for origin in listener.websocket.allowed_origins:
            if not ORIGIN.fullmatch(origin):
                yield (
                    f"{key}.websocket.allowed_origins",
                    f'"{origin}" is not an origin: SCHEME://HOST, with :PORT where it is not the usual one; '
                    "for example https://example.com",
                )
    if listener.proxy_protocol is not None:
        path = f"{key}.proxy_protocol"
        if listener.address.is_unix:
            yield path, f"{listener.address} has no client addresses; leave this section out"
        elif not listener.proxy_protocol.from_:
            yield path, "from is empty, so every connection would be refused; for example from: [10.0.0.0/8]"
        for text in listener.proxy_protocol.from_:
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                yield f"{path}.from", f"{error}; for example 10.0.0.0/8, or 192.0.2.7 for one address"


def _check_tls(key: str, tls: TlsSettings | None) -> abc.Iterator[tuple[str, str]]:
    if tls is not None:
        for below, text in tls.broken_rules():
            yield f"{key}{below}", text
