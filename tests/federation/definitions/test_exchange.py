"""The exchange between two nodes: both have all entries after it, in bounded messages, whatever else happens meanwhile."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import effort
from federation.definitions import exchange as module
from federation.definitions.definitions import Definitions
from federation.definitions.entry import BUCKETS, UPSTREAM, Entry
from federation.definitions.exchange import Exchange, ExchangeError, answer, read_entries, write_entries
from federation.definitions.pb.definitions_pb2 import ExchangeAnswer, ExchangeRequest

NOW = 1_700_000_000.0
CLOCK = int(NOW * 1000) << 16


def entry(name: str, clock: int = 1, value: str | None = "1", node: str = "n") -> Entry:
    return Entry(UPSTREAM, name, CLOCK + clock, node, value)


def run(asking: Definitions, answering: Definitions) -> int:
    """The number of messages of a whole exchange."""
    exchange = Exchange(asking)
    count = 0
    while (request := exchange.request()) is not None:
        exchange.receive(answer(answering, request, NOW), NOW)
        count += 1
    return count


def with_entries(*found: Entry) -> Definitions:
    definitions = Definitions("n")
    definitions.merge(found, NOW)
    return definitions


entries = st.lists(
    st.builds(entry, st.sampled_from("abcdefgh"), st.integers(1, 4), st.sampled_from([None, "1", "2"])), max_size=16
)


@given(entries, entries)
def test_both_have_everything_after_it(found: list[Entry], other: list[Entry]) -> None:
    asking, answering = with_entries(*found), with_entries(*other)
    run(asking, answering)
    assert set(asking.entries()) == set(answering.entries()) == set(with_entries(*found, *other).entries())


def test_equal_nodes_need_one_message_without_entries() -> None:
    asking, answering = with_entries(entry("a")), with_entries(entry("a"))
    exchange = Exchange(asking)
    request = exchange.request()
    assert request is not None
    assert not request.definitions
    found = answer(answering, request, NOW)
    assert not found.definitions
    assert exchange.receive(found, NOW) == 0
    assert exchange.request() is None


def test_messages_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MESSAGE_BYTES_MAX", 300)
    value = '"' + "a" * 90 + '"'
    asking = with_entries(*(entry(f"a{index}", value=value) for index in range(20)))
    answering = with_entries(*(entry(f"b{index}", value=value) for index in range(20)))
    exchange = Exchange(asking)
    messages = 0
    while (request := exchange.request()) is not None:
        found = answer(answering, request, NOW)
        sent = read_entries((*request.definitions, *found.definitions))
        assert sum(item.size() for item in sent) < 600
        exchange.receive(found, NOW)
        messages += 1
    assert messages >= 10
    assert asking.digest() == answering.digest()
    assert len(asking.entries()) == 40


@settings(max_examples=effort(100))
@given(
    st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef"), st.booleans()), max_size=20)
)
def test_nodes_converge_after_lost_messages_and_changes_in_between(
    seed: int, changes: list[tuple[int, str, bool]]
) -> None:
    rng = random.Random(seed)
    nodes = [Definitions(f"n{index}") for index in range(4)]
    for index, (node, name, is_there) in enumerate(changes):
        value = {"uri": f"mqtt://{name}"}
        if is_there:
            nodes[node].put(UPSTREAM, name, value, NOW + rng.uniform(-5, 5))
        else:
            nodes[node].delete(UPSTREAM, name, NOW + rng.uniform(-5, 5))
        asking, answering = rng.sample(nodes, 2)
        exchange = Exchange(asking)
        while (request := exchange.request()) is not None:
            if rng.random() < 0.3:
                break  # the request or its answer is lost
            found = answer(answering, request, NOW)
            if rng.random() < 0.3:
                nodes[index % 4].put(UPSTREAM, "other", {"uri": f"mqtt://h{index}"}, NOW)
            exchange.receive(found, NOW)
    for asking in nodes:
        for answering in nodes:
            run(asking, answering)
    assert len({node.digest() for node in nodes}) == 1
    assert len({frozenset(node.entries()) for node in nodes}) == 1


@pytest.mark.parametrize(
    "found",
    [
        ExchangeAnswer(),
        ExchangeAnswer(digests=[1] * (BUCKETS - 1)),
        ExchangeAnswer(digests=[1] * BUCKETS, more=True),
    ],
)
def test_an_answer_that_is_none_is_refused(found: ExchangeAnswer) -> None:
    exchange = Exchange(with_entries(entry("a")))
    with pytest.raises(ExchangeError):
        exchange.receive(found, NOW)
    assert exchange.request() is None


def test_a_request_with_other_parts_is_refused() -> None:
    with pytest.raises(ExchangeError):
        answer(with_entries(), ExchangeRequest(digests=[1, 2]), NOW)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(st.builds(Entry, texts, texts, st.integers(1, 2**60), texts, st.none() | texts)))
def test_entries_survive_the_wire(found: list[Entry]) -> None:
    data = ExchangeAnswer(definitions=write_entries(found)).SerializeToString()
    assert read_entries(ExchangeAnswer.FromString(data).definitions) == found
