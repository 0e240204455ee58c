"""Which messages of an upstream of ours a link passes on into this domain, by their headers."""

from __future__ import annotations

from broker.counters import DROP_LINK_DUPLICATE, DROP_LINK_HOPS
from broker.link_header import LinkGate, LinkHeader
from federation.links.duplicates import DuplicateWindow


class IncomingGate(LinkGate):
    """`window` is that of the node, shared by all its links. `dropped`: messages that were not published, by reason."""

    def __init__(self, max_hops: int, window: DuplicateWindow) -> None:
        self.dropped: dict[str, int] = {}
        self._max_hops = max_hops
        self._window = window

    def refuses(self, header: LinkHeader) -> str:
        """A message that has passed more links than max-hops allows, or that came on another path before."""
        if len(header.path) > self._max_hops:
            return DROP_LINK_HOPS
        return "" if self._window.is_new(header) else DROP_LINK_DUPLICATE

    def count_refused(self, reason: str, count: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count
