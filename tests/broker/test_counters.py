"""The names that lost most messages: exact for few names, and every name with a large part is among them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.codec.packets import CONNACK, CONNECT, PUBACK, PUBLISH, SUBACK, SUBSCRIBE
from broker.counters import LOSERS_MAX, Losers


def test_few_names_are_exact_and_sorted() -> None:
    losers = Losers()
    for name, count in (("a", 1), ("b", 5), ("a", 2), ("c", 4)):
        losers.add(name, count)
    assert list(losers.take(2).items()) == [("b", 5), ("c", 4)]
    assert losers.take(2) == {}, "each line of the log begins anew"


losses = st.lists(st.tuples(st.integers(0, 3 * LOSERS_MAX), st.integers(1, 50)), max_size=300)


@given(losses, st.integers(1, 400))
def test_a_name_with_a_large_part_is_found_among_any_others(others: list[tuple[int, int]], large: int) -> None:
    losers = Losers()
    truth: Counter[str] = Counter()
    for number, count in [*others, (-1, large), *others[:20]]:
        losers.add(str(number), count)
        truth[str(number)] += count
    found = losers.take(10_000)
    assert len(found) <= LOSERS_MAX
    error_max = truth.total() / (LOSERS_MAX + 1)
    for name, count in truth.items():
        assert count - error_max <= found.get(name, 0) <= count


def test_packets_are_counted_by_type_and_size(make_world: Any) -> None:
    world = make_world()
    client = world.connect("c")
    client.subscribe(b"t")
    client.publish(b"t", b"x", qos=1)
    client.publish(b"other", b"x")
    counters = world.broker.counters
    received = counters.answers_received
    assert (received[CONNECT], received[SUBSCRIBE], received[PUBLISH], received[PUBACK]) == (1, 1, 0, 1)
    sent = counters.answers_sent
    assert (sent[CONNACK], sent[SUBACK], sent[PUBLISH], sent[PUBACK]) == (1, 1, 0, 1)
    assert (counters.packets_received, counters.packets_sent) == (sum(received) + 2, sum(sent) + 1)
    assert (counters.bytes_received, counters.bytes_sent) == (
        client.connection.received_bytes,
        client.connection.sent_bytes,
    )
    assert counters.answer_bytes_received[PUBACK] == 4
    assert counters.without_receivers == 1
