"""Warnings of a start: who can reach the node without showing who he is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.auth.settings import AuthSettings
from broker.config.addresses import parse_address
from broker.config.settings import ApiSettings, Settings
from broker.config.settings_listeners import ApiListener, ListenerSettings, TlsSettings
from broker.config.settings_mqtt import MqttSettings
from broker.server.exposure import api_warnings, exposure_warnings

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


TOKENS = "tokens.yml"


@pytest.mark.parametrize(
    ("address", "tls", "token_file", "is_named"),
    [
        (":8083", None, "", True),
        (":8083", TLS, "", True),
        (":8083", None, TOKENS, True),
        (":8083", TLS, TOKENS, False),
        ("127.0.0.1:8083", None, "", False),
        ("unix:///run/api.sock", None, "", False),
    ],
)
@pytest.mark.parametrize("kind", ["grpc", "http"])
def test_an_api_that_strangers_reach_draws_a_warning(
    kind: str, address: str, tls: TlsSettings | None, token_file: str, is_named: bool
) -> None:
    """Without tokens, and with tokens that everybody can read on the way."""
    listener = replace(ApiListener(parse_address(address)), tls=tls)
    addresses = {"grpc": (), "http": ()} | {kind: (listener,)}
    settings = Settings(api=ApiSettings(addresses["grpc"], addresses["http"], token_file))
    assert [key for key, _ in api_warnings(settings)] == ([f"api.{kind}[0].address"] if is_named else [])


@pytest.mark.parametrize(("rule", "has_decider", "keys"), [("off", False, 0), ("equal", False, 1), ("prefix", True, 0)])
def test_client_ids_of_users_whom_nobody_authenticates_draw_a_warning(rule: str, has_decider: bool, keys: int) -> None:
    listener = ListenerSettings(parse_address("127.0.0.1:1883"))
    settings = Settings(listeners=(listener,), mqtt=MqttSettings(client_id_by_user=rule))
    assert [key for key, _ in exposure_warnings(settings, has_decider)] == ["mqtt.client_id_by_user"] * keys
