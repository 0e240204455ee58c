"""A broker that closes connections without a word, each time that another client connects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from federation.links.backoff import STABLE_SECONDS
from federation.links.client import End
from federation.links.rival import CUT_SHORT_MAX, Rival

SHORT = (End.LOST, True, 1.0)
LONG = (End.LOST, True, STABLE_SECONDS)
NEW_SESSION = (End.LOST, False, 1.0)
REFUSED = (End.REFUSED, False, 0.0)
TAKEN = (End.TAKEN, True, 1.0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([SHORT] * (CUT_SHORT_MAX - 1), False),
        ([SHORT] * CUT_SHORT_MAX, True),
        ([SHORT] * (CUT_SHORT_MAX + 1), True),
        ([SHORT, SHORT, TAKEN, SHORT], True),
        *(([*[SHORT] * (CUT_SHORT_MAX - 1), other, SHORT], False) for other in (LONG, NEW_SESSION, REFUSED)),
        ([*[SHORT] * CUT_SHORT_MAX, LONG], False),
    ],
)
def test_a_rival_is_seen_by_short_connections_in_a_row(ends: Sequence[tuple[End, bool, float]], expected: bool) -> None:
    rival = Rival()
    assert [rival.has_session(*end) for end in ends][-1] is expected
