"""The queue of logins: turns of addresses, and what gives way when it is full."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.auth.fair_queue import FairQueue


def test_addresses_alternate() -> None:
    queue: FairQueue[str] = FairQueue(100)
    for number in range(50):
        queue.put("flood", f"flood{number}")
    queue.put("one", "one")
    queue.put("two", "two1")
    queue.put("two", "two2")
    assert [queue.take() for _ in range(6)] == ["flood0", "one", "two1", "flood1", "two2", "flood2"]


def test_an_address_with_many_gives_way() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for number in range(10):
        assert queue.put("flood", f"flood{number}") is None
    assert queue.put("flood", "one more") == "one more"
    assert queue.put("other", "other") == "flood9"
    assert len(queue) == 10


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc")), max_size=200), st.integers(1, 8))
def test_nothing_is_lost_and_the_bound_holds(steps: list[str | None], items_max: int) -> None:
    """None takes an item; a letter adds one. The items of an address leave in their order."""
    queue: FairQueue[tuple[str, int]] = FairQueue(items_max)
    inside: list[tuple[str, int]] = []
    for number, address in enumerate(steps):
        if address is None:
            taken = queue.take()
            assert (taken is None) == (not inside)
            if taken is not None:
                assert taken == next(item for item in inside if item[0] == taken[0])
                inside.remove(taken)
        else:
            item = (address, number)
            inside.append(item)
            dropped = queue.put(address, item)
            if dropped is not None:
                assert len(inside) == items_max + 1
                inside.remove(dropped)
        assert len(queue) == len(inside) <= items_max
