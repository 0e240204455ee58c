"""The limits of a listener: how many connections at one time and a second, in all and from each address."""

from __future__ import annotations

import random

import pytest

from broker.admission import ADDRESSES_MAX, Admission, counted_address


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_the_address_that_counts(host: str, counted: str) -> None:
    assert counted_address(host) == counted


def test_connections_in_all() -> None:
    admission = Admission(2, 0, 0, 0, 0.0)
    assert [admission.open(0.0) for _ in range(2)] == ["", ""]
    assert admission.open(0.0) == "the listener has 2 connections, as many as its max_connections"
    admission.close("")
    assert admission.open(0.0) == ""


def test_connections_of_an_address() -> None:
    admission = Admission(0, 2, 0, 0, 0.0)
    for _ in range(4):
        assert admission.open(0.0) == ""
    assert [admission.add_address("a", 0.0) for _ in range(2)] == ["", ""]
    assert admission.add_address("a", 0.0) == ("the address has 2 connections, as many as max_connections_per_address")
    admission.close("")  # the one that was refused
    assert admission.add_address("b", 0.0) == ""
    assert admission.add_address("", 0.0) == "", "a Unix socket has no address"
    admission.close("a")
    assert admission.open(0.0) == ""
    assert admission.add_address("a", 0.0) == ""


def test_the_rate_of_connections() -> None:
    admission = Admission(0, 0, 3, 0, 0.0)
    answers = [admission.open(0.0) for _ in range(4)]
    assert answers == ["", "", "", "more than 3 connections a second, the listener's max_connect_rate"]
    assert admission.open(1.0) == ""


def test_the_rate_of_an_address_leaves_others_alone() -> None:
    admission = Admission(0, 0, 0, 2, 0.0)
    for _ in range(5):
        assert admission.open(0.0) == ""
    answers = [admission.add_address(address, 0.0) for address in ("a", "a", "a", "b")]
    assert answers == ["", "", "more than 2 connections a second of one address", ""]


def test_the_addresses_that_are_remembered_are_bounded() -> None:
    """The address that connected longest ago is forgotten first."""
    admission = Admission(0, 0, 0, 1, 0.0)
    for number in range(ADDRESSES_MAX):
        assert admission.open(0.0) == ""
        assert admission.add_address(str(number), 0.0) == ""
    assert admission.add_address("1", 0.0) != ""
    assert admission.open(0.0) == ""
    assert admission.add_address("new", 0.0) == ""
    assert admission.add_address("1", 0.0) != "", "it was seen after 0"
    assert admission.add_address("0", 0.0) == "", "forgotten"


@pytest.mark.parametrize("seed", range(5))
def test_random_connections_are_counted(seed: int) -> None:
    """Beside a list of the open connections."""
    rng = random.Random(seed)
    admission = Admission(20, 3, 0, 0, 0.0)
    connections: list[str] = []
    for _ in range(2_000):
        if connections and rng.random() < 0.5:
            admission.close(connections.pop(rng.randrange(len(connections))))
            continue
        refusal = admission.open(0.0)
        assert (refusal != "") == (len(connections) >= 20)
        if refusal:
            continue
        address = rng.choice("abcdefgh")
        if admission.add_address(address, 0.0):
            assert connections.count(address) == 3
            admission.close("")
        else:
            assert connections.count(address) < 3
            connections.append(address)
