"""Addresses that a trace can ask for."""

from __future__ import annotations

import pytest

from broker.api.traces import is_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", True),
        ("10.0.0.1:40000", True),
        ("::1", True),
        ("[::1]:40000", True),
        ("10.0.0.1:", False),
        ("10.0.0.1:http", False),
        ("10.0.0", False),
        ("sensor1:1883", False),
        (":1883", False),
        ("", False),
    ],
)
def test_addresses_are_ip_addresses_with_or_without_a_port(text: str, expected: bool) -> None:
    assert is_address(text) is expected
