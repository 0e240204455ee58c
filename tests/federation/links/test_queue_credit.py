"""Credit of queue links: how the room of a domain is shared among its upstreams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import QueueLinkFault
from federation.links.bridging.job_header import NO_QUEUE
from federation.links.queue_credit import Borrower, Demand


def test_a_downstream_asks_for_its_room_and_no_more_than_is_offered() -> None:
    demand = Demand()
    demand.borrowers = {"a": Borrower(100), "b": Borrower(2)}
    assert demand.plan(0, 10) == []
    demand.borrowers["a"].offer(4)
    demand.borrowers["b"].offer(50)
    assert sorted(demand.plan(0, 10)) == ["a", "b"]
    assert {name: borrower.asked() for name, borrower in demand.borrowers.items()} == {"a": 4, "b": 2}
    assert demand.plan(0, 10) == []
    demand.plan(0, 3)
    assert sum(borrower.asked() for borrower in demand.borrowers.values()) == 3


def test_jobs_of_the_domain_come_first() -> None:
    demand = Demand()
    borrower = demand.borrowers["a"] = Borrower(10)
    borrower.offer(5)
    demand.plan(0, 5)
    assert demand.plan(1, 5) == ["a"]
    assert borrower.asked() == 0
    for _ in range(5):
        borrower.receive()  # they were on the way
    with pytest.raises(QueueLinkFault, match="sent 6 jobs, was asked for 5"):
        borrower.receive()
    borrower.begin()
    with pytest.raises(QueueLinkFault):
        borrower.receive()


def test_an_upstream_that_was_asked_stays_asked() -> None:
    demand = Demand()
    demand.borrowers = {"a": Borrower(10), "b": Borrower(10)}
    for borrower in demand.borrowers.values():
        borrower.offer(5)
    (first,) = demand.plan(0, 1)
    assert [demand.plan(0, 1) for _ in range(4)] == [[]] * 4
    demand.borrowers[first].offer(0)  # its own consumers have taken the jobs
    assert len(demand.plan(0, 1)) == 2
    assert demand.borrowers[first].asked() == 0


def test_an_upstream_without_a_queue_is_asked_for_nothing() -> None:
    demand = Demand()
    borrower = demand.borrowers["a"] = Borrower(10)
    borrower.offer(NO_QUEUE)
    assert borrower.is_missing
    assert demand.plan(0, 5) == []
    borrower.offer(1)
    assert not borrower.is_missing


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), max_size=10),
)
def test_limits_never_exceed_room_and_offers(upstreams: list[tuple[int, int]], places: list[tuple[int, int]]) -> None:
    demand = Demand()
    for number, (offered, prefetch) in enumerate(upstreams):
        borrower = demand.borrowers[str(number)] = Borrower(prefetch)
        borrower.offer(offered)
    for waiting, room in places:
        demand.plan(waiting, room)
        asked = [borrower.asked() for borrower in demand.borrowers.values()]
        possible = sum(min(borrower.offered, borrower.prefetch) for borrower in demand.borrowers.values())
        assert sum(asked) == (0 if waiting else min(room, possible))


def test_jobs_that_an_offer_has_overtaken_are_no_part_of_it() -> None:
    borrower = Borrower(10)
    borrower.offer(1)
    borrower.ask(1)
    borrower.offer(2, sent=1)  # it leaves at once, while the job waits for the store of the upstream
    borrower.receive()
    assert borrower.offered == 2
