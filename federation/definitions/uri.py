"""The URI of an upstream: `mqtts://USER:PASSWORD@HOST:PORT?KEY=VALUE`, with the query keys of RabbitMQ's URIs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from broker.config.addresses import HOST_NAME, PORT_MAX
from federation.definitions.error import CONTROL, DefinitionError, read_word, shown

URI_BYTES_MAX: Final = 2048
DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
SECURE: Final = ("mqtts", "wss")
WEBSOCKET: Final = ("ws", "wss")
DEFAULT_PATH: Final = "/mqtt"
"""The path of a WebSocket URI without one: that of the broker's own listeners."""
TLS_QUERY: Final = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication")
QUERY: Final = (*TLS_QUERY, "auth_mechanism", "heartbeat", "connection_timeout")
AUTH_MECHANISMS: Final = ("plain", "external")
VERIFY: Final = ("verify_peer", "verify_none")
HIDDEN: Final = "***"
"""Stands for a user name and password that are not shown; no URI that is written may have it."""
HEARTBEAT_MAX: Final = 65535  # Keep Alive is a two byte integer [MQTT5 3.1.2.10]
CONNECTION_TIMEOUT_MS_MAX: Final = 600_000
EXAMPLE: Final = "for example mqtts://user:password@broker.example.com:8883"


@dataclass(frozen=True, slots=True)
class LinkUri:
    """One address of an upstream.

    path      of a WebSocket; "" for mqtt and mqtts
    username  None: no user name is sent; so with password
    query     the keys of QUERY that are set, each once
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = ()

    @property
    def is_secure(self) -> bool:
        return self.scheme in SECURE

    @property
    def is_websocket(self) -> bool:
        return self.scheme in WEBSOCKET

    @property
    def is_external(self) -> bool:
        """Return whether the client certificate is the login."""
        return self.option("auth_mechanism") == "external"

    @property
    def heartbeat(self) -> int | None:
        """Keep Alive in seconds; None when the URI leaves it to the link."""
        return int(text) if (text := self.option("heartbeat")) else None

    @property
    def connection_timeout(self) -> float | None:
        """Seconds until an attempt to connect is given up; None when the URI leaves it to the link."""
        return int(text) / 1000 if (text := self.option("connection_timeout")) else None

    def option(self, name: str) -> str:
        """The value of a query key; "" when it is not set."""
        return dict(self.query).get(name, "")

    def redacted(self) -> str:
        """The URI for logs and status: without user name, password and query. Tokens may be in each of the first two."""
        return f"{self.scheme}://{self.host_port}{self.path}"

    def shown(self) -> str:
        """The URI for those who may read definitions: HIDDEN instead of user name and password."""
        login = "" if self.username is None and self.password is None else f"{HIDDEN}@"
        query = f"?{urlencode(self.query, safe='/')}" if self.query else ""
        return f"{self.scheme}://{login}{self.host_port}{self.path}{query}"

    @property
    def host_port(self) -> str:
        """HOST:PORT, with brackets around an IPv6 host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_uri(text: object, key: str = "uri") -> LinkUri:
    """Read a URI. Raises DefinitionError, whose text has no part of the URI behind its scheme."""
    if not isinstance(text, str) or not text:
        raise DefinitionError(key, f"{shown(text) if text == '' else 'this value'} is not a URI; {EXAMPLE}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise DefinitionError(key, "the URI has a half of a surrogate pair, which is not UTF-8") from None
    if size > URI_BYTES_MAX:
        raise DefinitionError(key, f"a URI has at most {URI_BYTES_MAX} bytes")
    if CONTROL.search(text) or " " in text:
        raise DefinitionError(key, "a URI has no blanks and no control characters; write them as %20")
    scheme, separator, _ = text.partition("://")
    scheme = scheme.lower()
    if scheme in ("amqp", "amqps") and separator:
        near = "mqtts" if scheme == "amqps" else "mqtt"
        raise DefinitionError(key, f"links are MQTT: use {near}:// and the MQTT port of the upstream")
    if scheme not in DEFAULT_PORTS or not separator:
        known = ", ".join(f"{name}://" for name in DEFAULT_PORTS)
        raise DefinitionError(key, f"the URI does not begin with one of {known}; {EXAMPLE}")
    if "#" in text:
        raise DefinitionError(key, "a URI of an upstream has no fragment; a # in a password is written %23")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        hint = "a / or ? in a user name or password is written %2F or %3F"
        raise DefinitionError(key, f"host and port cannot be read; {EXAMPLE}; {hint}") from None
    if not host:
        raise DefinitionError(key, f"the host is missing; {EXAMPLE}")
    if not is_host(host):
        raise DefinitionError(key, f"the host is neither a name nor an IP address; {EXAMPLE}")
    if port is None:
        if parts.netloc.rpartition("@")[2].endswith(":"):
            raise DefinitionError(key, f"the port behind the colon is missing; {EXAMPLE}")
        port = DEFAULT_PORTS[scheme]
    if port == 0:
        raise DefinitionError(key, f"the port is 0, which no upstream listens on; it is one of 1..{PORT_MAX}")
    path = parts.path
    if scheme in WEBSOCKET:
        path = DEFAULT_PATH if path in ("", "/") else path
    elif path not in ("", "/"):
        text = f"{scheme}:// has no path; a virtual host of RabbitMQ is part of the user name there (VHOST:USER)"
        raise DefinitionError(key, text)
    else:
        path = ""
    uri = LinkUri(
        scheme, host, port, path, _part(key, parts.username), _part(key, parts.password), _query(key, parts.query)
    )
    if uri.username == HIDDEN:
        raise DefinitionError(key, f"{HIDDEN} stands for a user name and password that were not shown; write them")
    _check_query(key, uri)
    return uri


def is_host(text: str) -> bool:
    """Return whether a text is the name of a host or an IP address."""
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return len(text) <= 253 and HOST_NAME.fullmatch(text) is not None
    return True


def _part(key: str, text: str | None) -> str | None:
    """User name or password: None, or percent-decoded."""
    if text is None:
        return None
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise DefinitionError(key, "user name or password is not UTF-8 behind its %") from None
    if "\0" in decoded:
        raise DefinitionError(key, "user name or password has U+0000, which MQTT cannot carry [MQTT-1.5.4-2]")
    return decoded


def _query(key: str, text: str) -> tuple[tuple[str, str], ...]:
    if not text:
        return ()
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=32)
    except ValueError:
        raise DefinitionError(key, "the query behind the ? is not KEY=VALUE&KEY=VALUE") from None
    names = [name for name, _ in pairs]
    for name, value in pairs:
        if name not in QUERY:
            raise DefinitionError(f"{key}?{name[:40]}", f"unknown key; known are {', '.join(QUERY)}")
        if names.count(name) > 1:
            raise DefinitionError(f"{key}?{name}", "the key is set twice")
        if not value or CONTROL.search(value):
            raise DefinitionError(f"{key}?{name}", "the value is empty or has control characters")
    return tuple(pairs)


def _check_query(key: str, uri: LinkUri) -> None:
    """Values of the query, and what excludes each other."""
    if not uri.is_secure:
        for name in TLS_QUERY:
            if uri.option(name):
                raise DefinitionError(f"{key}?{name}", f"{uri.scheme}:// has no TLS; use {_secure(uri.scheme)}://")
    if verify := uri.option("verify"):
        read_word(f"{key}?verify", verify, VERIFY)
    _check_whole(key, uri, "heartbeat", 0, HEARTBEAT_MAX, "seconds")
    _check_whole(key, uri, "connection_timeout", 1, CONNECTION_TIMEOUT_MS_MAX, "milliseconds")
    if mechanism := uri.option("auth_mechanism"):
        read_word(f"{key}?auth_mechanism", mechanism, AUTH_MECHANISMS)
    if uri.is_external and not uri.is_secure:
        raise DefinitionError(f"{key}?auth_mechanism", f"external is a certificate, so use {_secure(uri.scheme)}://")
    if uri.is_external and uri.password is not None:
        raise DefinitionError(f"{key}?auth_mechanism", "external logs in by certificate, so the URI has no password")


def _check_whole(key: str, uri: LinkUri, name: str, minimum: int, maximum: int, unit: str) -> None:
    text = uri.option(name)
    if text and not (text.isascii() and text.isdigit() and len(text) <= 9 and minimum <= int(text) <= maximum):
        raise DefinitionError(f"{key}?{name}", f"{shown(text)} is not a whole number of {minimum}..{maximum} {unit}")


def _secure(scheme: str) -> str:
    return "wss" if scheme in WEBSOCKET else "mqtts"
