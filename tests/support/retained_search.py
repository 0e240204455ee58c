"""A search through a retained store, from its begin to its end."""

from __future__ import annotations

from broker.message import Message
from broker.routing.retained import RetainedStore, RetainedWalk


def matching(store: RetainedStore, topic_filter: bytes, now: float) -> list[Message]:
    """The messages whose topic the filter matches and that have not expired."""
    found: list[Message] = []
    walk = RetainedWalk(store, topic_filter)
    while not walk.is_done():
        walk.advance(1_000_000)
        if walk.found is not None and walk.found.expires_at > now:
            found.append(walk.found)
    return found
