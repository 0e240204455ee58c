"""What tokens and webhooks say about topics: lists of filters, and faults that refuse."""

from __future__ import annotations

import pytest

from broker.auth.access import AccessFault, read_access
from broker.authorization import TopicAccess


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (None, None),
        ({}, ()),
        ({"pub": []}, ()),
        ({"pub": ["a/%u"]}, (TopicAccess("a/%u", True, False),)),
        ({"sub": ["#", "+/%c"]}, (TopicAccess("#", False, True), TopicAccess("+/%c", False, True))),
        ({"all": ["größe/#"]}, (TopicAccess("größe/#", True, True),)),
    ],
)
def test_lists_of_topic_filters(claim: object, expected: object) -> None:
    assert read_access(claim) == expected


@pytest.mark.parametrize(
    "claim",
    [
        [],
        "#",
        7,
        {"publish": ["#"]},
        {"pub": "#"},
        {"pub": [7]},
        {"pub": [""]},
        {"pub": ["a#"]},
        {"pub": ["\ud800"]},
        {"pub": ["a\0"]},
        {"sub": ["$share/g/a"]},
        {"pub": ["a"], "deny": ["b"]},
        {"all": ["a"] * 1001},
    ],
)
def test_a_claim_that_is_not_understood_is_a_fault(claim: object) -> None:
    with pytest.raises(AccessFault):
        read_access(claim)
