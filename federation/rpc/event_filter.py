"""The choice of events of a stream of the RPC: `member-join,user:deploy,query` (wire-gossip 11.4)."""

from __future__ import annotations

from typing import Final

from federation.serf.events import (
    Event,
    MemberEvent,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberUpdate,
    QueryReceived,
    UserEventReceived,
)

MEMBER_EVENTS: Final[dict[type, str]] = {
    MemberJoin: "member-join",
    MemberLeave: "member-leave",
    MemberFailed: "member-failed",
    MemberUpdate: "member-update",
    MemberReap: "member-reap",
}
USER: Final = "user"
QUERY: Final = "query"
_KINDS: Final = frozenset((*MEMBER_EVENTS.values(), USER, QUERY))


class EventFilter:
    """ValueError for text that is no filter. Empty text and `*` let all events pass."""

    def __init__(self, text: str) -> None:
        self._wanted: set[tuple[str, str]] = set()
        self._is_all = False
        for part in (text or "*").split(","):
            kind, has_name, name = part.strip().partition(":")
            if kind == "*" and not has_name:
                self._is_all = True
            elif kind not in _KINDS or (has_name and (kind not in (USER, QUERY) or not name)):
                raise ValueError("Invalid event filter")
            else:
                self._wanted.add((kind, name))

    def passes(self, event: Event | MemberEvent) -> bool:
        if isinstance(event, UserEventReceived):
            kind, name = USER, event.name
        elif isinstance(event, QueryReceived):
            kind, name = QUERY, event.query.name
        else:
            kind, name = MEMBER_EVENTS.get(type(event), ""), ""
        return bool(kind) and (self._is_all or (kind, "") in self._wanted or (kind, name) in self._wanted)
