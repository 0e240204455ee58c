"""Addresses as messages carry them."""

from __future__ import annotations

import pytest

from federation.gossip.addresses import ip_text, pack_ip


@pytest.mark.parametrize("text", ["10.0.0.1", "255.255.255.255", "::1", "2001:db8::7"])
def test_an_address_comes_back(text: str) -> None:
    assert ip_text(pack_ip(text)) == text


@pytest.mark.parametrize(
    ("addr", "text"),
    [(bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "10.0.0.1"), (b"", ""), (bytes(5), ""), (bytes(16), "::")],
)
def test_other_forms(addr: bytes, text: str) -> None:
    assert ip_text(addr) == text


def test_a_host_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="localhost"):
        pack_ip("localhost")
