"""The changes of durable state that the store does not hold yet.

Durable are retained messages, and sessions with a Session Expiry Interval above 0 with their subscriptions and their QoS 1
and 2 messages. Each of them is a record with a number. A turn only notes which records changed. Their content is taken when
the batch is handed over, so that several changes of one record are written once, and a message that came and was
acknowledged in between is not written at all.
"""

# compiled with mypyc
from __future__ import annotations

from broker.message import Message


class Journal:
    """changes      by record number: the object that the record describes, None for a record that is deleted
    next_number  of the next new record; numbers are never used again
    is_touched   a change came since `Commits.next_packet` that an acknowledgement has to wait for
    commit       number of the commit (Commits) that ends when the changes are in the store, 0 when nobody waits for it
    is_full      the store takes no changes now
    """

    def __init__(self) -> None:
        self.changes: dict[int, object] = {}
        self.next_number = 1
        self.is_touched = False
        self.commit = 0
        self.is_full = False
        self._first_new = 1  # records from this number on are not in any batch yet

    def begin_behind(self, number: int) -> None:
        """The store has records up to this number."""
        self.next_number = self._first_new = number + 1

    def add(self, content: object) -> int:
        """A new record. Returns its number."""
        number = self.next_number
        self.next_number = number + 1
        self.changes[number] = content
        self.is_touched = True
        return number

    def change(self, number: int, content: object) -> None:
        """The object that the record describes has changed."""
        self.changes[number] = content
        self.is_touched = True

    def remove(self, number: int) -> None:
        """Delete the record. No acknowledgement waits for this alone."""
        if number >= self._first_new:
            del self.changes[number]
        else:
            self.changes[number] = None

    def add_reference(self, message: Message) -> int:
        """One more record refers to the message. The first one adds the record of the message. Returns its number."""
        if message.references == 0:
            message.record = self.add(message)
        message.references += 1
        return message.record

    def remove_reference(self, message: Message) -> None:
        """One record less refers to the message. The record of the message ends with the last one."""
        message.references -= 1
        if message.references == 0:
            self.remove(message.record)
            message.record = 0

    def take(self) -> dict[int, object]:
        """The changes of one batch. `commit` is reset."""
        taken = self.changes
        self.changes = {}
        self._first_new = self.next_number
        self.commit = 0
        return taken
