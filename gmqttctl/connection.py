"""The addresses of the nodes, from the options of a command or of data source `mqtt`.

Names ignore case. A name or a value that is not right is an OptionError that names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gmqttctl.errors import CommandError, OptionError

TOKEN: Final = re.compile(r"[!-~]*")
CONNECTION_NAMES: Final = ("servers", "token", "tls", "tlsCaFile", "tlsCertFile", "tlsKeyFile")


@dataclass(frozen=True, slots=True)
class Connection:
    """servers  HOST:PORT of gRPC APIs; commands ask the first one that takes a connection
    token    sent as `authorization: Bearer …`; "" for none
    tls      whether connections use TLS; the files are PEM, "" for the system's authorities and for no client certificate
    """

    servers: tuple[str, ...]
    token: str = ""
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of each call over gRPC."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


class Given:
    """The options that were given, by name in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str:
        return self.values.get(name.lower(), "").strip()

    def is_true(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionError(name, text, "is not true or false")
        return text == "true" if text else default

    def words(self, name: str) -> tuple[str, ...]:
        """Texts between commas."""
        text = self.text(name)
        return tuple(word.strip() for word in text.split(",")) if text else ()

    def connection(self) -> Connection:
        servers = self.words("servers")
        if not servers:
            raise OptionError("servers", "", "is empty; give addresses of gRPC APIs such as 10.0.0.1:8084")
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
                raise OptionError("servers", server, "is not HOST:PORT of a gRPC API, such as 10.0.0.1:8084")
        tls = self.is_true("tls", False)
        files = [self.text(name) for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile")]
        for name, value in zip(("tlsCaFile", "tlsCertFile", "tlsKeyFile"), files, strict=True):
            if value and not tls:
                raise OptionError(name, value, "is given without tls=true")
        if bool(files[1]) != bool(files[2]):
            raise OptionError("tlsCertFile", files[1], "and tlsKeyFile are given both or not at all")
        token = self.text("token")
        if not TOKEN.fullmatch(token):
            # The value is a secret.
            raise OptionError("token", "…", "has a character that a header cannot carry; right are visible ASCII ones")
        return Connection(servers, token, tls, *files)


def read_connection(options: Mapping[str, str]) -> Connection:
    """Return where the nodes are. Raises OptionError."""
    return Given(options).connection()


def read_one_server(options: Mapping[str, str]) -> Connection:
    """Return where the node is, for what is to happen at one node: of several servers another one may answer. Raises
    CommandError."""
    found = read_connection(options)
    if len(found.servers) != 1:
        raise CommandError(f"--server names {len(found.servers)} nodes; give the address of the one that is meant")
    return found
