"""Rules of trust between nodes: ways to members, names of certificates, reasons of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from federation.refusals import QUIET_SECONDS, REMEMBERED_MAX, Refusals
from federation.trust import (
    CERTIFICATE,
    HANDSHAKE,
    NAME,
    NO_WAY,
    PLAIN,
    Caller,
    Reach,
    dns_names,
    name_fault,
    reach_of,
    told,
)

PLAIN_TAG = {"fed_addr": "10.0.0.1:8901"}
TLS_TAG = {"fed_tls": "10.0.0.1:8903"}
BOTH = PLAIN_TAG | TLS_TAG


@pytest.mark.parametrize(
    ("tags", "has_tls", "requires_tls", "expected"),
    [
        ({}, False, False, NO_WAY),
        ({"role": "web"}, True, True, NO_WAY),
        (PLAIN_TAG, False, False, Reach("10.0.0.1:8901")),
        (PLAIN_TAG, True, False, Reach("10.0.0.1:8901")),
        (BOTH, False, False, Reach("10.0.0.1:8901", is_go_only=True)),
        (BOTH, True, False, Reach("10.0.0.1:8903", is_tls=True)),
        (BOTH, True, True, Reach("10.0.0.1:8903", is_tls=True)),
        (TLS_TAG, True, False, Reach("10.0.0.1:8903", is_tls=True)),
        ({"fed_tls": "[fe80::1]"}, True, False, Reach("[fe80::1]:8903", is_tls=True)),
        ({"fed_tls": "a:b:c"}, True, False, Reach(bad_address="a:b:c")),
        ({"fed_addr": "unix:///a", "fed_tls": "x:1"}, False, False, Reach(bad_address="unix:///a")),
    ],
)
def test_the_way_to_a_member(tags: dict[str, str], has_tls: bool, requires_tls: bool, expected: Reach) -> None:
    assert reach_of(tags, has_tls, requires_tls) == expected


def test_no_way_has_a_reason_where_the_member_tells_an_address() -> None:
    without, only = reach_of(PLAIN_TAG, True, True), reach_of(TLS_TAG, False, False)
    assert (without.addr, only.addr) == ("", "")
    assert "require_tls" in without.fault
    assert "plugins.federation.tls" in only.fault


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, ()),
        ({}, ()),
        ({"subject": ((("commonName", "node1"),),)}, ()),
        (
            {"subjectAltName": (("DNS", "node1"), ("IP Address", "10.0.0.1"), ("DNS", "n1.local"))},
            ("node1", "n1.local"),
        ),
    ],
)
def test_the_names_of_a_certificate(certificate: dict[str, Any] | None, names: tuple[str, ...]) -> None:
    assert dns_names(certificate) == names


@pytest.mark.parametrize(
    ("names", "name", "is_right"),
    [
        (("node1",), "node1", True),
        (("other", "node1"), "node1", True),
        (("Node1",), "node1", False),
        (("*.local",), "node1.local", False),
        (("node1.local",), "node1", False),
        ((), "node1", False),
        (("node1",), "node1/1", True),
        (("node1",), "node1/12", True),
        (("node1",), "node1/x", False),
        (("node1",), "node1/1/1", False),
        (("node1/1",), "node1", False),
        (("node1/1",), "node1/1", True),
        (("node1",), "node2/1", False),
        (("",), "/1", False),
    ],
)
def test_names_are_compared_letter_by_letter(names: tuple[str, ...], name: str, is_right: bool) -> None:
    assert (name_fault(names, name) == "") is is_right


def test_a_wrong_name_is_told_with_the_right_one_within_bounds() -> None:
    assert {"node3", "node2"} <= set(name_fault(("node3",), "node2").replace(";", "").split())
    assert len(name_fault(["x" * 5_000] * 50, "n" * 500)) < 1_000


def test_what_a_caller_has_proved() -> None:
    tls_members = {"n2": None}
    anybody, proved = Caller("a:1", None, tls_members), Caller("a:1", ("n2",), tls_members)
    assert (anybody.refusal, proved.refusal) == (PLAIN, NAME)
    assert anybody.fault("n3") == proved.fault("n2") == ""
    assert "fed_tls" in anybody.fault("n2")
    assert "n2" in proved.fault("n3")
    tls_members["n3"] = None
    assert anybody.fault("n3") != "", "the caller sees members that come later"


@pytest.mark.parametrize(
    ("reason", "word", "parts"),
    [
        ("TLS handshake: the node's certificate is refused: certificate has expired", CERTIFICATE, ["that node"]),
        (
            "TLS handshake: the node's certificate is refused: unable to get local issuer certificate",
            CERTIFICATE,
            ["cacert"],
        ),
        ("TLS handshake: peer did not return a certificate", CERTIFICATE, ["cert and key"]),
        ("TLS: tlsv1 alert unknown ca", CERTIFICATE, ["this node", "cacert"]),
        ("TLS: sslv3 alert certificate expired", CERTIFICATE, ["this node", "expired"]),
        ("TLS: ssl/tls alert certificate required", CERTIFICATE, ["this node"]),
        ("TLS handshake: tlsv1 alert protocol version", HANDSHAKE, ["protocol version"]),
        ("TLS handshake: wrong version number", HANDSHAKE, ["wrong version number"]),
        ("TLS handshake: the node's certificate is refused: certificate revoked", CERTIFICATE, ["revoked"]),
    ],
)
def test_a_fault_of_tls_is_told_with_what_would_be_right(reason: str, word: str, parts: list[str]) -> None:
    found, text = told(reason)
    assert found == word
    assert all(part in text for part in parts)


def test_refusals_are_counted_and_seldom_logged() -> None:
    refusals = Refusals()
    assert refusals.note(PLAIN, "a", "x", 1.0) == 0
    assert [refusals.note(PLAIN, "a", "x", now) for now in (1.0, 2.0, QUIET_SECONDS)] == [-1, -1, -1]
    assert refusals.note(PLAIN, "a", "y", 2.0) == 0, "another reason has its own line"
    assert refusals.note(NAME, "b", "x", 2.0) == 0, "another address, too"
    assert refusals.note(PLAIN, "a", "x", 1.0 + QUIET_SECONDS) == 3
    assert refusals.totals == {PLAIN: 6, CERTIFICATE: 0, NAME: 1, HANDSHAKE: 0}


def test_what_refusals_remember_is_bounded() -> None:
    refusals = Refusals()
    for number in range(REMEMBERED_MAX + 1):
        assert refusals.note(PLAIN, str(number), "x", 1.0) == 0
    assert refusals.note(PLAIN, str(REMEMBERED_MAX), "x", 1.0) == -1
    assert refusals.note(PLAIN, "0", "x", 1.0) == 0, "the oldest was forgotten"
    assert refusals.totals[PLAIN] == REMEMBERED_MAX + 3
