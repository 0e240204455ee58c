"""The figures of workers: sums, and that no total of a node goes back when one of its processes ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.figures import (
    NOTHING,
    STARTING,
    Figures,
    continued,
    decoded,
    decoded_life,
    encoded,
    encoded_life,
    ended,
    joined_metrics,
    summed,
)
from broker.metrics.metric import Metric, counter, counters, gauge
from broker.server.shared_figures import SLOT_BYTES, Place


def figures(total: int, present: int = 0) -> Figures:
    metrics = [counter("c_total", "C.", total), gauge("g", "G.", present)]
    return Figures(1.0, [], metrics, {"sent": total}, {"clients": present})


def value(metrics: list[Metric], name: str) -> float:
    (found,) = (metric for metric in metrics if metric.name == name)
    return sum(found.samples.values())


def test_metrics_of_workers_are_added_or_labelled() -> None:
    one = [counter("c_total", "C.", 1.0), gauge("g", "G.", 2.0), counters("k_total", "K.", "kind", [("a", 1.0)])]
    two = [counter("c_total", "C.", 5.0), gauge("g", "G.", 7.0), counters("k_total", "K.", "kind", [("b", 2.0)])]
    told = decoded(encoded(Figures(3.5, ["it is full"], two, {"sent": 2}, {"clients": 1})))
    assert (told.at, told.not_ready, told.totals, told.present) == (3.5, ["it is full"], {"sent": 2}, {"clients": 1})
    found = {metric.name: metric for metric in joined_metrics({0: one, 1: told.metrics})}
    assert found["c_total"].samples == {(): 6.0}
    assert found["k_total"].samples == {("a",): 1.0, ("b",): 2.0}
    assert found["g"].labels == ("worker",)
    assert found["g"].samples == {("0",): 2.0, ("1",): 7.0}


@given(st.lists(st.one_of(st.tuples(st.integers(0, 1), st.integers(0, 5)), st.integers(0, 1)), max_size=30))
def test_no_total_of_a_node_goes_back(steps: list[tuple[int, int] | int]) -> None:
    """A step (worker, number): a worker counts and tells; a step worker: its process ends, and another one comes."""
    told, before, counts = [NOTHING, NOTHING], [NOTHING, NOTHING], [0, 0]
    whole = last = 0
    for step in steps:
        if isinstance(step, tuple):
            index, number = step
            counts[index] += number
            whole += number
            told[index] = decoded(encoded(continued(figures(counts[index], 1), before[index])))
        else:
            told[step] = before[step] = ended(told[step])
            counts[step] = 0
            assert "clients" not in told[step].present
        sums = summed(one.totals for one in told)
        assert sums.get("sent", 0) == whole >= last
        last = whole
        joined = joined_metrics({index: one.metrics for index, one in enumerate(told)})
        assert whole == 0 or value(joined, "c_total") == whole


def test_counters_of_what_is_no_more_stay() -> None:
    before = figures(0)._replace(metrics=[counters("k_total", "K.", "peer", [("gone", 3.0)])])
    assert value(continued(figures(2), ended(before)).metrics, "k_total") == 3.0


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_the_text_that_was_written_last_is_read(texts: list[bytes]) -> None:
    place = Place()
    assert place.read() == b""
    for text in texts:
        assert place.write(text)
        assert place.read() == text


def test_a_text_that_is_too_long_changes_nothing() -> None:
    place = Place()
    place.write(b"a")
    assert not place.write(bytes(SLOT_BYTES))
    assert place.read() == b"a"


def test_a_sign_of_life_is_read_without_the_metrics() -> None:
    told = figures(3, 2)._replace(not_ready=["two\nlines"])
    life = told._replace(metrics=[])
    assert decoded(encoded(told)) == told
    assert decoded(encoded_life(told)) == life
    assert decoded_life(encoded(told).partition(b"\n")[0] + b"\nno metrics are read") == life
    assert decoded_life(b"").not_ready == [STARTING]
