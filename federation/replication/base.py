"""The base of a copy: all that a store has, a few sessions at a time, each as it is when its turn comes.

What changes afterwards comes in batches of the store. So it does no harm that these, and a part of the base, may tell the same
twice: the newest batch tells it last.
"""

# compiled with mypyc
from __future__ import annotations

from broker.broker import Broker
from broker.session.session import Session
from broker.store.journal import Content, Journal
from broker.store.records import durable_sessions, encode_changes, note_contents
from federation.replication.contents import Record
from federation.replication.replica import COPIED_KINDS


class Base:
    """number  of the last batch that the store had begun to write when the base began"""

    def __init__(self, broker: Broker, journal: Journal, number: int) -> None:
        self.number = number
        self._broker = broker
        self._journal = journal
        self._sessions: list[Session] = durable_sessions(broker)
        self._kept: list[int] = list(journal.kept)
        self._session_at = 0
        self._kept_at = 0

    def is_over(self) -> bool:
        return self._session_at == len(self._sessions) and self._kept_at == len(self._kept)

    def next_records(self, records_max: int) -> dict[int, Record | None]:
        """About so many records; a session is never cut."""
        found: dict[int, object] = {}
        while self._session_at < len(self._sessions) and len(found) < records_max:
            note_contents(self._sessions[self._session_at], found)
            self._session_at += 1
        while self._kept_at < len(self._kept) and len(found) < records_max:
            number = self._kept[self._kept_at]
            self._kept_at += 1
            content: Content | None = self._journal.kept.get(number)
            if content is not None:
                found[number] = content
        first_new = self._journal.first_new  # what is newer comes in a batch, or is gone before
        known = {number: content for number, content in found.items() if number < first_new}
        return copied(encode_changes(known, self._broker.wall_offset))


def copied(batch: dict[int, Record | None]) -> dict[int, Record | None]:
    """Return the records of a batch that belong into a copy."""
    return {number: record for number, record in batch.items() if record is None or record[0] in COPIED_KINDS}
