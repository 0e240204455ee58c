"""IP addresses: 4 or 16 bytes in messages, text at the doors of a core."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

Address = tuple[str, int]
"""(IP address as text, port)."""

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
