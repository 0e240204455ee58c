"""Hashes of strategies: the same on every node, even, and moved by changes of the membership alone."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.config.settings_mqtt import MqttSettings
from broker.routing.strategy import STRATEGIES, hash_of, score, weighted_score

KEYS = [hash_of(b"devices/%d/state" % number) for number in range(20_000)]
NAMES = [b"member %d" % number for number in range(8)]


@pytest.mark.parametrize(
    ("text", "found"), [(b"", 1), (b"a", 0x68B7BE43), (b"devices/7/state", 0x510A8EDD), (b"\xc3\xa4", 0x70B5F183)]
)
def test_the_hash_of_a_text_is_the_same_everywhere(text: bytes, found: int) -> None:
    assert hash_of(text) == found


@pytest.mark.parametrize(
    ("key", "whose", "found"), [(1, 1, 1_590_733_001), (hash_of(b"a"), hash_of(b"n1"), 862_503_972)]
)
def test_the_score_is_the_same_everywhere(key: int, whose: int, found: int) -> None:
    assert score(key, whose) == found


def winner(key: int, names: list[bytes]) -> bytes:
    return max(names, key=lambda name: score(key, hash_of(name)))


def test_members_get_equal_shares() -> None:
    shares = Counter(winner(key, NAMES) for key in KEYS)
    assert all(abs(shares[name] * len(NAMES) / len(KEYS) - 1) < 0.1 for name in NAMES), shares


def test_a_member_that_comes_or_goes_moves_no_other_key() -> None:
    for key in KEYS[:2_000]:
        assert winner(key, NAMES) in (winner(key, NAMES[:-1]), NAMES[-1])


def test_nodes_get_shares_by_their_members() -> None:
    members = {b"n1": 1, b"n2": 3, b"n3": 12}

    def chosen(key: int, counts: dict[bytes, int]) -> bytes:
        return max(counts, key=lambda name: weighted_score(key, hash_of(name), counts[name]))

    shares = Counter(chosen(key, members) for key in KEYS)
    assert all(abs(shares[name] * 16 / members[name] / len(KEYS) - 1) < 0.1 for name in members), shares
    more = members | {b"n2": 4}
    assert {chosen(key, more) for key in KEYS if chosen(key, more) != chosen(key, members)} == {b"n2"}


def test_the_highest_score_of_all_is_no_division_by_zero() -> None:
    assert weighted_score(1, 1, 1) > 0
    assert max(weighted_score(key, 1, 1) for key in KEYS) < 1e12


def test_the_default_is_the_first_one() -> None:
    assert STRATEGIES.index(MqttSettings().shared_subscription_strategy) == 0
