"""Pages of a list. `page` counts from 1; 0 stands for the default of either number."""

from __future__ import annotations

from typing import Final

PAGE_SIZE_DEFAULT: Final = 20
PAGE_SIZE_MAX: Final = 1000  # a larger page_size is cut to it, so that scripts for the Go broker work


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """(offset, count) of a page in the list."""
    size = min(page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
    return (max(page, 1) - 1) * size, size
