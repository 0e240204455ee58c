"""Where the links of a cluster have their sessions at upstreams, as a node hears it from the members that run the links.

An upstream may have several addresses, and a session is at one of them. The word of the member that runs a link with the
highest epoch counts, also after that member is gone: the next one goes on with the session, and leaves no second one behind.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from federation.links.ownership_table import Phase, Row
from federation.links.reconnecting import SessionPlace


class _Session(NamedTuple):
    """`epoch` and `node` are those of the member that ran the link as it said so; 0 and "" for what comes from elsewhere."""

    epoch: int
    node: str
    place: SessionPlace | None


class KnownSessions:
    """`places`: what the process before knew."""

    def __init__(self, places: Mapping[str, SessionPlace]) -> None:
        self._sessions = {link_id: _Session(0, "", place) for link_id, place in places.items()}

    def place(self, link_id: str) -> SessionPlace | None:
        """Return where a link has its session; None for nowhere."""
        known = self._sessions.get(link_id)
        return None if known is None else known.place

    def places(self) -> dict[str, SessionPlace]:
        """Return those of all links, by id."""
        return {link_id: found.place for link_id, found in self._sessions.items() if found.place is not None}

    def note(self, link_id: str, epoch: int, node: str, place: SessionPlace | None) -> bool:
        """A member runs the link with this epoch, and has its session there. False where one with a higher epoch has spoken."""
        known = self._sessions.get(link_id)
        if known is not None and (known.epoch, known.node) > (epoch, node):
            return False
        self._sessions[link_id] = _Session(epoch, node, place)
        return True

    def hear(self, node: str, row: Row) -> None:
        """A member tells its row. One that does not run the link counts only where nothing is known."""
        if row.phase in (Phase.RUNS, Phase.DRAINS):
            self.note(row.link_id, row.epoch, node, row.session)
        elif row.link_id not in self._sessions and row.session is not None:
            self._sessions[row.link_id] = _Session(0, "", row.session)

    def forget(self, link_id: str) -> None:
        """The link is no longer defined here."""
        self._sessions.pop(link_id, None)

    def keep(self, link_ids: Container[str]) -> None:
        """Forget the sessions of all other links."""
        self._sessions = {link_id: found for link_id, found in self._sessions.items() if link_id in link_ids}
