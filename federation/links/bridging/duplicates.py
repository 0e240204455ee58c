"""Remembers which numbered messages of other domains came already, and over how few links.

So a message that comes on several ways is published once.

Each node has a window. It is asked about the copies that its links bring, and about those that other nodes of the domain have
published and pass on. The numbers of one origin are kept in pages of PAGE_NUMBERS bytes. Bounds: pages of all origins together.
Policy: the page that was not used for the longest time goes; a message of such a page counts as new, so that nothing is lost.
`evicted` counts pages that went.
"""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.origin import Origin

PAGE_NUMBERS: Final = 1_024
PAGES_MAX: Final = 16_384  # 16 MiB
NEW: Final = 0
SEEN: Final = -1

_HOPS: Final = 0x7F
_IS_OWN: Final = 0x80  # a link of this node brought the first copy


class DuplicateWindow:
    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self.pages_max = pages_max
        self.evicted = 0
        self._pages: OrderedDict[tuple[bytes, bytes, int], bytearray] = OrderedDict()

    def judge(self, origin: Origin, is_resent: bool) -> int:
        """NEW for a copy of a message that did not come before, has no number or is of this domain; SEEN, when one came over as
        few links; otherwise the number of links of the best copy before, which has passed more of them. `note` follows for a
        copy that is published.

        is_resent  its upstream has sent it before. Then a copy that another node has published does not count: that node may
                   have died before all others had it
        """
        hops = len(origin.path)
        if not origin.node or hops == 0:
            return NEW
        key = _key(origin)
        page = self._pages.get(key)
        if page is None:
            return NEW
        self._pages.move_to_end(key)
        known = page[origin.sequence % PAGE_NUMBERS]
        if known == 0 or (is_resent and known < _IS_OWN):
            return NEW
        before = known & _HOPS
        if hops < before:
            return before
        return SEEN

    def note(self, origin: Origin, hops_before: int, is_own: bool) -> None:
        """A copy is published. One that is refused does not count: the next one may come over a link that has more rights.

        hops_before  what `judge` has said, not SEEN
        is_own       a link of this node brings it, not another node of the domain
        """
        hops = len(origin.path)
        if not origin.node or hops == 0:
            return
        page = self._page(_key(origin))
        at = origin.sequence % PAGE_NUMBERS
        known = page[at]
        page[at] = min(hops, known & _HOPS or hops) | known & _IS_OWN
        if is_own and hops_before == NEW:
            page[at] |= _IS_OWN

    def _page(self, key: tuple[bytes, bytes, int]) -> bytearray:
        pages = self._pages
        page = pages.get(key)
        if page is None:
            if len(pages) >= self.pages_max:
                pages.popitem(last=False)
                self.evicted += 1
            page = pages[key] = bytearray(PAGE_NUMBERS)
        return page


def _key(origin: Origin) -> tuple[bytes, bytes, int]:
    return origin.path[0], origin.node, origin.sequence // PAGE_NUMBERS
