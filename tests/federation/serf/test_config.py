"""Settings of a Serf node."""

from __future__ import annotations

import pytest

from federation.serf.config import SerfConfig, is_validated_name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("", "10.0.0.1", 8902), "node_name is empty"),
        (("n\x1b[2J", "10.0.0.1", 8902), "node_name .* control character"),
        (("x" * 256, "10.0.0.1", 8902), "255"),
        (("a", "somewhere", 8902), "'somewhere' is not an IP address"),
        (("a", "10.0.0.1", 0), "port 0"),
        (("a", "10.0.0.1", 1, {"t": "x" * 600}), "512"),
    ],
)
def test_bad_configuration(arguments: tuple[str, str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SerfConfig(*arguments)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("node-1.eu", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("node_1", False),
        ("knoten-ä", False),
        ("a b", False),
    ],
)
def test_names_that_members_with_validation_take(name: str, is_taken: bool) -> None:
    assert is_validated_name(name) == is_taken
