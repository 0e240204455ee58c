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
    assert [queue.take(lambda _: True) for _ in range(6)] == ["flood0", "one", "two1", "flood1", "two2", "flood2"]


def test_an_address_with_many_gives_way() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for number in range(10):
        assert queue.put("flood", f"flood{number}") is None
    assert queue.put("flood", "one more") == "one more"
    assert queue.put("other", "other") == "flood9"
    assert len(queue) == 10


@given(st.lists(st.sets(st.sampled_from("abc")) | st.sampled_from("abc"), max_size=200), st.integers(1, 8))
def test_nothing_is_lost_and_the_bound_holds(steps: list[set[str] | str], items_max: int) -> None:
    """A letter adds an item; a set takes one, and its addresses may not go. The items of an address leave in their order."""
    queue: FairQueue[tuple[str, int]] = FairQueue(items_max)
    inside: list[tuple[str, int]] = []
    for number, step in enumerate(steps):
        if isinstance(step, set):
            blocked = step
            taken = queue.take(lambda item, blocked=blocked: item[0] not in blocked)  # type: ignore[misc]
            assert (taken is None) == all(item[0] in blocked for item in inside)
            if taken is not None:
                assert taken == next(item for item in inside if item[0] == taken[0])
                assert taken[0] not in blocked
                inside.remove(taken)
        else:
            item = (step, number)
            inside.append(item)
            dropped = queue.put(step, item)
            if dropped is not None:
                assert len(inside) == items_max + 1
                inside.remove(dropped)
        assert len(queue) == len(inside) <= items_max


def test_an_address_that_may_not_go_keeps_its_place() -> None:
    queue: FairQueue[str] = FairQueue(10)
    for item in ("a1", "a2", "b1", "b2"):
        queue.put(item[0], item)
    assert queue.take(lambda item: item != "a1") == "b1"
    assert [queue.take(lambda _: True) for _ in range(3)] == ["a1", "b2", "a2"]
