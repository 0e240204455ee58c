"""Which numbered messages of other domains came already, and over how few links: a message that comes on several ways is
published once.

Each node has a window. It is asked about the copies that its links bring, and about those that other nodes of the domain have
published and pass on. The numbers of one origin are kept in pages of PAGE_NUMBERS bytes. Bounds: pages of all origins together.
Policy: the page that was not used for the longest time goes; a message of such a page counts as new, so that nothing is lost.
`evicted` counts pages that went.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.link_header import LinkHeader

PAGE_NUMBERS: Final = 1_024
PAGES_MAX: Final = 16_384  # 16 MiB
NEW: Final = 0
SEEN: Final = -1

_HOPS: Final = 0x7F
_IS_OWN: Final = 0x80  # a link of this node brought the first copy


class DuplicateWindow:
    """`duplicates` counts copies that came before over as few links."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self.pages_max = pages_max
        self.duplicates = 0
        self.evicted = 0
        self._pages: OrderedDict[tuple[bytes, bytes, int], bytearray] = OrderedDict()

    def judge(self, header: LinkHeader, is_own: bool, is_resent: bool) -> int:
        """Note a copy of a message. NEW, also where it has no number or is of this domain; SEEN, when it came before over as
        few links; otherwise the number of links of the best copy before, which has passed more of them.

        is_own     a link of this node brings it, not another node of the domain
        is_resent  its upstream has sent it before. Then a copy that another node has published does not count: that node may
                   have died before all others had it
        """
        hops = len(header.path)
        if not header.node or hops == 0:
            return NEW
        page = self._page((header.path[0], header.node, header.sequence // PAGE_NUMBERS))
        at = header.sequence % PAGE_NUMBERS
        known = page[at]
        before = known & _HOPS
        if known == 0 or (is_resent and known < _IS_OWN):
            page[at] = (hops if known == 0 else min(hops, before)) | (_IS_OWN if is_own else 0)
            return NEW
        if hops < before:
            page[at] = known - before + hops
            return before
        self.duplicates += 1
        return SEEN

    def _page(self, key: tuple[bytes, bytes, int]) -> bytearray:
        pages = self._pages
        page = pages.get(key)
        if page is not None:
            pages.move_to_end(key)
            return page
        if len(pages) >= self.pages_max:
            pages.popitem(last=False)
            self.evicted += 1
        page = pages[key] = bytearray(PAGE_NUMBERS)
        return page
