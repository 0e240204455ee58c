"""The header by which a proxy names the client's address: PROXY protocol, versions 1 and 2, of the HAProxy project.

reader = ProxyHeaderReader()
rest = reader.receive_data(data)    # None until the header is whole
reader.address                      # (host, port) of the client; None for a connection of the proxy itself
"""

# a core
# compiled with mypyc
from __future__ import annotations

import ipaddress
from typing import Final

from broker.server.layers import LayerError

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"  # of version 2
FIXED_BYTES: Final = 16  # of version 2, before its addresses
ADDRESSES_BYTES_MAX: Final = 4096  # of version 2, with the extensions behind the addresses, which are skipped
LINE_BYTES_MAX: Final = 107  # of version 1, with its line end
WORDS: Final = 6
LOCAL: Final = 0x20  # version and command: a connection of the proxy itself, such as a health check
PROXY: Final = 0x21
ADDRESS_BYTES: Final = {0x1: 4, 0x2: 16}  # by family: IPv4, IPv6
PORT_MAX: Final = 65535


class ProxyHeaderReader:
    """Reads one header at the beginning of a connection."""

    def __init__(self) -> None:
        self.address: tuple[str, int] | None = None
        self._data = b""

    def receive_data(self, data: bytes) -> bytes | None:
        """The bytes behind the header; None while it is not whole. Raises LayerError for anything else."""
        self._data = data = self._data + data
        if data.startswith(SIGNATURE):
            return self._read_binary(data)
        if data.startswith(b"PROXY "):
            return self._read_line(data)
        if SIGNATURE.startswith(data) or b"PROXY ".startswith(data):
            return None
        raise LayerError("no PROXY header, which this address has to send first")

    def _read_line(self, data: bytes) -> bytes | None:
        line, end, rest = data.partition(b"\r\n")
        if len(line) > LINE_BYTES_MAX - 2 or (not end and len(data) >= LINE_BYTES_MAX):
            raise LayerError(f"PROXY header of version 1 with more than {LINE_BYTES_MAX} bytes")
        if not end:
            return None
        words = line.split(b" ")
        if words[1] == b"UNKNOWN":
            return rest
        version = {b"TCP4": 4, b"TCP6": 6}.get(words[1])
        if version is None or len(words) != WORDS:
            raise LayerError(f"PROXY header {line!a}, for example: PROXY TCP4 192.0.2.1 192.0.2.2 40000 1883")
        hosts = [_read_host(word, version) for word in words[2:4]]
        ports = [_read_port(word) for word in words[4:]]
        self.address = (hosts[0], ports[0])
        return rest

    def _read_binary(self, data: bytes) -> bytes | None:
        if len(data) < FIXED_BYTES:
            return None
        command = data[12]
        family = data[13] >> 4
        size = int.from_bytes(data[14:FIXED_BYTES], "big")
        if command not in (LOCAL, PROXY):
            raise LayerError(f"PROXY header with version and command 0x{command:02x}, may be 0x20 or 0x21")
        if size > ADDRESSES_BYTES_MAX:
            raise LayerError(f"PROXY header of version 2 with {size} bytes, at most {ADDRESSES_BYTES_MAX} are read")
        if len(data) < FIXED_BYTES + size:
            return None
        length = ADDRESS_BYTES.get(family)
        if command == PROXY and length is not None:
            if size < 2 * length + 4:
                raise LayerError(f"PROXY header of version 2 with {size} bytes, its addresses have {2 * length + 4}")
            body = data[FIXED_BYTES:]
            host = ipaddress.ip_address(body[:length])
            self.address = (str(host), int.from_bytes(body[2 * length : 2 * length + 2], "big"))
        return data[FIXED_BYTES + size :]


def _read_host(word: bytes, version: int) -> str:
    try:
        host = ipaddress.ip_address(word.decode("ascii"))
    except (ValueError, UnicodeDecodeError):
        host = None
    if host is None or host.version != version:
        raise LayerError(f"PROXY header with {word!a}, which is no address of IPv{version}")
    return str(host)


def _read_port(word: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) <= PORT_MAX):
        raise LayerError(f"PROXY header with the port {word!a}")
    return int(word)
