"""Bounds of a page."""

from __future__ import annotations

import pytest

from broker.api.fields import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, page_bounds


@pytest.mark.parametrize(
    ("page", "page_size", "bounds"),
    [
        (0, 0, (0, PAGE_SIZE_DEFAULT)),
        (1, 0, (0, PAGE_SIZE_DEFAULT)),
        (3, 4, (8, 4)),
        (2, PAGE_SIZE_MAX, (PAGE_SIZE_MAX, PAGE_SIZE_MAX)),
        (2, PAGE_SIZE_MAX + 1, (PAGE_SIZE_MAX, PAGE_SIZE_MAX)),
        (2, 2**32 - 1, (PAGE_SIZE_MAX, PAGE_SIZE_MAX)),
    ],
)
def test_a_page_size_above_the_maximum_is_cut_to_it(page: int, page_size: int, bounds: tuple[int, int]) -> None:
    assert page_bounds(page, page_size) == bounds
