"""The names of workers in the store of one of them, where its node has another name than at the start before.

Workers know each other by the name of their node, which is the host name unless the file sets one: a container that is made
anew has another one. So the store remembers it, and what it keeps for NAME/1 is for the worker 1 of the name that the node has
by now.
"""

# compiled with mypyc
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.store.identity import StoreIdentity
from broker.store.journal import Journal, StoredRecord
from broker.store.kinds import DEPARTING, HEAD, HOME, INTEREST, OUTBOX, POSITION

# Where records have names of nodes, also in tuples.
PLACES: Final[dict[object, tuple[int, ...]]] = {
    OUTBOX: (1,),
    POSITION: (4,),
    INTEREST: (1,),
    HOME: (4, 7),
    DEPARTING: (5, 6, 8, 11, 12),
    HEAD: (1,),
}


def number_of(name: str, node: str) -> int:
    """Return the index of the worker of `node` with this name, -1 where it is none."""
    if name == node:
        return 0
    rest = name.removeprefix(f"{node}/")
    return int(rest) if rest != name and rest.isdecimal() and rest.isascii() else -1


def renamed(record: tuple[object, ...], former: str, node: str) -> tuple[object, ...]:
    """Return the record as if the node had been named `node` when it was written, and not `former`."""
    places = PLACES.get(record[0], ())
    return tuple([_renamed(value, former, node) if at in places else value for at, value in enumerate(record)])


def _renamed(value: object, former: str, node: str) -> object:
    if isinstance(value, tuple):
        return tuple([_renamed(one, former, node) for one in value])
    if isinstance(value, str) and number_of(value, former) >= 0:
        return node + value.removeprefix(former)
    return value


class WorkerNames:
    """Made before the records of other nodes are restored; then `keep` writes those that have changed."""

    def __init__(self, journal: Journal | None, identity: StoreIdentity, node: str) -> None:
        """journal: None without a store. node: the name of the node that this one is a worker of, "" for none."""
        self._journal = journal
        self._node = node
        self._numbers: list[int] = []
        former = identity.node
        if journal is None or not node or former == node:
            return
        identity.node = node
        self._numbers.append(journal.own_number)
        for number, content in journal.kept.items():
            if former and isinstance(content, StoredRecord):
                record = renamed(content.stored, former, node)
                if record != content.stored:
                    content.stored = record
                    self._numbers.append(number)

    def strangers(self, names: Iterable[str], siblings: dict[str, str]) -> list[str]:
        """Return those of the names that are of workers of this node, and of none of these."""
        node = self._node
        return [name for name in names if node and number_of(name, node) >= 0 and name not in siblings]

    def keep(self) -> None:
        """In one commit, with the name of the node."""
        journal = self._journal
        for number in self._numbers:
            if journal is not None and number in journal.kept:
                journal.change(number, journal.kept[number])
