"""The IPv4 addresses of this machine, in the order in which other nodes are likely to reach them."""

# not a core: asks the system for addresses
from __future__ import annotations

import fcntl
import socket
import struct
from typing import Final

SIOCGIFFLAGS: Final = 0x8913
SIOCGIFADDR: Final = 0x8915
IFF_UP: Final = 0x1
IFF_LOOPBACK: Final = 0x8
ROUTES_FILE: Final = "/proc/net/route"


def local_ipv4_addresses() -> list[str]:
    """Return the addresses of interfaces that are up, without loopback; those with a default route first.

    Needs no network and no name resolution. Empty where the system does not tell (another system than Linux).
    """
    preferred = _interfaces_with_default_route()
    found: list[tuple[bool, str]] = []
    try:
        interfaces = socket.if_nameindex()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for _, name in interfaces:
                request = struct.pack("40s", name.encode()[:15])
                try:
                    flags = struct.unpack_from("H", fcntl.ioctl(probe, SIOCGIFFLAGS, request), 16)[0]
                    if not flags & IFF_UP or flags & IFF_LOOPBACK:
                        continue
                    answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
                except OSError:
                    continue  # the interface has no IPv4 address, or went away meanwhile
                found.append((name not in preferred, socket.inet_ntoa(answer[20:24])))
    except OSError:
        return []
    found.sort(key=lambda item: item[0])
    return [address for _, address in found]


def _interfaces_with_default_route() -> set[str]:
    try:
        with open(ROUTES_FILE, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except (OSError, UnicodeDecodeError):
        return set()
    return {row[0] for row in rows if len(row) > 7 and row[1] == "00000000" and row[7] == "00000000"}
