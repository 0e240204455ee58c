"""Addresses: the text forms of the configuration, and the host that a node advertises to others.

`parse_address` and `advertised_address` are pure; `local_ipv4_addresses` in `interfaces` asks the machine.
"""

# not compiled: values that are read at the start
from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

PORT_MAX: Final = 65535
HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
UNSPECIFIED_HOSTS: Final = ("", "0.0.0.0", "::")
SRV_PREFIX: Final = "srv+"
SRV_EXAMPLE: Final = "srv+_gossip._tcp.gmqttd.default.svc.cluster.local"
LOOPBACK_HOST: Final = "127.0.0.1"


class AddressError(ValueError):
    """The text is no address; the message says what is wrong with it and what would be right."""


@dataclass(frozen=True, slots=True)
class Address:
    """The node listens here, or connects to it. `tcp` uses host (empty: every interface) and port, `unix` uses path, `srv`
    uses host: the name of SRV records, which have the hosts and ports (RFC 2782)."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def is_unix(self) -> bool:
        return self.scheme == "unix"

    @property
    def host_port(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 host: the form that travels between nodes."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """Return the text that `parse_address` reads as this address. The scheme of TCP is left out."""
        if self.scheme == "srv":
            return SRV_PREFIX + self.host
        return f"unix://{self.path}" if self.is_unix else self.host_port


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach this host, a name or an IP address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def socket_name_text(name: object) -> str:
    """Return the name of a socket or of its peer as text: HOST:PORT, [V6]:PORT, or the path of a unix socket."""
    if isinstance(name, tuple) and len(name) >= 2:
        host = str(name[0])
        return f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"
    return str(name or "")


def host_of(remote_addr: str) -> str:
    """Return the host of a HOST:PORT or [V6]:PORT; "" for the path of a Unix socket."""
    return "" if remote_addr.startswith("/") else remote_addr.rpartition(":")[0].strip("[]")


def parse_address(
    text: str, default_port: int | None = None, *, unix_allowed: bool = True, srv_allowed: bool = False
) -> Address:
    """Read `:1883`, `HOST:1883`, `[::1]:1883`, `tcp://HOST:1883`, `unix:///PATH` or `srv+NAME`.

    A missing port takes `default_port`, where there is one. Port 0 (any free port) is allowed. Raises AddressError.
    """
    example = f"for example 127.0.0.1:{default_port}" if default_port else "for example 127.0.0.1:1883"
    if text.startswith(SRV_PREFIX):
        return _service(text, srv_allowed, example)
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "tcp", text
    if scheme == "unix":
        if not unix_allowed:
            raise AddressError(f'"{text}" is a unix socket where only HOST:PORT is possible; {example}')
        if not rest or "\0" in rest:
            raise AddressError(f'"{text}" names no socket file; for example unix:///run/gmqttd.sock')
        return Address("unix", "", 0, rest)
    if scheme != "tcp":
        schemes = "tcp:// or unix://" if unix_allowed else "tcp://"
        raise AddressError(f'"{text}" begins with {scheme}://, known is {schemes}; {example}')
    host, port_text = _split_host_port(text, rest, example)
    if port_text is None:
        if host.isascii() and host.isdigit():
            raise AddressError(
                f'"{text}" is a number without a colon in front; a port without a host is written ":{host}"'
            )
        if default_port is None:
            raise AddressError(f'"{text}" has no port; {example}')
        if not host:
            raise AddressError(f'"{text}" has neither host nor port; {example}')
        return Address("tcp", host, default_port)
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= PORT_MAX):
        raise AddressError(f'"{text}" has the port "{port_text}", which is not a number of 0..{PORT_MAX}; {example}')
    return Address("tcp", host, int(port_text))


def _service(text: str, is_allowed: bool, example: str) -> Address:
    name = text.removeprefix(SRV_PREFIX)
    if not is_allowed:
        raise AddressError(f'"{text}" names SRV records where only an address is possible; {example}')
    if len(name) > 253 or not HOST_NAME.fullmatch(name):
        raise AddressError(f'"{text}" has no name of SRV records after {SRV_PREFIX}; for example {SRV_EXAMPLE}')
    return Address("srv", name, 0)


def _split_host_port(text: str, rest: str, example: str) -> tuple[str, str | None]:
    if rest.startswith("["):
        inner, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise AddressError(f'"{text}" has no "]:PORT" after the IPv6 address; for example [::1]:1883')
        if not is_ip(inner, 6):
            raise AddressError(f'"{text}" has no IPv6 address within the brackets; for example [::1]:1883')
        return inner, tail[1:] if tail else None
    if rest.count(":") > 1:
        if is_ip(rest, 6):
            raise AddressError(f'"{text}" is an IPv6 address without brackets; for example [{rest}]:1883')
        raise AddressError(f'"{text}" has more than one colon; {example}')
    host, colon, port_text = rest.partition(":")
    looks_like_ip = host.replace(".", "").isdigit() and "." in host
    if host and (len(host) > 253 or not HOST_NAME.fullmatch(host) or (looks_like_ip and not is_ip(host, 4))):
        raise AddressError(f'"{text}" has the host "{host}", which is neither a host name nor an IP address; {example}')
    return host, port_text if colon else None


def is_ip(text: str, version: int = 0) -> bool:
    """Return whether this is an IP address, of the version where that is not 0."""
    try:
        return version in (0, ipaddress.ip_address(text.partition("%")[0]).version)
    except ValueError:
        return False


def advertised_address(address: Address, local_addresses: Iterable[str]) -> tuple[Address, str | None]:
    """Return the address to tell other nodes, and a warning or None.

    A host that names every interface (empty, 0.0.0.0, ::) becomes the first private IPv4 address of
    `local_addresses`; where there is none, the loopback address with a warning.
    """
    if address.is_unix or address.host not in UNSPECIFIED_HOSTS:
        return address, None
    for text in local_addresses:
        if is_ip(text, 4) and _is_private(ipaddress.IPv4Address(text)):
            return replace(address, host=text), None
    found = replace(address, host=LOOPBACK_HOST)
    return found, (
        f"this machine has no private IPv4 address, so {found.host_port} is advertised and only nodes on this machine "
        "can reach it; set the advertised address to what others can reach"
    )


CARRIER_NETWORK: Final = ipaddress.IPv4Network("100.64.0.0/10")


def _is_private(address: ipaddress.IPv4Address) -> bool:
    """Private by RFC 6890, or shared by RFC 6598: the only one of a machine behind a carrier's NAT or in an overlay."""
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return False
    return address.is_private or address in CARRIER_NETWORK
