"""Requests of browsers: which pages may use the API, and under which names."""

from __future__ import annotations

import pytest

from broker.api.browser_guard import BrowserGuard

LOOPBACK = BrowserGuard((), on_loopback=True)
NAMED = BrowserGuard(("Ops.example.com",), on_loopback=True)
OPEN = BrowserGuard((), on_loopback=False)
OPEN_NAMED = BrowserGuard(("ops.example.com",), on_loopback=False)


@pytest.mark.parametrize(
    ("guard", "host", "served"),
    [
        (LOOPBACK, "localhost", True),
        (LOOPBACK, "LOCALHOST:8083", True),
        (LOOPBACK, "localhost.:8083", True),
        (LOOPBACK, "127.0.0.1:8083", True),
        (LOOPBACK, "127.0.0.1", True),
        (LOOPBACK, "10.1.2.3:1", True),
        (LOOPBACK, "[::1]:8083", True),
        (LOOPBACK, "[::1]", True),
        (LOOPBACK, "evil.example", False),
        (LOOPBACK, "evil.example:8083", False),
        (LOOPBACK, "localhost.evil.example", False),
        (LOOPBACK, "127.0.0.1.evil.example", False),
        (LOOPBACK, "127.0.0.1@evil.example", False),
        (LOOPBACK, "localhost:80:80", False),
        (LOOPBACK, "", False),
        (LOOPBACK, "[::1", False),
        (LOOPBACK, "ops.example.com", False),
        (NAMED, "ops.example.com", True),
        (NAMED, "OPS.example.com:8083", True),
        (NAMED, "localhost", True),
        (NAMED, "sub.ops.example.com", False),
        (OPEN, "any.example", True),
        (OPEN, "", True),
        (OPEN_NAMED, "ops.example.com", True),
        (OPEN_NAMED, "192.0.2.7:8083", True),
        (OPEN_NAMED, "any.example", False),
    ],
)
def test_hosts(guard: BrowserGuard, host: str, served: bool) -> None:
    refusal = guard.refusal([host], [], [])
    assert (refusal == "") is served
    assert served or f'"{host}"' in refusal
    assert served or "allowed_hosts" in refusal


def test_a_program_may_leave_host_out_and_a_second_one_is_checked_too() -> None:
    assert LOOPBACK.refusal([], [], []) == ""
    assert LOOPBACK.refusal(["localhost", "evil.example"], [], []) != ""


@pytest.mark.parametrize(
    ("guard", "host", "origin", "served"),
    [
        (LOOPBACK, "127.0.0.1:8083", "http://127.0.0.1:8083", True),
        (LOOPBACK, "localhost:8083", "http://LOCALHOST:8083", True),
        (LOOPBACK, "127.0.0.1:8083", "http://127.0.0.1:3000", False),
        (LOOPBACK, "127.0.0.1:8083", "http://localhost:8083", False),
        (LOOPBACK, "127.0.0.1:8083", "https://evil.example", False),
        (LOOPBACK, "127.0.0.1:8083", "null", False),
        (LOOPBACK, "127.0.0.1:8083", "", False),
        (LOOPBACK, "127.0.0.1:8083", "http://[", False),
        (NAMED, "127.0.0.1:8083", "https://ops.example.com", True),
        (NAMED, "127.0.0.1:8083", "https://ops.example.com:444", True),
        (NAMED, "127.0.0.1:8083", "https://evil.example", False),
        (OPEN, "node1:8083", "http://node1:8083", True),
        (OPEN, "node1:8083", "http://node2:8083", False),
        (OPEN, "node1:8083", "null", False),
    ],
)
def test_origins(guard: BrowserGuard, host: str, origin: str, served: bool) -> None:
    refusal = guard.refusal([host], [origin], [])
    assert (refusal == "") is served
    assert served or origin in refusal


@pytest.mark.parametrize("guard", [LOOPBACK, NAMED, OPEN])
@pytest.mark.parametrize(
    ("site", "served"),
    [("same-origin", True), ("none", True), ("same-site", False), ("cross-site", False), ("", False), ("new", False)],
)
def test_sites_of_pages(guard: BrowserGuard, site: str, served: bool) -> None:
    assert (guard.refusal(["localhost"], [], [site]) == "") is served
    assert guard.refusal(["localhost"], [], [site, "cross-site"]) != ""
