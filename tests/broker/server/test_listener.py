"""One listener: who is a proxy, which layers a connection gets, and what is told about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.config.addresses import parse_address
from broker.config.settings_listeners import ListenerSettings, ProxySettings, TlsSettings, WebsocketSettings
from broker.server.listener import Listener
from broker.server.tls_layer import TlsLayer
from broker.server.websocket_layer import WebSocketLayer
from certificates import Authority


def listener(**keys: Any) -> Listener:
    return Listener(ListenerSettings(parse_address("127.0.0.1:1883"), **keys), "listeners[0]", 0.0)


@pytest.mark.parametrize(
    ("host", "is_proxy"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("11.1.2.3", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("fe80::1%eth0", True),
    ],
)
def test_the_networks_of_proxies(host: str, is_proxy: bool) -> None:
    networks = ("10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "fe80::/10")
    assert listener(proxy_protocol=ProxySettings(networks)).is_proxy(host) == is_proxy


def test_the_layers_of_a_connection(tmp_path: Path) -> None:
    pair = Authority(tmp_path).pair("localhost")
    tls = TlsSettings(cert=pair.cert, key=pair.key)
    websocket = WebsocketSettings()
    cases: list[tuple[dict[str, Any], list[type], str, bool]] = [
        ({}, [], "tcp", False),
        ({"tls": tls}, [TlsLayer], "tls", True),
        ({"websocket": websocket}, [WebSocketLayer], "ws", True),
        ({"tls": tls, "websocket": websocket}, [TlsLayer, WebSocketLayer], "wss", True),
        ({"proxy_protocol": ProxySettings(("10.0.0.0/8",))}, [], "tcp", True),
    ]
    for keys, layers, transport, is_layered in cases:
        made = listener(**keys)
        assert [type(layer) for layer in made.make_layers(1000)] == layers
        assert made.facts.transport == transport
        assert made.is_layered == is_layered


def test_the_facts_for_the_cores() -> None:
    facts = listener(allow_anonymous=True, max_message_rate=5, max_byte_rate=7).facts
    assert (facts.name, facts.allow_anonymous) == ("127.0.0.1:1883", True)
    assert (facts.message_rate, facts.byte_rate) == (5, 7)
    assert listener().facts.allow_anonymous is None
    assert listener().admission is None
