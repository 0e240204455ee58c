"""The keys of one address: where clients connect (`listeners[]`), or where the API is served (`api.grpc[]`, `api.http[]`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.config.addresses import Address
from broker.config.setting import (
    AddressText,
    Choice,
    Duration,
    Flag,
    Section,
    Sequence,
    Setting,
    Size,
    Text,
    Whole,
    described,
    extension,
    setting,
)
from broker.config.settings_mqtt import BYTES_MAX, COUNT_MAX

DEFAULT_MQTT_PORT: Final = 1883


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS 1.2 and 1.3 with the ciphers that OpenSSL prefers. SIGHUP reads the files again: new connections get the new
    certificates, open ones stay. Files that cannot be used leave the old ones in place, and are logged."""

    cacert: str = setting(
        "",
        "File with the certificates of the authorities that clients are checked against. Without `verify` a client "
        "without a certificate is let in, and the start warns of it; one with a wrong certificate is refused.",
        Text("/etc/gmqtt/ca.pem"),
    )
    cert: str = setting(
        "",
        "File with the server's certificate, and behind it those that lead to its authority.",
        Text("/etc/gmqtt/cert.pem"),
    )
    key: str = setting("", "File with the key of that certificate, without a password.", Text("/etc/gmqtt/key.pem"))
    verify: bool = setting(False, "Whether clients must show a certificate of `cacert`.", Flag())
    min_version: str = extension(
        "1.2",
        "Lowest version of TLS. Not for `api.grpc`, where gRPC chooses.",
        Choice(("1.2", "1.3")),
        "1.3 refuses older devices.",
    )
    crl: str = extension(
        "",
        "File with the revocation list of the authority in `cacert`; client certificates in it are refused. Not for "
        "`api.grpc`, where gRPC reads none.",
        Text("/etc/gmqtt/crl.pem"),
    )

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Yield every broken rule as (".KEY", or "" for the section itself; text)."""
        for name in ("cert", "key"):
            if not getattr(self, name):
                yield "", f"{name} is missing; TLS needs cert and key"
        if self.verify and not self.cacert:
            yield ".verify", "there is no authority to check certificates against; set cacert"
        if self.crl and not self.cacert:
            yield ".crl", "there is no authority whose certificates could be revoked; set cacert"


@dataclass(frozen=True, slots=True)
class WebsocketSettings:
    """MQTT over WebSocket, with the subprotocol `mqtt` or `mqttv3.1`."""

    path: str = setting(
        "/", "Path of the URL. One that ends in `/` takes every path that begins with it.", Text("/mqtt")
    )
    allowed_origins: tuple[str, ...] = extension(
        (),
        "Web pages that may connect, as browsers name them in Origin. Programs that send no Origin may connect always. "
        "Empty: every page may, also one of another site in the browser of somebody who reaches this address.",
        Sequence(Text("https://example.com")),
    )


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The PROXY protocol, versions 1 and 2: a proxy in front of the listener names the address of each client."""

    from_: tuple[str, ...] = extension(
        (),
        "Networks of the proxies. A connection from them has to begin with a PROXY header; one from elsewhere is closed.",
        Sequence(Text("10.0.0.0/8")),
    )


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """One address on which clients connect. The limits are those of this address; `mqtt.max_connections` counts the
    connections of all."""

    address: Address = field(
        metadata=described(
            Setting(
                "Address to listen on: `HOST:PORT`, or `unix:///PATH`. An empty host means every interface.",
                AddressText(":1883", DEFAULT_MQTT_PORT, unix_allowed=True, listens=True),
            )
        )
    )
    tls: TlsSettings | None = setting(None, "Encrypts the connections.", Section())
    websocket: WebsocketSettings | None = setting(None, "Speaks MQTT over WebSocket.", Section())
    proxy_protocol: ProxySettings | None = extension(
        None, "Takes the address of a client from the proxy in front.", Section()
    )
    socket_mode: str = extension(
        "",
        "Permissions of the file of a Unix socket, in octal. A client needs the permission to write.",
        Text("0660"),
        default_text="as the umask of the process says",
    )
    each_worker: bool = extension(
        False,
        "Whether each of several `workers` has a port of its own, 10 more for each, instead of one that all share. Links of "
        "other brokers need it: they come back to the worker that has their session.",
        Flag(),
    )
    allow_anonymous: bool | None = extension(
        None,
        "Whether clients may connect here without a user name or a certificate.",
        Flag(),
        default_text="as the plugin `auth` says",
    )
    handshake_timeout: float = extension(
        10.0,
        "Longest time from a new connection to the end of its PROXY header, TLS handshake and WebSocket handshake. Then it "
        "is closed. `mqtt.connect_timeout` begins afterwards.",
        Duration(0.001, "10s"),
        "Raising it lets clients that never connect keep file descriptors for longer; lowering it loses clients on slow lines.",
    )
    max_connections: int = extension(
        0,
        "Most connections of this listener at one time; the next one is closed at once, and counted. 0: no limit.",
        Whole(0, COUNT_MAX, 5000),
        "Lowering it keeps connections free for the other listeners.",
    )
    max_connections_per_address: int = extension(
        0,
        "Most connections of one client address, or of one /64 network of IPv6, at one time; the next one is closed, and "
        "counted. 0: no limit.",
        Whole(0, COUNT_MAX, 100),
        "Lowering it hits clients that share an address behind a NAT.",
    )
    max_connect_rate: int = extension(
        0,
        "Most new connections a second, with a burst of as many; more are closed at once, and counted. 0: no limit.",
        Whole(0, COUNT_MAX, 500),
        "Lowering it spares the CPU in a flood, and lets the clients of a restarted node come back more slowly.",
    )
    max_connect_rate_per_address: int = extension(
        0,
        "The same for each client address, or /64 network of IPv6. 0: no limit.",
        Whole(0, COUNT_MAX, 10),
        "Lowering it keeps one address from using up max_connect_rate.",
    )
    max_message_rate: int = extension(
        0,
        "Most PUBLISH packets a second of one connection, with a burst of as many. One that sends more is not read "
        "until it is within the rate; nothing is dropped. 0: no limit.",
        Whole(0, COUNT_MAX, 1000),
        "Lowering it delays the other packets of a client that publishes too fast, its PINGREQ too.",
    )
    max_byte_rate: int = extension(
        0, "The same for the bytes of all its packets. 0: no limit.", Size(0, BYTES_MAX, "1MiB")
    )

    @property
    def transport(self) -> str:
        """The word of ListenerFacts."""
        if self.websocket is not None:
            return "ws" if self.tls is None else "wss"
        if self.tls is not None:
            return "tls"
        return "unix" if self.address.is_unix else "tcp"


@dataclass(frozen=True, slots=True)
class ApiListener:
    """One address of the API."""

    address: Address = field(
        metadata=described(
            Setting(
                "Address to listen on: `tcp://HOST:PORT`, `HOST:PORT` or `unix:///PATH`. Whoever reaches it can publish, "
                "disconnect clients and change the membership: use a private address.",
                AddressText("tcp://127.0.0.1:8084", unix_allowed=True, listens=True),
            )
        )
    )
    map: Address | None = setting(
        None,
        "For `api.http` only: the gRPC address whose services this REST address offers.",
        AddressText("tcp://127.0.0.1:8084", unix_allowed=True),
        default_text="the services of this node",
    )
    tls: TlsSettings | None = setting(None, "Encrypts the connections.", Section())
    allowed_hosts: tuple[str, ...] = extension(
        (),
        "For `api.http` only: host names, without port, under which browsers and programs may call the API beside "
        "`localhost` and IP addresses. A listener on a loopback address refuses all others (DNS rebinding); any "
        "other listener does when this list is set.",
        Sequence(Text("gmqttd.example.com")),
    )
