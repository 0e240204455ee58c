"""URIs of RabbitMQ's upstreams (`amqp://USER:PASSWORD@HOST:PORT/VHOST?KEY=VALUE`) as URIs of MQTT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from federation.definitions.imports.imported import ImportFault
from federation.definitions.uri import QUERY, TLS_QUERY

SCHEMES: Final = {"amqp": "mqtt", "amqps": "mqtts"}
AMQP_PORTS: Final = {"mqtt": 5672, "mqtts": 5671}
NO_MEANING: Final = {
    "channel_max": "MQTT has no channels",
    "fail_if_no_peer_cert": "it is an option of servers",
    "depth": "the whole chain is verified",
    "password": "a key file is read without a password; decrypt it",
}


class MqttUri(NamedTuple):
    """vhost     of the upstream; None: that of the federated exchange
    warnings  without secrets
    """

    uri: str
    vhost: str | None
    warnings: list[str]


def mqtt_uri(
    scheme: str,
    host: str,
    port: int | None,
    username: str | None,
    password: str | None,
    query: Iterable[tuple[str, str]],
) -> tuple[str, list[str]]:
    """(URI, warnings). A port of AMQP that is the default becomes the default of MQTT."""
    warnings = []
    if port == AMQP_PORTS[scheme]:
        port = None
    elif port is not None:
        warnings.append(f"port {port} is kept, but it speaks AMQP: set the MQTT port of the upstream in its uri")
    shown_host = f"[{host}]" if ":" in host else host
    text = f"{scheme}://{login_of(username, password)}{shown_host}" + (f":{port}" if port is not None else "")
    pairs = list(query)
    return text + (f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""), warnings


def login_of(username: str | None, password: str | None) -> str:
    """`USER:PASSWORD@` of a URI; empty without a user name."""
    if username is None:
        return ""
    return quote(username, safe="") + (f":{quote(password, safe='')}" if password is not None else "") + "@"


def from_amqp(text: object, place: str) -> MqttUri:
    """Translate a URI. Raises ImportFault, whose text has nothing of the URI behind its scheme."""
    if not isinstance(text, str):
        raise ImportFault(f"{place}: a uri is a text such as amqp://user:password@host:5672/vhost")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ImportFault(
            f"{place}: the uri cannot be read; expected is amqp://user:password@host:5672/vhost"
        ) from None
    if parts.scheme not in SCHEMES:
        raise ImportFault(f"{place}: the uri does not begin with amqp:// or amqps://")
    if not host:
        raise ImportFault(f"{place}: the uri has no host; expected is amqp://user:password@host:5672/vhost")
    scheme = SCHEMES[parts.scheme]
    kept: list[tuple[str, str]] = []
    warnings: list[str] = []
    for key, value in pairs:
        if key in TLS_QUERY and scheme == "mqtt":
            warnings.append(f"{key} is left out: an amqp:// URI has no TLS")
        elif key == "auth_mechanism":
            if value.lower() == "external":
                kept.append((key, "external"))
        elif key in QUERY:
            kept.append((key, value))
        else:
            warnings.append(f"{key} of the uri is left out: {NO_MEANING.get(key, 'unknown key')}")
    username = unquote(parts.username) if parts.username is not None else None
    password = unquote(parts.password) if parts.password is not None else None
    if ("auth_mechanism", "external") in kept:
        password = None
    uri, more = mqtt_uri(scheme, host, port, username, password, kept)
    return MqttUri(uri, unquote(parts.path[1:]) or None, warnings + more)
