"""Rules between the keys of one address. Each gives the key to blame and what is wrong."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Final

from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings, TlsSettings

ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")
MODE: Final = re.compile(r"0?[0-7]{3}")


def check_listeners(settings: Settings) -> Iterator[tuple[str, str]]:
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


def _check_listener(key: str, listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    yield from _check_tls(f"{key}.tls", listener.tls)
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


def _check_tls(key: str, tls: TlsSettings | None) -> Iterator[tuple[str, str]]:
    if tls is not None:
        for below, text in tls.broken_rules():
            yield f"{key}{below}", text
