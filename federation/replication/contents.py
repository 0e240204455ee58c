"""The records of a replica by what they belong to. It is made when they become this node's own."""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from broker.store.journal import checked
from broker.store.kinds import DEPARTING, ENDED, HOME, OUTBOX, OUTGOING, POSITION, RECEIVED, SESSION, SUBSCRIPTION, WILL

OF_SESSION: Final = (
    SUBSCRIPTION,
    OUTGOING,
    RECEIVED,
    DEPARTING,
)  # their second value is the number of a session's record
WITH_CLIENT: Final = (SESSION, WILL)  # one for each client; another session of it may be leaving
OF_NODE: Final = (POSITION, OUTBOX, ENDED)
OF_CLIENT: Final = (*WITH_CLIENT, HOME)  # their second value is a client id

Record = tuple[object, ...]


def check_record(record: Record) -> None:
    """Raises TypeError for a record that belongs nowhere."""
    kind = record[0]
    if kind in OF_SESSION:
        checked(int, record[1] if len(record) > 1 else None)
    elif kind in OF_CLIENT:
        checked(str, record[1] if len(record) > 1 else None)


class Contents:
    """records   by number
    sessions  by the number of the record of a session, or of a will that none has: the numbers of those that belong to it
    homes     the number of the record HOME, by client id
    others    numbers of records of the node: what it has done of others, has for others, and tells others of
    """

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.sessions: dict[int, dict[int, None]] = {}
        self.homes: dict[str, int] = {}
        self.others: dict[int, None] = {}

    def take(self, records: Mapping[int, Record | None]) -> None:
        """Records as they are now, None for a deleted one; `check_record` has passed them."""
        for number, record in records.items():
            if number in self.records:
                self._remove(number)
            if record is not None:
                self._put(number, record)

    def _put(self, number: int, record: Record) -> None:
        self.records[number] = record
        kind = record[0]
        if kind in WITH_CLIENT:
            self.sessions.setdefault(number, {})
        elif kind == HOME:
            client_id = cast(str, record[1])
            self.homes[client_id] = max(number, self.homes.get(client_id, 0))
        elif kind in OF_SESSION:
            self.sessions.setdefault(cast(int, record[1]), {})[number] = None
        elif kind in OF_NODE:
            self.others[number] = None

    def _remove(self, number: int) -> None:
        record = self.records.pop(number)
        kind = record[0]
        if kind == HOME:
            if self.homes.get(cast(str, record[1])) == number:
                del self.homes[cast(str, record[1])]
        elif kind in OF_SESSION:
            self.sessions[cast(int, record[1])].pop(number, None)
        elif kind in OF_NODE:
            del self.others[number]
