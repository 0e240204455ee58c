"""Which numbered messages came already: a message that comes on two paths is passed on once.

The numbers of one origin are kept as bitmaps of PAGE_NUMBERS numbers. Bounds: pages of all origins together. Policy: the page
that was not used for the longest time goes; a message of such a page counts as new, so that nothing is lost. `evicted` counts
pages that went.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.link_header import LinkHeader

PAGE_NUMBERS: Final = 8_192  # 1 KiB for each page
PAGES_MAX: Final = 16_384  # 16 MiB


class DuplicateWindow:
    """`is_new` is asked once for each message that comes; `duplicates` counts those that came before."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self.pages_max = pages_max
        self.duplicates = 0
        self.evicted = 0
        self._pages: OrderedDict[tuple[bytes, bytes, int], bytearray] = OrderedDict()

    def is_new(self, header: LinkHeader) -> bool:
        """Note the message. False when it came before. A message without a number is always new."""
        if not header.node:
            return True
        domain = header.path[0] if header.path else b""
        pages = self._pages
        key = (domain, header.node, header.sequence // PAGE_NUMBERS)
        page = pages.get(key)
        if page is None:
            if len(pages) >= self.pages_max:
                pages.popitem(last=False)
                self.evicted += 1
            page = pages[key] = bytearray(PAGE_NUMBERS // 8)
        else:
            pages.move_to_end(key)
        at = header.sequence % PAGE_NUMBERS
        bit = 1 << (at & 7)
        if page[at >> 3] & bit:
            self.duplicates += 1
            return False
        page[at >> 3] |= bit
        return True
