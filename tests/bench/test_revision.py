"""Commits that --against cannot build."""

from __future__ import annotations

import pytest
from cluster import BenchFailed
from revision import build_revision

pytestmark = pytest.mark.uncompiled


@pytest.mark.parametrize("name", ["no-such-commit", "HEAD:README.md", "--help"])
def test_an_unknown_commit_is_named(name: str) -> None:
    with pytest.raises(BenchFailed, match=f"--against {name}: no commit"):
        build_revision(name)
