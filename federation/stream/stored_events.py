"""Events of another node that are in the store of this one: acknowledgements wait for that."""

# compiled with mypyc
from __future__ import annotations

from broker.context import NO_STORE, Context


class StoredEvents:
    """Events are done in the order of their ids. A group of them is in the store with the commit that has begun when its last
    one was done; two groups are remembered, and the second one grows while the first one is written.

    Without a store every event is stored when it is done.
    """

    __slots__ = ("_context", "_first", "_first_commit", "_last", "_last_commit", "_stored")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stored = -1
        self._first = -1
        self._first_commit = 0  # 0: no event waits
        self._last = -1
        self._last_commit = 0

    def clear(self) -> None:
        """Event ids begin anew."""
        self._stored = -1
        self._first_commit = 0

    def done(self, event_id: int, is_whole: bool) -> None:
        """This event and all before it are done. is_whole: no part of them waits for receivers that are full."""
        commit = self._context.begun_commit()
        if commit != NO_STORE and not is_whole:
            return
        if commit <= 0:
            self._stored = event_id
            self._first_commit = 0
            return
        if self._first_commit == 0:
            self._first = event_id
            self._first_commit = commit
        self._last = event_id
        self._last_commit = commit

    def newest(self) -> int:
        """The id of the newest event that is in the store with all before it; -1 for none."""
        context = self._context
        while self._first_commit and context.is_committed(self._first_commit):
            self._stored = self._first
            self._first_commit = 0
            if self._last > self._first:
                self._first = self._last
                self._first_commit = self._last_commit
        return self._stored
