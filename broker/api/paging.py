"""Pages of a list: `page` counts from 1, 0 of either number is the default."""

from __future__ import annotations

from typing import Final

from broker.api.errors import invalid_argument

PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 1000  # a page is made in one turn of the loop: this many keep it to milliseconds


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """(offset, count) of the wanted page. Raises ApiError."""
    if page_size > PAGE_SIZE_MAX:
        raise invalid_argument(f"page_size is {page_size}, may be at most {PAGE_SIZE_MAX}")
    size = page_size or PAGE_SIZE_DEFAULT
    return (max(page, 1) - 1) * size, size
