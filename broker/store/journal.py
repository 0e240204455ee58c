"""The changes of durable state that the store does not hold yet.

Durable are retained messages, and sessions with a Session Expiry Interval above 0 with their subscriptions and their QoS 1
and 2 messages. Each of them is a record with a number. A turn only notes which records changed. Their content is taken when
the batch is handed over, so that several changes of one record are written once, and a message that came and was
acknowledged in between is not written at all.
"""

# compiled with mypyc
from __future__ import annotations

from typing import TypeVar

from mypy_extensions import mypyc_attr

from broker.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Content:
    """The content of a record of another package: events for other nodes, and what is known of them."""

    __slots__ = ()

    def values(self, wall_offset: float) -> tuple[object, ...]:
        """Return the values of the record; the first one is its kind (broker/store/records.py)."""
        raise AssertionError("a content without a record")


class StoredRecord(Content):
    """A record of the store that its owner has not taken yet. Without the owner it stays as it is."""

    __slots__ = ("stored",)

    def __init__(self, stored: tuple[object, ...]) -> None:
        self.stored = stored

    def values(self, wall_offset: float) -> tuple[object, ...]:
        return self.stored


Value = TypeVar("Value")


def checked(kind: type[Value], value: object) -> Value:
    """Return a value of a record. Raises TypeError for one of another kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.50} is no {kind.__name__}")
    return value


class Journal:
    """changes      by record number: the object that the record describes, None for a record that is deleted
    next_number  of the next new record; numbers are never used again
    is_touched   a change came since `Commits.next_packet` that an acknowledgement has to wait for
    commit       number of the commit (Commits) that ends when the changes are in the store, 0 when nobody waits for it
    is_full      the store takes no changes now
    is_short     it has less copies than it must have (Replicator), and so takes none
    kept         contents of other packages by record number, those of the last start first
    first_new    records from this number on are not in any batch yet
    stored_below records below this number are in the store and its copies, as far as they were not changed since
    taken        number of batches that `take` gave; `stored` of them are in the store
    newest       the highest number of a record that any batch had
    own_number   of the record of the store itself, which tells `newest` (StoreIdentity); 0 before it is known
    """

    def __init__(self) -> None:
        self.changes: dict[int, object] = {}
        self.next_number = 1
        self.is_touched = False
        self.commit = 0
        self.is_full = False
        self.is_short = False
        self.kept: dict[int, Content] = {}
        self.stored_below = 1
        self.taken = 0
        self.stored = 0
        self.first_new = 1
        self.newest = 0
        self.own_number = 0

    def begin_behind(self, number: int) -> None:
        """The store has, or had, records up to this number."""
        self.newest = number
        self.next_number = self.first_new = self.stored_below = number + 1

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
        if number >= self.first_new:
            del self.changes[number]
        else:
            self.changes[number] = None

    def keep(self, content: Content) -> int:
        """A new record of another package. Returns its number."""
        number = self.add(content)
        self.kept[number] = content
        return number

    def drop(self, number: int) -> None:
        """Delete a record of another package."""
        del self.kept[number]
        self.remove(number)

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
        """The changes of one batch. `commit` is reset. The record with the highest number says which one that is; where it is
        deleted, the record of the store does."""
        taken = self.changes
        self.changes = {}
        newest = max(taken, default=0)
        if newest > self.newest:
            self.newest = newest
        elif self.newest in taken and taken[self.newest] is None and self.own_number:
            taken[self.own_number] = self.kept[self.own_number]
        self.first_new = self.next_number
        self.commit = 0
        self.taken += 1
        return taken

    def taken_is_stored(self) -> int:
        """All that `take` gave so far is in the store: the records below the returned number."""
        self.stored = self.taken
        return self.first_new
