"""Rules of a push-pull: interval and versions."""

from __future__ import annotations

import pytest

from federation.gossip.messages import OUR_VERSIONS
from federation.gossip.push_pull import VersionRange, push_pull_scale


@pytest.mark.parametrize(("count", "factor"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (100, 3), (1000, 6)])
def test_push_pull_scale(count: int, factor: int) -> None:
    assert push_pull_scale(count) == factor


AGENT = bytes((1, 5, 2, 2, 5, 5))


@pytest.mark.parametrize(
    ("offered", "accepted"),
    [  # wire-gossip 2.1, as real agents answered: a cluster of DCur 4 and DCur 5
        ((1, 5, 2, 2, 5, 5), True),
        ((1, 5, 2, 2, 5, 4), True),
        ((2, 5, 2, 2, 5, 4), True),
        ((1, 2, 2, 2, 5, 4), True),
        ((1, 5, 2, 2, 4, 4), False),
        ((1, 5, 2, 0, 0, 0), False),
        ((3, 5, 3, 2, 5, 4), False),
        ((1, 5, 2, 5, 5, 5), False),
        ((), False),
    ],
)
def test_versions(offered: tuple[int, ...], accepted: bool) -> None:
    versions = VersionRange()
    versions.add("offered", bytes(offered), True)
    versions.add("a", OUR_VERSIONS, True)
    versions.add("b", AGENT, True)
    assert (versions.refused() == "") == accepted
