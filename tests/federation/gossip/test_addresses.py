"""Addresses as messages carry them."""

from __future__ import annotations

import re

import pytest

from federation.gossip.addresses import Networks, ip_text, pack_ip


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


@pytest.mark.parametrize(
    ("cidrs", "inside", "outside"),
    [
        ([], ["10.0.0.1", "::1", "anything"], []),
        (["10.1.0.0/16"], ["10.1.255.255", "::ffff:10.1.0.1"], ["10.2.0.0", "::1", "", "host"]),
        (
            ["10.0.0.1/32", "fe80::/10", "192.0.2.0/24"],
            ["10.0.0.1", "fe80::1%lo", "192.0.2.9"],
            ["10.0.0.2", "fd00::1"],
        ),
    ],
)
def test_networks(cidrs: list[str], inside: list[str], outside: list[str]) -> None:
    networks = Networks(cidrs)
    for _ in range(2):  # the second time it is remembered
        assert [ip for ip in inside if not networks.allow(ip)] == []
        assert [ip for ip in outside if networks.allow(ip)] == []


@pytest.mark.parametrize("cidr", ["10.0.0.1/16", "10.0.0.0/33", "host", "::1/129"])
def test_what_is_no_network(cidr: str) -> None:
    with pytest.raises(ValueError, match=re.escape(cidr)):
        Networks([cidr])


def test_answers_for_addresses_do_not_pile_up() -> None:
    networks = Networks(["10.0.0.0/8"])
    for number in range(70_000):
        networks.allow(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(networks._known) <= 4096
