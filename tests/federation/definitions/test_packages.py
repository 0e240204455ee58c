"""Definitions know nothing of links: what both need of topics is a package of its own."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from repository import ROOT


def named(package: str, others: Iterable[str]) -> list[str]:
    """Modules of a package that import one of the others, or name a module of it in a text."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    return [
        f"{path.relative_to(ROOT)}: {other}"
        for path in paths
        for other in others
        if f"{other.replace('/', '.')}." in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("federation/definitions", ["federation/links"]),
        ("federation/topics", ["federation/links", "federation/definitions"]),
    ],
)
def test_a_package_knows_nothing_of_those_above_it(package: str, others: list[str]) -> None:
    assert named(package, others) == []


def test_the_check_sees_an_import() -> None:
    assert "federation/links/commands.py: federation/topics" in named("federation/links", ["federation/topics"])
