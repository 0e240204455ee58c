"""Who gets a message: nodes, shared groups, snapshots over time, and what a move of a client saves."""

from __future__ import annotations

import pickle

import pytest

from pipeline.subscriptions import CLIENTS_MAX, Subscription, Subscriptions, publisher_savings, subscriber_savings


def subscriptions(*found: tuple[str, str, str], time: int = 100) -> Subscriptions:
    nodes: dict[str, dict[int, list[Subscription]]] = {node: {time: []} for node in ("a", "b", "c")}
    for node, client, topic_filter in found:
        nodes[node][time].append(Subscription(node, client, topic_filter))
    return Subscriptions(nodes)


def test_a_node_gets_a_message_once() -> None:
    found = subscriptions(("b", "one", "t/#"), ("b", "two", "t/+"), ("c", "three", "u"), ("a", "four", "t/1"))
    receivers = found.receivers(1, "t/1")
    assert receivers.shares("a") == {"a": 1.0, "b": 1.0}
    assert receivers.filters("b", "a") == {"t/#": 1.0, "t/+": 1.0}
    assert found.receivers(1, "$SYS/x").shares("a") == {}


def test_subscriptions_go_to_the_tasks_of_spark() -> None:
    found = subscriptions(("b", "one", "t/#"), ("c", "two", "$share/g/t/1"))
    copy = pickle.loads(pickle.dumps(found))
    assert copy.receivers(1, "t/1").shares("a") == found.receivers(1, "t/1").shares("a") == {"b": 1.0, "c": 1.0}


@pytest.mark.parametrize(
    ("publisher_node", "expected"),
    [("a", {"b": 2 / 3, "c": 1 / 3}), ("b", {"b": 1.0}), ("c", {"c": 1.0})],
)
def test_one_member_of_a_shared_group_gets_a_message(publisher_node: str, expected: dict[str, float]) -> None:
    found = subscriptions(("b", "one", "$share/g/t"), ("b", "two", "$share/g/t"), ("c", "three", "$share/g/t"))
    assert found.receivers(1, "t").shares(publisher_node) == pytest.approx(expected)


def test_a_group_adds_nothing_where_a_client_receives_anyway() -> None:
    found = subscriptions(("b", "one", "$share/g/t"), ("b", "two", "t"), ("c", "three", "$share/g/t"))
    receivers = found.receivers(1, "t")
    assert receivers.shares("a") == {"b": 1.0, "c": 0.5}
    assert receivers.filters("b", "a") == {"t": 1.0, "$share/g/t": 0.5}
    assert receivers.filters("b", "c") == {"t": 1.0}


def test_snapshots_are_valid_until_the_next_one() -> None:
    one = [Subscription("b", "one", "t")]
    found = Subscriptions({"a": {150: []}, "b": {100: one, 200: []}})
    assert found.bounds == [100, 150, 200]
    shares = {time: found.receivers(found.period(time), "t").shares("a") for time in (0, 100, 199, 200, 300)}
    assert shares == {0: {"b": 1.0}, 100: {"b": 1.0}, 199: {"b": 1.0}, 200: {}, 300: {}}


def test_a_publisher_is_better_where_its_receivers_are() -> None:
    found = subscriptions(("b", "one", "t"), ("c", "two", "t"))
    receivers = found.receivers(1, "t")
    assert publisher_savings(receivers, "a", found.nodes) == {"b": 1.0, "c": 1.0}
    assert publisher_savings(receivers, "b", found.nodes) == {"a": -1.0, "c": 0.0}


def test_a_subscriber_is_better_where_its_publishers_are() -> None:
    found = subscriptions(("b", "alone", "t"))
    moves = list(subscriber_savings(found.receivers(1, "t"), "a", found.nodes))
    assert moves == [("alone", "b", {"a": 1.0, "c": 0.0})]
    found = subscriptions(("b", "one", "t"), ("b", "two", "t"))
    moves = list(subscriber_savings(found.receivers(1, "t"), "a", found.nodes))
    assert moves == [("one", "b", {"a": 0.0, "c": -1.0}), ("two", "b", {"a": 0.0, "c": -1.0})]


def test_topics_with_many_clients_at_a_node_are_left_out() -> None:
    found = subscriptions(*(("b", f"client{each}", "t") for each in range(CLIENTS_MAX + 1)))
    assert list(subscriber_savings(found.receivers(1, "t"), "a", found.nodes)) == []
