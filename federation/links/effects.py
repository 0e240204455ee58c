"""What is to be done for a link outside of its core: its relay and itself note it, its owner looks at the end of each turn."""

# compiled with mypyc
from __future__ import annotations


class Effects:
    """Of one link. `due`: the links of the node with something to do, by id.

    has_moved  the link has another attempt or deadline, in a call that did not come from its shell
    local_end  why the broker has ended the local connection; "" before
    """

    def __init__(self, link_id: str, due: dict[str, None]) -> None:
        self.has_moved = False
        self.local_end = ""
        self._link_id = link_id
        self._due = due

    def note(self) -> None:
        """There is output for the upstream, or it is read again or no more."""
        self._due[self._link_id] = None

    def move(self) -> None:
        self.has_moved = True
        self.note()

    def end_local(self, reason: str) -> None:
        self.local_end = reason
        self.note()

    def take_moved(self) -> bool:
        has_moved = self.has_moved
        self.has_moved = False
        return has_moved
