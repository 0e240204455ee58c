"""The ledger finds each kind of broken promise, and nothing where what happened is allowed."""

from __future__ import annotations

import pytest

from ledger import Ledger, Receipts, Unsure, settle, spans

ONE = "t/a/1"
TWO = "t/a/2"


def ledger_of(count: int) -> Ledger:
    """Numbers of both topics, all acknowledged."""
    ledger = Ledger()
    for topic in (ONE, TWO):
        ledger.add_topic(topic)
        ledger.sent[topic] = count
        ledger.acknowledged[topic] |= set(range(count))
    return ledger


def receipts_of(one: list[int], two: list[int], qos: int = 2) -> Receipts:
    receipts = Receipts("client", qos)
    for topic, numbers in ((ONE, one), (TWO, two)):
        for number in numbers:
            receipts.note(topic, number)
    return receipts


def test_each_message_once_and_in_order_keeps_all_promises() -> None:
    account = settle(ledger_of(3), [receipts_of([0, 1, 2], [0, 1, 2])])
    assert (account.published, account.acknowledged, account.expected, account.delivered) == (6, 6, 6, 6)
    assert (account.lost, account.repeated, account.twice, account.late, account.examples) == (0, 0, 0, 0, [])


@pytest.mark.parametrize(
    ("one", "two", "qos", "broken"),
    [
        ([0, 2], [0, 1, 2], 2, "client lacks 1 of t/a/1: 1-1"),
        ([0, 1, 2], [0, 1, 1, 2], 2, "client got 1 of t/a/2 twice: 1-1"),
        ([0, 2, 1], [0, 1, 2], 2, "client got 1 of t/a/1 too late: 1-1"),
        ([0, 1, 1, 0, 2], [0, 1, 2], 2, ""),
        ([0, 1, 2], [0, 1, 1, 2], 1, ""),
    ],
    ids=["lost", "QoS 2 twice", "out of order", "QoS 1 twice", "QoS 2 twice with a subscription of QoS 1"],
)
def test_what_is_broken(one: list[int], two: list[int], qos: int, broken: str) -> None:
    account = settle(ledger_of(3), [receipts_of(one, two, qos)])
    assert [text.partition(" [")[0] for text in account.examples] == ([broken] if broken else [])
    assert (account.lost or account.twice or account.late) == bool(broken)


def test_what_was_refused_may_be_missing_and_may_come() -> None:
    ledger = ledger_of(3)
    ledger.acknowledged[ONE].discard(1)
    ledger.refused[ONE].add(1)
    for numbers in ([0, 2], [0, 1, 2]):
        assert settle(ledger, [receipts_of(numbers, [0, 1, 2])]).lost == 0


@pytest.mark.parametrize(
    ("story", "is_excused"),
    [
        ("u 0 0", True),
        ("0 u 0", True),
        ("u 0 2 1 1", True),
        ("u 0 w 0", True),
        ("u 0 w i u 1 1", True),
        ("u 0 i 0", True),
        ("0 0 u", False),
        ("0 w 1 1 u 2 w", False),
        ("0 w u 1 0", False),
        ("u 0 w 1 1", False),
        ("u 0 w i 0", False),
        ("u 0 w i u 0", False),
        ("u 0 w i w 0", False),
    ],
    ids=[
        "published while the client was unsure",
        "published since it was well before",
        "and out of order",
        "it waited on its node when the client was well again",
        "in the next incident, in which it is unsure, too",
        "the client was away when the others were well, and all of its session is not on one node yet",
        "it came before the client was unsure",
        "and the client was well before",
        "published before the client was well",
        "published when it was well again",
        "it comes in the next incident",
        "in which it is unsure, too",
        "and behind that",
    ],
)
def test_when_qos_2_may_come_again(story: str, is_excused: bool) -> None:
    """u: the client is unsure. w: it is well, and all that came was published. i: an incident begins."""
    receipts = Receipts("client", 2)
    for word in story.split():
        if word == "u":
            receipts.unsure = Unsure.CROSSED
        elif word == "w":
            sent = {TWO: 1 + max(receipts.came[TWO])}
            receipts.is_well(sent, sent)
        elif word == "i":
            receipts.incident_begins()
        else:
            receipts.note(TWO, int(word))
    account = settle(ledger_of(0), [receipts])
    assert (account.twice, account.unsure[Unsure.CROSSED], account.late) == (not is_excused, is_excused, 0)


def test_a_fault_names_where_the_message_was_published_and_where_it_came() -> None:
    ledger = Ledger()
    for topic in (ONE, TWO):
        ledger.add_topic(topic)
    receipts = Receipts("client", 2)
    receipts.is_at("node1 in incident 1")
    ledger.publisher_is(TWO, "node3 in incident 1")
    for number in (0, 1, 2):
        receipts.note(TWO, number)
    ledger.sent[TWO] = 1
    ledger.publisher_is(TWO, "node4 in incident 1")
    receipts.is_at("node2 after incident 1")
    for number in (1, 2, 4, 3):
        receipts.note(TWO, number)
    twice, late = settle(ledger, [receipts]).examples
    assert "1-2" in twice
    assert "3-3" in late
    for text, came in ((twice, "node1 in incident 1"), (late, "node2 after incident 1")):
        assert ["published at node4 in incident 1" in text, came in text, "node2 after incident 1" in text] == [
            True
        ] * 3


def test_order_is_counted_apart_for_a_subscriber_that_changed_nodes_while_one_did_not_answer() -> None:
    receipts = Receipts("client", 2)
    receipts.is_moving = True
    for number in (0, 2, 3, 1):
        receipts.note(TWO, number)
    receipts.is_moving = False
    for number in (5, 4):
        receipts.note(TWO, number)
    account = settle(ledger_of(6), [receipts])
    assert (account.late, account.late_moving) == (1, 1)


def test_what_was_in_flight_when_its_publisher_moved_in_a_cut_may_come_twice_and_out_of_order() -> None:
    ledger = ledger_of(6)
    ledger.unsure[TWO][1] = Unsure.CROSSED
    ledger.delivered[TWO] = 1
    ledger.publisher_moved(TWO, 4)
    account = settle(ledger, [receipts_of(list(range(6)), [0, 3, 2, 1, 1, 4, 5])])
    assert (account.lost, account.twice, account.late, account.unsure[Unsure.CROSSED]) == (0, 0, 0, 1)
    assert settle(ledger, [receipts_of(list(range(6)), [0, 1, 2, 3, 5, 4])]).late == 1


def test_spans() -> None:
    assert spans([3, 1, 2, 7]) == "1-3, 7-7"
