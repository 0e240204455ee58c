"""Warnings of the start about the reach of a node, for the operator to read before others try it."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.addresses import is_loopback
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings


def exposure_warnings(settings: Settings, has_decider: bool) -> Iterator[tuple[str, str]]:
    """(key, text) of each.

    has_decider  clients are authenticated by a plugin
    """
    if settings.mqtt.client_id_by_user != "off" and not has_decider:
        yield (
            "mqtt.client_id_by_user",
            "no plugin authenticates clients: each may give any user name, and has its client identifiers; write "
            "plugin_order: [auth], or leave the key out",
        )
    for index, listener in enumerate(settings.listeners):
        key = f"listeners[{index}]"
        tls = listener.tls
        if tls is not None and tls.cacert and not tls.verify:
            yield f"{key}.tls.verify", "clients without a certificate are let in; verify: true demands one of cacert"
        if not has_decider and not _demands_certificates(listener) and _is_reached_from_elsewhere(listener):
            yield (
                f"{key}.address",
                f"whoever reaches {listener.address} may publish and subscribe to everything: no plugin authenticates "
                "clients and no certificate is demanded; use a loopback or private address, plugin_order: [auth], or tls "
                "with verify",
            )
        elif _lets_anonymous_clients_in(settings, listener) and _is_reached_from_elsewhere(listener):
            yield (
                f"{key}.allow_anonymous",
                f"whoever reaches {listener.address} may connect without a user name; set allow_anonymous: false here, or "
                "use a loopback or private address",
            )


def api_warnings(settings: Settings) -> Iterator[tuple[str, str]]:
    """(key, text) of each address of the API that is reached from other machines without a login."""
    for key, listener in settings.api.listeners():
        address = listener.address
        if address.is_unix or is_loopback(address.host):
            continue
        if not settings.api.token_file:
            yield (
                f"{key}.address",
                f"whoever reaches {address} may publish, disconnect clients and change the membership; use a loopback "
                "address, or set api.token_file",
            )
        elif listener.tls is None:
            yield (
                f"{key}.address",
                f"tokens are sent to {address} without encryption; use a loopback address, or set tls",
            )


def _lets_anonymous_clients_in(settings: Settings, listener: ListenerSettings) -> bool:
    """As the plugin auth does. Of other plugins that authenticate clients nothing is known."""
    if "auth" not in settings.plugin_order:
        return False
    if listener.allow_anonymous is None:
        return bool(settings.plugins.auth.allow_anonymous)
    return listener.allow_anonymous


def _demands_certificates(listener: ListenerSettings) -> bool:
    return listener.tls is not None and listener.tls.verify


def _is_reached_from_elsewhere(listener: ListenerSettings) -> bool:
    return not listener.address.is_unix and not is_loopback(listener.address.host)
