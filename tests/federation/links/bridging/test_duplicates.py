"""The window of duplicates beside a dict of all numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.origin import PATH_MAX, Origin
from federation.links.bridging.own_domain import NEW, PAGE_NUMBERS, SEEN, DuplicateWindow

COPIES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b"]),
        st.sampled_from([b"n~1", b"m~1"]),
        st.one_of(st.integers(0, 3), st.integers(0, 4 * PAGE_NUMBERS)),
        st.integers(1, PATH_MAX),
        st.booleans(),
        st.booleans(),
    ),
    max_size=200,
)


def header(domain: bytes, node: bytes, sequence: int, hops: int) -> Origin:
    return Origin((domain, *[b"d%d" % number for number in range(1, hops)]), node, sequence)


def bring(window: DuplicateWindow, found: Origin, is_own: bool = True, is_resent: bool = False) -> int:
    """A copy comes, and is published unless it came before."""
    hops_before = window.judge(found, is_resent)
    if hops_before != SEEN:
        window.note(found, hops_before, is_own)
    return hops_before


@given(COPIES)
def test_a_copy_is_new_once_and_shorter_ones_are_told_apart(
    copies: list[tuple[bytes, bytes, int, int, bool, bool]],
) -> None:
    window = DuplicateWindow()
    known: dict[tuple[bytes, bytes, int], tuple[int, bool]] = {}
    for domain, node, sequence, hops, is_own, is_resent in copies:
        key = (domain, node, sequence)
        before, was_own = known.get(key, (0, False))
        found = bring(window, header(domain, node, sequence, hops), is_own, is_resent)
        if not before or (is_resent and not was_own):
            assert found == NEW
            known[key] = (min(hops, before or hops), is_own)
        elif hops < before:
            assert found == before
            known[key] = (hops, was_own)
        else:
            assert found == SEEN


@given(COPIES, st.integers(1, 4))
def test_a_bounded_window_takes_no_new_message_for_a_duplicate(
    copies: list[tuple[bytes, bytes, int, int, bool, bool]], pages_max: int
) -> None:
    window = DuplicateWindow(pages_max)
    seen: set[tuple[bytes, bytes, int]] = set()
    for domain, node, sequence, hops, is_own, is_resent in copies:
        found = bring(window, header(domain, node, sequence, hops), is_own, is_resent)
        assert found == NEW or (domain, node, sequence) in seen
        seen.add((domain, node, sequence))


def test_two_paths_that_are_far_apart_deliver_once() -> None:
    window = DuplicateWindow(pages_max=20)
    count = 10 * PAGE_NUMBERS
    lag = 8 * PAGE_NUMBERS
    passed = 0
    for number in range(count + lag):
        if number < count:
            passed += bring(window, Origin((b"root", b"left"), b"n~1", number)) == NEW
        if number >= lag:
            passed += bring(window, Origin((b"root", b"right"), b"n~1", number - lag)) == NEW
    assert passed == count
    assert window.evicted == 0


def test_a_full_window_forgets_the_page_that_was_not_used_for_the_longest_time() -> None:
    window = DuplicateWindow(pages_max=2)

    def judge(domain: bytes) -> int:
        return bring(window, Origin((domain,), b"n~1", 0))

    assert [judge(domain) for domain in (b"a", b"b", b"a", b"c")] == [NEW, NEW, SEEN, NEW]
    assert window.evicted == 1
    assert [judge(domain) for domain in (b"a", b"b")] == [SEEN, NEW]


def test_messages_without_a_number_and_of_this_domain_are_always_new() -> None:
    window = DuplicateWindow()
    for found in (Origin((b"a",)), Origin((), b"n~1", 3)):
        assert [bring(window, found) for _ in range(2)] == [NEW, NEW]


def test_a_copy_that_is_not_published_does_not_count() -> None:
    window = DuplicateWindow()
    found = Origin((b"a",), b"n~1", 3)
    assert [window.judge(found, False) for _ in range(2)] == [NEW, NEW]
    window.note(found, NEW, True)
    assert window.judge(found, False) == SEEN
