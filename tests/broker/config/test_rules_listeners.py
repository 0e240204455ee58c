"""Rules of one listener, each with the key to blame; and what a file with every key of a listener becomes."""

from __future__ import annotations

import pytest

from broker.config.loader import load_bytes
from broker.config.printer import effective_yaml

WHOLE = """\
listeners:
  - address: ":8883"
    tls: {cacert: ca.pem, cert: cert.pem, key: key.pem, verify: true, min_version: "1.3", crl: crl.pem}
    websocket: {path: /mqtt, allowed_origins: ["https://example.com", "http://localhost:8080"]}
    proxy_protocol: {from: [10.0.0.0/8, "2001:db8::/32", 192.0.2.7]}
    handshake_timeout: 5s
    max_connections: 100
    max_connections_per_address: 10
    max_connect_rate: 50
    max_connect_rate_per_address: 5
    max_message_rate: 1000
    max_byte_rate: 1MiB
  - address: unix:///run/mqtt.sock
    socket_mode: 0660
plugin_order: []
"""


def faults(text: str) -> list[str]:
    return [str(fault) for fault in load_bytes(text.encode(), "x.yml").faults]


def test_every_key_is_read_and_printed() -> None:
    result = load_bytes(WHOLE.encode(), "x.yml")
    assert result.faults == []
    assert result.warnings == []
    settings = result.settings
    assert settings is not None
    first, second = settings.listeners
    assert first.proxy_protocol is not None
    assert first.proxy_protocol.from_ == ("10.0.0.0/8", "2001:db8::/32", "192.0.2.7")
    assert [listener.transport for listener in settings.listeners] == ["wss", "unix"]
    assert second.socket_mode == "0660"
    printed = effective_yaml(settings)
    assert load_bytes(printed.encode(), "x.yml").settings == settings


@pytest.mark.parametrize(
    ("listener", "fault"),
    [
        ("tls: {key: k}", "listeners[0].tls: cert is missing"),
        ("tls: {cert: c}", "listeners[0].tls: key is missing"),
        ("tls: {cert: c, key: k, verify: true}", "listeners[0].tls.verify: there is no authority"),
        ("tls: {cert: c, key: k, crl: r}", "listeners[0].tls.crl: there is no authority"),
        ('tls: {cert: c, key: k, min_version: "1.1"}', 'listeners[0].tls.min_version: "1.1" is not one of 1.2, 1.3'),
        ("websocket: {path: mqtt}", 'listeners[0].websocket.path: "mqtt" does not begin with "/"'),
        (
            "websocket: {allowed_origins: [example.com]}",
            'listeners[0].websocket.allowed_origins: "example.com" is not an origin',
        ),
        ("websocket: {allowed_origins: ['https://a/b']}", '"https://a/b" is not an origin'),
        ("proxy_protocol: {}", "listeners[0].proxy_protocol: from is empty"),
        ("proxy_protocol: {from: [10.0.0.1/8]}", "listeners[0].proxy_protocol.from: 10.0.0.1/8 has host bits set"),
        ("proxy_protocol: {from: [proxy]}", "listeners[0].proxy_protocol.from: 'proxy' does not appear to be"),
        ("socket_mode: 0600", "listeners[0].socket_mode: :1883 has no file"),
        ("allow_anonymous: false", "listeners[0].allow_anonymous: only the plugin auth asks"),
    ],
)
def test_rules_of_a_listener(listener: str, fault: str) -> None:
    (found,) = faults(f"listeners: [{{address: ':1883', {listener}}}]\n")
    assert fault in found
    assert found.startswith("x.yml:1: ")


@pytest.mark.parametrize(
    ("listener", "fault"),
    [
        ("socket_mode: 999", 'listeners[0].socket_mode: "999" is not a mode'),
        ("proxy_protocol: {from: [10.0.0.0/8]}", "listeners[0].proxy_protocol: unix:///run/m has no client addresses"),
    ],
)
def test_rules_of_a_unix_socket(listener: str, fault: str) -> None:
    (found,) = faults(f"listeners: [{{address: 'unix:///run/m', {listener}}}]\n")
    assert fault in found


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        ("http: [{address: ':1', tls: {cert: c}}]", "api.http[0].tls: key is missing"),
        ("grpc: [{address: ':1', tls: {cert: c}}]", "api.grpc[0].tls: key is missing"),
        (
            "grpc: [{address: ':1', tls: {cert: c, key: k, cacert: a, crl: r}}]",
            "api.grpc[0].tls.crl: gRPC reads no revocation lists",
        ),
        (
            'grpc: [{address: ":1", tls: {cert: c, key: k, min_version: "1.3"}}]',
            "api.grpc[0].tls.min_version: gRPC chooses the version itself",
        ),
    ],
)
def test_rules_of_the_api(api: str, fault: str) -> None:
    (found,) = faults(f"api: {{{api}}}\n")
    assert fault in found
