"""Warnings of a start: who can reach the node without showing who he is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.auth.settings import AuthSettings
from broker.config.addresses import parse_address
from broker.config.settings import Settings
from broker.config.settings_listeners import ListenerSettings, TlsSettings
from broker.server.exposure import exposure_warnings

TLS = TlsSettings("", "cert", "key")
DEMANDED = TlsSettings("ca", "cert", "key", verify=True)
ASKED = TlsSettings("ca", "cert", "key")


@pytest.mark.parametrize(
    ("address", "tls", "has_decider", "keys"),
    [
        (":1883", None, False, ["listeners[0].address"]),
        ("0.0.0.0:1883", None, False, ["listeners[0].address"]),
        ("192.0.2.1:1883", TLS, False, ["listeners[0].address"]),
        ("[2001:db8::1]:1883", None, False, ["listeners[0].address"]),
        ("broker.example.com:1883", None, False, ["listeners[0].address"]),
        (":1883", None, True, []),
        (":8883", DEMANDED, False, []),
        (":8883", ASKED, False, ["listeners[0].tls.verify", "listeners[0].address"]),
        (":8883", ASKED, True, ["listeners[0].tls.verify"]),
        ("127.0.0.1:1883", None, False, []),
        ("127.1.2.3:1883", None, False, []),
        ("[::1]:1883", None, False, []),
        ("localhost:1883", None, False, []),
        ("unix:///run/mqtt", None, False, []),
    ],
)
def test_the_keys_of_the_warnings(address: str, tls: TlsSettings | None, has_decider: bool, keys: list[str]) -> None:
    settings = Settings(listeners=(ListenerSettings(parse_address(address), tls),))
    assert [key for key, _ in exposure_warnings(settings, has_decider)] == keys


@pytest.mark.parametrize(
    ("address", "of_listener", "setting", "is_named"),
    [
        (":1883", None, True, True),
        (":1883", True, False, True),
        (":1883", False, True, False),
        (":1883", None, False, False),
        ("127.0.0.1:1883", True, True, False),
    ],
)
def test_anonymous_clients_from_elsewhere_draw_a_warning(
    address: str, of_listener: bool | None, setting: bool, is_named: bool
) -> None:
    listener = replace(ListenerSettings(parse_address(address)), allow_anonymous=of_listener)
    plugins = replace(Settings().plugins, auth=AuthSettings(allow_anonymous=setting))
    settings = Settings(listeners=(listener,), plugin_order=("auth",), plugins=plugins)
    expected = ["listeners[0].allow_anonymous"] if is_named else []
    assert [key for key, _ in exposure_warnings(settings, True)] == expected
