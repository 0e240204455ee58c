"""Addresses: every text form, what is refused, and what is advertised."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.addresses import Address, AddressError, advertised_address, host_of, parse_address, socket_name_text
from broker.config.interfaces import local_ipv4_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":1883", Address("tcp", "", 1883)),
        ("0.0.0.0:1883", Address("tcp", "0.0.0.0", 1883)),
        ("127.0.0.1", Address("tcp", "127.0.0.1", 8902)),
        ("broker-1.example.org:1", Address("tcp", "broker-1.example.org", 1)),
        ("my_service:65535", Address("tcp", "my_service", 65535)),
        ("tcp://127.0.0.1:8084", Address("tcp", "127.0.0.1", 8084)),
        ("tcp://:8084", Address("tcp", "", 8084)),
        ("[::1]:1883", Address("tcp", "::1", 1883)),
        ("[::]", Address("tcp", "::", 8902)),
        ("[fe80::1%eth0]:7", Address("tcp", "fe80::1%eth0", 7)),
        (":0", Address("tcp", "", 0)),
        ("unix:///run/gmqttd.sock", Address("unix", "", 0, "/run/gmqttd.sock")),
        ("unix://./gmqttd.sock", Address("unix", "", 0, "./gmqttd.sock")),
    ],
)
def test_parse_address(text: str, address: Address) -> None:
    assert parse_address(text, 8902) == address
    assert parse_address(str(address), 8902) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither host nor port"),
        (":", 'the port ""'),
        ("host:", 'the port ""'),
        ("8901", 'written ":8901"'),
        (":65536", "0..65535"),
        (":-1", "0..65535"),
        (":１８８３", "0..65535"),
        ("host:port", 'the port "port"'),
        ("a:b:c", "more than one colon"),
        ("::1", "[::1]:1883"),
        ("[::1", "]:PORT"),
        ("[::1]1883", "]:PORT"),
        ("[host]:1883", "no IPv6 address"),
        ("1.2.3.400:1883", "neither a host name nor an IP address"),
        ("bad host:1883", "neither a host name nor an IP address"),
        ("-x:1883", "neither a host name nor an IP address"),
        ("http://host:1883", "begins with http://"),
        ("unix://", "no socket file"),
    ],
)
def test_parse_address_refuses(text: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text, 8902)
    assert said in str(caught.value)
    assert f'"{text}"' in str(caught.value)


def test_a_name_of_srv_records_is_read_where_one_may_be() -> None:
    name = "_gossip._tcp.gmqttd.default.svc.cluster.local"
    address = parse_address(f"srv+{name}", 8902, srv_allowed=True)
    assert address == Address("srv", name, 0)
    assert parse_address(str(address), 8902, srv_allowed=True) == address
    with pytest.raises(AddressError, match="SRV records where only an address is possible"):
        parse_address(f"srv+{name}", 8902)
    for text in ("srv+", "srv+a b", "srv+_gossip._tcp.x:8902", "srv+" + "a." * 130):
        with pytest.raises(AddressError, match="for example srv"):
            parse_address(text, 8902, srv_allowed=True)


def test_an_address_without_port_needs_a_default_port() -> None:
    with pytest.raises(AddressError, match="no port"):
        parse_address("127.0.0.1")


def test_a_unix_socket_is_refused_where_none_can_be() -> None:
    with pytest.raises(AddressError, match="only HOST:PORT"):
        parse_address("unix:///run/x.sock", 1883, unix_allowed=False)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_an_address_error(text: str) -> None:
    try:
        address = parse_address(text, 1883)
    except AddressError:
        return
    assert parse_address(str(address), 1883) == address


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (("127.0.0.1", 1883), "127.0.0.1:1883"),
        (("::1", 1883, 0, 0), "[::1]:1883"),
        ("/run/gmqttd.sock", "/run/gmqttd.sock"),
        ("", ""),
        (None, ""),
    ],
)
def test_socket_name_text(name: object, text: str) -> None:
    assert socket_name_text(name) == text


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("local", "advertised"),
    [
        (["10.1.2.3"], "10.1.2.3"),
        (["8.8.8.8", "192.168.0.105", "10.0.0.1"], "192.168.0.105"),
        (["127.0.0.1", "169.254.9.9", "172.31.0.9"], "172.31.0.9"),
        (["100.64.0.7"], "100.64.0.7"),
    ],
)
def test_an_unspecified_host_becomes_the_first_private_address(host: str, local: list[str], advertised: str) -> None:
    assert advertised_address(Address("tcp", host, 8901), local) == (Address("tcp", advertised, 8901), None)


@pytest.mark.parametrize("local", [[], ["8.8.8.8"], ["127.0.0.1"], ["169.254.1.1"], ["fe80::1"], ["nonsense"]])
def test_the_loopback_is_advertised_with_a_warning_where_no_private_address_is(local: list[str]) -> None:
    address, warning = advertised_address(Address("tcp", "", 8901), local)
    assert address == Address("tcp", "127.0.0.1", 8901)
    assert warning is not None
    assert "127.0.0.1:8901" in warning


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.9", "node1.example.org", "::1"])
def test_a_host_that_is_named_is_advertised_as_it_is(host: str) -> None:
    assert advertised_address(Address("tcp", host, 8901), ["10.0.0.1"]) == (Address("tcp", host, 8901), None)


def test_local_addresses_are_ipv4_and_not_loopback() -> None:
    for text in local_ipv4_addresses():
        assert not ipaddress.IPv4Address(text).is_loopback


@pytest.mark.parametrize(
    ("remote_addr", "host"),
    [
        ("192.0.2.1:1234", "192.0.2.1"),
        ("[2001:db8::5]:1234", "2001:db8::5"),
        ("[fe80::1%eth0]:1", "fe80::1%eth0"),
        ("/run/gmqttd.sock", ""),
        ("/run/a:1", ""),
        ("", ""),
        (":1883", ""),
    ],
)
def test_the_host_of_a_client(remote_addr: str, host: str) -> None:
    assert host_of(remote_addr) == host
