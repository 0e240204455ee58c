"""Exchanges and virtual hosts as topics."""

from __future__ import annotations

import pytest

from federation.definitions.imports.namespaces import mapping_rule, prefix_of, topics_of
from federation.topics.mapping import TopicMapping


@pytest.mark.parametrize(
    ("vhost", "exchange", "expected"),
    [
        ("/", "orders", "orders/#"),
        ("/", "eu.orders", "eu/orders/#"),
        ("/", "amq.topic", "#"),
        ("sales", "orders", "sales/orders/#"),
        ("/sales", "amq.topic", "sales/#"),
    ],
)
def test_topics_of_an_exchange(vhost: str, exchange: str, expected: str) -> None:
    assert topics_of(vhost, exchange) == expected


def test_prefixes_of_virtual_hosts() -> None:
    assert [prefix_of(vhost) for vhost in ("/", "sales", "/a/b")] == ["", "sales/", "a/b/"]


def test_a_rule_maps_topics_both_ways() -> None:
    mapping = TopicMapping([mapping_rule("x/#", "sales/y/#")])
    assert mapping.map_in(b"x/1") == b"sales/y/1"
    assert mapping.map_out(b"sales/y/1") == b"x/1"
    assert TopicMapping([mapping_rule("#", "from/#")]).map_in(b"a") == b"from/a"
    assert TopicMapping([mapping_rule("from/#", "#")]).map_in(b"from/a") == b"a"
