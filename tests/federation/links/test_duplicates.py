"""The window of duplicates beside a set of all numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.link_header import LinkHeader
from federation.links.duplicates import PAGE_NUMBERS, DuplicateWindow

ORIGINS = st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([b"n~1", b"m~1"]), st.integers(0, 4 * PAGE_NUMBERS))


@given(st.lists(ORIGINS, max_size=200))
def test_each_number_of_an_origin_is_new_once(origins: list[tuple[bytes, bytes, int]]) -> None:
    window = DuplicateWindow()
    seen: set[tuple[bytes, bytes, int]] = set()
    for domain, node, sequence in origins:
        is_new = window.is_new(LinkHeader((domain, b"between"), node, sequence))
        assert is_new == ((domain, node, sequence) not in seen)
        seen.add((domain, node, sequence))
    assert window.duplicates == len(origins) - len(seen)


@given(st.lists(ORIGINS, max_size=200), st.integers(1, 4))
def test_a_bounded_window_takes_no_new_message_for_a_duplicate(
    origins: list[tuple[bytes, bytes, int]], pages_max: int
) -> None:
    window = DuplicateWindow(pages_max)
    seen: set[tuple[bytes, bytes, int]] = set()
    for origin in origins:
        domain, node, sequence = origin
        if origin not in seen:
            assert window.is_new(LinkHeader((domain,), node, sequence))
        else:
            window.is_new(LinkHeader((domain,), node, sequence))
        seen.add(origin)


def test_two_paths_that_are_far_apart_deliver_once() -> None:
    window = DuplicateWindow(pages_max=20)
    count = 10 * PAGE_NUMBERS
    lag = 8 * PAGE_NUMBERS
    passed = 0
    for number in range(count + lag):
        if number < count:
            passed += window.is_new(LinkHeader((b"root", b"left"), b"n~1", number))
        if number >= lag:
            passed += window.is_new(LinkHeader((b"root", b"right"), b"n~1", number - lag))
    assert passed == count
    assert window.duplicates == count
    assert window.evicted == 0


def test_a_full_window_forgets_the_page_that_was_not_used_for_the_longest_time() -> None:
    window = DuplicateWindow(pages_max=2)
    assert window.is_new(LinkHeader((b"a",), b"n~1", 0))
    assert window.is_new(LinkHeader((b"b",), b"n~1", 0))
    assert not window.is_new(LinkHeader((b"a",), b"n~1", 0))
    assert window.is_new(LinkHeader((b"c",), b"n~1", 0))
    assert window.evicted == 1
    assert not window.is_new(LinkHeader((b"a",), b"n~1", 0))
    assert window.is_new(LinkHeader((b"b",), b"n~1", 0))


def test_messages_without_a_number_are_always_new() -> None:
    window = DuplicateWindow()
    assert window.is_new(LinkHeader((b"a",)))
    assert window.is_new(LinkHeader((b"a",)))
