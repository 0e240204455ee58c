"""The interest of other nodes as the store keeps it, so that a node that starts fills the outboxes of those that are away.

Filters are kept in pages: one record for each would cost a node with many filters as many records, and one record for all a
large write for each change. A node that wants nothing has a page, too: what it has for others, or publishes before it hears
where sessions are by now, is waited for.
"""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.store.journal import Content, Journal, StoredRecord, checked
from broker.store.kinds import INTEREST

PAGE_FILTERS: Final = 64


class InterestPage(Content):
    """Some of the filters of one node, with what is said along with each."""

    __slots__ = ("filters", "node", "number")

    def __init__(self, node: str) -> None:
        self.node = node
        self.filters: dict[tuple[bytes, bytes], bytes] = {}
        self.number = 0

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """(INTEREST, node name, ((share name, topic filter, note), ...))."""
        filters = tuple([(share_name, topic_filter, note) for (share_name, topic_filter), note in self.filters.items()])
        return INTEREST, self.node, filters


class NodePages:
    """Of one node: the page of each filter, and a page with room."""

    def __init__(self) -> None:
        self.page_of: dict[tuple[bytes, bytes], InterestPage] = {}
        self.with_room: dict[InterestPage, None] = {}


class StoredInterest:
    """Filters of nodes, by the name of the node."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._nodes: dict[str, NodePages] = {}

    def meets(self, node: str) -> None:
        """It is known again after a start."""
        if node not in self._nodes:
            pages = self._nodes[node] = NodePages()
            self._page_with_room(node, pages)

    def forget(self, node: str) -> None:
        """It is no member any more, and wants nothing."""
        for page in self._nodes.pop(node, NodePages()).with_room:
            self._journal.drop(page.number)

    def set(self, node: str, key: tuple[bytes, bytes], note: bytes) -> None:
        """The node has interest in (share name, topic filter), or says another note along."""
        self.meets(node)
        pages = self._nodes[node]
        page = pages.page_of.get(key)
        if page is None:
            page = self._page_with_room(node, pages)
            pages.page_of[key] = page
        page.filters[key] = note
        if len(page.filters) >= PAGE_FILTERS:
            pages.with_room.pop(page, None)
        self._journal.change(page.number, page)

    def _page_with_room(self, node: str, pages: NodePages) -> InterestPage:
        for page in pages.with_room:
            return page
        new = InterestPage(node)
        new.number = self._journal.keep(new)
        pages.with_room[new] = None
        return new

    def remove(self, node: str, key: tuple[bytes, bytes]) -> None:
        pages = self._nodes[node]
        page = pages.page_of.pop(key)
        del page.filters[key]
        if page.filters or not pages.page_of:
            pages.with_room[page] = None
            self._journal.change(page.number, page)
        else:
            pages.with_room.pop(page, None)
            self._journal.drop(page.number)

    def restore(self, number: int, record: StoredRecord) -> InterestPage:
        """Raises ValueError and TypeError for a record that is none."""
        _, node, filters = record.stored
        page = InterestPage(checked(str, node))
        page.number = number
        pages = self._nodes.get(page.node)
        if pages is None:
            pages = self._nodes[page.node] = NodePages()
        for share_name, topic_filter, note in checked(tuple, filters):
            key = (checked(bytes, share_name), checked(bytes, topic_filter))
            if key in pages.page_of:
                raise ValueError(f"a filter of {page.node} is there twice: {topic_filter!r:.50}")
            page.filters[key] = checked(bytes, note)
            pages.page_of[key] = page
        if len(page.filters) < PAGE_FILTERS:
            pages.with_room[page] = None
        self._journal.kept[number] = page
        return page
