"""The lines of the log about links: each change of state or error once, and where a link went that runs here no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from federation.links.handshake import Note
from federation.links.link import Link
from federation.links.links import Links
from federation.links.status import LinkState

FAILED: Final = (LinkState.ERROR, LinkState.BLOCKED)


class LinkLog:
    """`runs_on` names the other node that runs a link, or is about to; "" where none is known."""

    def __init__(self, log: Any, links: Links, runs_on: Callable[[str], str]) -> None:
        self._log = log
        self._links = links
        self._runs_on = runs_on
        self._told: dict[str, tuple[LinkState, str]] = {}
        self._details: dict[str, dict[str, str]] = {}
        self._notes: dict[str, tuple[Note, ...]] = {}
        self._sessions_lost: dict[str, int] = {}

    def changed(self, now: float) -> None:
        """Links may have changed."""
        links = self._links
        movable = links.plans()  # links for queues run on every node
        for link_id, link in links.by_id.items():
            if link_id in movable and link_id not in links.epochs:
                self._tell_ending(link_id, link)
            else:
                self._tell_lost_sessions(link_id, link)
                self._tell_state(link_id, link, now)
        for link_id in [link_id for link_id in self._told if link_id not in links.by_id]:
            details = self._details.pop(link_id)
            del self._told[link_id]
            self._notes.pop(link_id, None)
            self._sessions_lost.pop(link_id, None)
            if link_id not in movable:
                self._log.info("link removed: nothing needs it any more", **details)
            elif node := self._runs_on(link_id):
                self._log.info("link has moved to another node", **details, to=node)
            else:
                self._log.info("link has stopped", **details)

    def _tell_ending(self, link_id: str, link: Link) -> None:
        """The node stops, or another one runs the link soon; nothing has failed."""
        told = (LinkState.DRAINING, "")
        if self._told.get(link_id) != told:
            self._told[link_id] = told
            self._details[link_id] = _details(link)
            if node := self._runs_on(link_id):
                self._log.info("link moves to another node", **_details(link), to=node)

    def _tell_lost_sessions(self, link_id: str, link: Link) -> None:
        if link.sessions_lost > self._sessions_lost.get(link_id, 0):
            self._log.warning("link session lost, with what waited in it", **_details(link))
        self._sessions_lost[link_id] = link.sessions_lost

    def _tell_state(self, link_id: str, link: Link, now: float) -> None:
        state, error = told = link.state, link.last_error
        before = self._told.get(link_id)
        if before == told or (before is not None and before[0] in FAILED and state is LinkState.STARTING):
            return  # another try of a link that has failed is told by what becomes of it
        self._told[link_id] = told
        details = self._details[link_id] = _details(link)
        if state is LinkState.INVALID:
            self._log.error("link invalid", **details, error=error)
        elif state in FAILED:
            seconds = round(max(0.0, link.next_timeout() - now), 1)
            self._log.warning(f"link {state.value}", **details, error=error, next_try_seconds=seconds)
        else:
            self._log.info(f"link {state.value}", **details)
            if state is LinkState.RUNNING:
                self._tell_notes(link_id, link.notes, details)

    def _tell_notes(self, link_id: str, notes: tuple[Note, ...], details: dict[str, str]) -> None:
        """Tell what the upstream grants less, when that is something else than the last time."""
        before = self._notes.get(link_id, ())
        self._notes[link_id] = notes
        for note in notes:
            if note not in before:
                tell = self._log.warning if note.is_warning else self._log.info
                tell("the upstream grants less than asked", **details, note=note.text)


def _details(link: Link) -> dict[str, str]:
    return {"upstream": link.plan.upstream.name, "id": link.plan.link_id, "uri": link.address.redacted()}
