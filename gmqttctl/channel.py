"""Connections to the gRPC API of a node, and why there is none."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

import grpc

from gmqttctl.connection import Connection
from gmqttctl.errors import OptionError

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # one block is given whatever its size
    ("grpc.max_send_message_length", -1),
    ("grpc.min_reconnect_backoff_ms", 2000),  # longest time to connect; a refusal is followed by the next try as below
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_ATTEMPT: Final = re.compile(r"last error: \w+: \S+: (?:Failed to connect to remote host: )?(.*)", re.DOTALL)
# What gRPC says, and what it means to somebody who has given an address.
_MEANINGS: Final = (
    ("errors resolving", "the host name is not known"),
    ("http1.x server", "that is no gRPC API, but one of HTTP; api.grpc of the node has the address"),
    ("Expected SETTINGS frame", "that is no gRPC API; api.grpc of the node has the address"),
    (
        "Socket closed",
        "that is no gRPC API (api.grpc of the node has the address), or it asks for TLS, "
        "or it has as many connections as it takes (256)",
    ),
    ("tcp handshaker shutdown", "the address is not reached"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not of a known authority, or for another host name"),
)


def away_reason(text: str) -> str:
    """Return why a node does not answer, from the details of gRPC."""
    for part, meaning in _MEANINGS:
        if part in text:
            return meaning
    attempt = _ATTEMPT.search(text)
    return attempt[1] if attempt else text


def open_channel(address: str, connection: Connection) -> grpc.Channel:
    """Raises OptionError for files of TLS that are not right."""
    if not connection.tls:
        return grpc.insecure_channel(address, CHANNEL_OPTIONS)
    return grpc.secure_channel(address, credentials(connection), CHANNEL_OPTIONS)


def credentials(connection: Connection) -> grpc.ChannelCredentials:
    """Raises OptionError."""
    contents: list[bytes | None] = []
    for name, file in (
        ("tlsCaFile", connection.ca_file),
        ("tlsKeyFile", connection.key_file),
        ("tlsCertFile", connection.cert_file),
    ):
        try:
            contents.append(Path(file).read_bytes() if file else None)
        except OSError as error:
            raise OptionError(name, file, f"cannot be read: {error.strerror or error}") from None
    # gRPC would only print that a file is wrong, and not connect.
    try:
        context = ssl.create_default_context(cafile=connection.ca_file or None)
    except ssl.SSLError as error:
        raise OptionError("tlsCaFile", connection.ca_file, f"has no certificate in PEM: {error}") from None
    if connection.cert_file:
        try:
            context.load_cert_chain(connection.cert_file, connection.key_file, password="")
        except ssl.SSLError as error:
            reason = (
                f'is no certificate in PEM with the key of tlsKeyFile "{connection.key_file}", not encrypted: {error}'
            )
            raise OptionError("tlsCertFile", connection.cert_file, reason) from None
    return grpc.ssl_channel_credentials(*contents)
