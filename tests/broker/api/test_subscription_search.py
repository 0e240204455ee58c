"""The search for subscriptions: what it finds over REST, and its matcher beside the tree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_calls import ErrorCase
from broker.routing.names import filter_matches
from broker.routing.trie import Trie


async def test_filter_finds_by_client_kind_and_topic(node: Any, rest: Any) -> None:
    first = node.world.connect("c1")
    first.subscribe(b"a/+", b"$SYS/x", b"$share/g/a/#")
    second = node.world.connect("c2")
    second.subscribe(b"a/b", b"#", b"$share/g/b", b"b/#")
    for query, wanted in [
        ("", {"a/+", "$SYS/x", "$share/g/a/#", "a/b", "#", "$share/g/b", "b/#"}),
        ("client_id=c1", {"a/+", "$SYS/x", "$share/g/a/#"}),
        ("client_id=nobody", set()),
        ("filter_type=1", {"$SYS/x"}),
        ("filter_type=2", {"$share/g/a/#", "$share/g/b"}),
        ("filter_type=3", {"a/+", "a/b", "#", "b/#"}),
        ("filter_type=1,2", {"$SYS/x", "$share/g/a/#", "$share/g/b"}),
        ("filter_type=1,2,3&client_id=c2", {"a/b", "#", "$share/g/b", "b/#"}),
        ("match_type=1&topic_name=a/%2B", {"a/+"}),
        ("match_type=SUB_MATCH_TYPE_MATCH_NAME&topic_name=$share/g/b", {"$share/g/b"}),
        ("match_type=2&topic_name=a/b", {"a/+", "a/b", "#", "$share/g/a/#"}),
        ("match_type=2&topic_name=a/b&filter_type=3", {"a/+", "a/b", "#"}),
        ("match_type=2&topic_name=b", {"#", "$share/g/b", "b/#"}),
        ("match_type=2&topic_name=$SYS/x", {"$SYS/x"}),
    ]:
        answer = await rest.get(f"/v1/filter_subscriptions?{query}")
        found = [entry["topic_name"] for entry in answer["subscriptions"]]
        assert set(found) == wanted, query
        assert len(found) == len(wanted)
    assert len((await rest.get("/v1/filter_subscriptions?limit=2"))["subscriptions"]) == 2


LEVELS = st.sampled_from(["a", "b", "", "+", "$x"])


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=4),
    hash_last=st.booleans(),
    names=st.lists(st.sampled_from(["a", "b", "", "$x"]), min_size=1, max_size=4),
)
def test_filter_matches_as_the_tree_does(levels: list[str], hash_last: bool, names: list[str]) -> None:
    topic_filter = "/".join(levels + ["#"] * hash_last).encode()
    topic = "/".join(names).encode()
    if not topic_filter or not topic:
        return
    tree = Trie()
    tree.set(topic_filter, object())
    assert filter_matches(topic_filter, topic) == bool(tree.match(topic))


ERRORS: list[ErrorCase] = [
    # method, path, body, HTTP status, gRPC code, words of the message
    ("GET", "/v1/filter_subscriptions?match_type=1", None, 400, 3, "topic_name must be set"),
    ("GET", "/v1/filter_subscriptions?topic_name=a", None, 400, 3, "match_type must be set"),
    ("GET", "/v1/filter_subscriptions?match_type=3&topic_name=a", None, 400, 3, "match_type is 3"),
    ("GET", "/v1/filter_subscriptions?match_type=NO&topic_name=a", None, 400, 3, '"match_type" does not fit'),
    ("GET", "/v1/filter_subscriptions?match_type=1&topic_name=a/%23/b", None, 400, 3, "topic_name: topic filter"),
    ("GET", "/v1/filter_subscriptions?match_type=2&topic_name=a/%23", None, 400, 3, "topic_name: topic name"),
    ("GET", "/v1/filter_subscriptions?filter_type=4", None, 400, 3, 'filter_type has "4"'),
    ("GET", "/v1/filter_subscriptions?filter_type=1;2", None, 400, 3, 'filter_type has "1;2"'),
    ("GET", "/v1/filter_subscriptions?limit=1001", None, 400, 3, "limit is 1001"),
    ("GET", "/v1/filter_subscriptions?limit=-1", None, 400, 3, "limit is -1"),
]


@pytest.mark.parametrize("case", ERRORS, ids=[f"{case[0]} {case[1]} {case[5]}"[:70] for case in ERRORS])
async def test_errors(node: Any, rest: Any, case: ErrorCase) -> None:
    await rest.fails(case)
