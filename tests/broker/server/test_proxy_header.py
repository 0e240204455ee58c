"""PROXY headers of both versions, whole and in pieces, and what is no header."""

from __future__ import annotations

import ipaddress
import socket
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.server.layers import LayerError
from broker.server.proxy_header import ADDRESSES_BYTES_MAX, LINE_BYTES_MAX, SIGNATURE, ProxyHeaderReader

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
PORTS = st.integers(0, 65535)
SAME_FAMILY = st.one_of(st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)), st.tuples(*[st.ip_addresses(v=6)] * 2))


def line(source: Address, destination: Address, source_port: int, destination_port: int) -> bytes:
    return f"PROXY TCP{source.version} {source} {destination} {source_port} {destination_port}\r\n".encode()


def binary(
    source: Address, destination: Address, source_port: int, destination_port: int, command: int, extensions: bytes
) -> bytes:
    family = {4: 0x11, 6: 0x21}[source.version]
    body = source.packed + destination.packed + struct.pack("!HH", source_port, destination_port) + extensions
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack("!H", len(body)) + body


def read(chunks: list[bytes]) -> tuple[bytes, tuple[str, int] | None]:
    """(bytes behind the header, address) of a header that ends in the last chunk with bytes of it."""
    reader = ProxyHeaderReader()
    rest = None
    for index, chunk in enumerate(chunks):
        rest = reader.receive_data(chunk)
        if rest is not None:
            return rest + b"".join(chunks[index + 1 :]), reader.address
    raise AssertionError("the header is not whole")


@given(
    addresses=SAME_FAMILY,
    source_port=PORTS,
    destination_port=PORTS,
    form=st.sampled_from(["line", "binary", "local"]),
    extensions=st.binary(max_size=300),
    behind=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 600), max_size=5),
)
def test_a_header_in_any_pieces(
    addresses: tuple[Address, Address],
    source_port: int,
    destination_port: int,
    form: str,
    extensions: bytes,
    behind: bytes,
    cuts: list[int],
) -> None:
    source, destination = addresses
    if form == "line":
        data = line(source, destination, source_port, destination_port)
    else:
        command = 1 if form == "binary" else 0
        data = binary(source, destination, source_port, destination_port, command, extensions)
    whole = data + behind
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[start:end] for start, end in pairwise(edges)]
    rest, address = read(chunks)
    assert rest == behind
    assert address == (None if form == "local" else (str(source), source_port))


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
        SIGNATURE + b"\x21\x00\x00\x00",  # UNSPEC
        SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216),  # AF_UNIX
    ],
)
def test_a_connection_without_an_address(data: bytes) -> None:
    for cut in range(len(data)):
        assert read([data[:cut], data[cut:] + b"rest"]) == (b"rest", None)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x10\x0c\x00\x04MQTT", "no PROXY header"),
        (b"GET / HTTP/1.1\r\n", "no PROXY header"),
        (b"\x16\x03\x01", "no PROXY header"),
        (b"PROXX", "no PROXY header"),
        (b"\r\n\r\n\x00\r\nQUIX", "no PROXY header"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "for example: PROXY TCP4"),
        (b"PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", "for example: PROXY TCP4"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.256 1 2\r\n", "no address of IPv4"),
        (b"PROXY TCP4 ::1 192.0.2.1 1 2\r\n", "no address of IPv4"),
        (b"PROXY TCP6 192.0.2.1 ::1 1 2\r\n", "no address of IPv6"),
        (b"PROXY TCP4 \xff 192.0.2.1 1 2\r\n", "no address of IPv4"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", "the port"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 -2\r\n", "the port"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 000002\r\n", "the port"),
        (b"PROXY " + b"x" * LINE_BYTES_MAX, f"more than {LINE_BYTES_MAX} bytes"),
        (b"PROXY " + b"x" * LINE_BYTES_MAX + b"\r\n", f"more than {LINE_BYTES_MAX} bytes"),
        (SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12), "version and command 0x11"),
        (SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12), "version and command 0x22"),
        (SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11), "11 bytes, its addresses have 12"),
        (SIGNATURE + b"\x21\x21\x00\x23" + bytes(35), "35 bytes, its addresses have 36"),
        (SIGNATURE + b"\x21\x11" + struct.pack("!H", ADDRESSES_BYTES_MAX + 1), "at most"),
    ],
)
def test_other_bytes_are_refused(data: bytes, fault: str) -> None:
    with pytest.raises(LayerError, match=fault):
        ProxyHeaderReader().receive_data(data)
    reader = ProxyHeaderReader()

    def in_single_bytes() -> None:
        for index in range(len(data)):
            reader.receive_data(data[index : index + 1])

    with pytest.raises(LayerError, match=fault):
        in_single_bytes()


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reader = ProxyHeaderReader()
    try:
        rest = reader.receive_data(data)
    except LayerError:
        return
    assert rest is None or data.endswith(rest)


def test_the_form_of_version_2_is_that_of_the_document() -> None:
    """An example in bytes, not made by the function above."""
    data = bytes.fromhex("0d0a0d0a000d0a515549540a 21 11 000c c0000201 c0000202 9c40 075b".replace(" ", ""))
    assert read([data]) == (b"", (socket.inet_ntoa(b"\xc0\x00\x02\x01"), 40000))
