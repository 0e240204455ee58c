"""IP addresses: 4 or 16 bytes in messages, text at the doors of a core."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = tuple[str, int]
"""(IP address as text, port)."""

_KNOWN_MAX: Final = 4096
"""Addresses whose answer is remembered; then all are forgotten."""
_MAPPED_PREFIX: Final = bytes(10) + b"\xff\xff"


def pack_ip(ip: str) -> bytes:
    """4 bytes for IPv4, 16 for IPv6. ValueError when `ip` is no IP address."""
    return ip_address(ip).packed


def ip_text(addr: bytes) -> str:
    """Text of 4 or 16 bytes; an IPv4 address in 16 bytes becomes IPv4. "" for any other length (wire-gossip 2)."""
    if len(addr) == 4:
        return f"{addr[0]}.{addr[1]}.{addr[2]}.{addr[3]}"
    if len(addr) == 16:
        if addr.startswith(_MAPPED_PREFIX):
            return f"{addr[12]}.{addr[13]}.{addr[14]}.{addr[15]}"
        return str(IPv6Address(addr))
    return ""


class Networks:
    """Networks in CIDR notation. Without any every address is in them."""

    def __init__(self, cidrs: Iterable[str] = ()) -> None:
        """Raises ValueError with what is wrong with a network."""
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(cidr) for cidr in cidrs]
        self._known: dict[str, bool] = {}

    def allow(self, ip: str) -> bool:
        """Return whether the address is in one of them. IPv4 in IPv6 counts as IPv4."""
        if not self._networks:
            return True
        known = self._known.get(ip)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[ip] = self._contain(ip)
        return known

    def _contain(self, ip: str) -> bool:
        try:
            address = ip_address(ip)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


EVERYWHERE: Final = Networks()
