"""A bounded queue in which each address has its turn: thousands of logins from one do not delay those from others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """At most `items_max` items. When it is full an address gives way that has more waiting than the new one."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._length = 0
        self._by_address: dict[str, deque[Item]] = {}  # in the order of their turns

    def __len__(self) -> int:
        return self._length

    def put(self, address: str, item: Item) -> Item | None:
        """Add an item. Returns the item that has no place: None, the new one, or the last of the address with most items."""
        dropped: Item | None = None
        if self._length >= self._items_max:
            longest = max(self._by_address, key=lambda key: len(self._by_address[key]))
            if len(self._by_address[longest]) <= len(self._by_address.get(address, ())) + 1:
                return item
            dropped = self._by_address[longest].pop()
            self._length -= 1
        self._by_address.setdefault(address, deque()).append(item)
        self._length += 1
        return dropped

    def take(self, may_go: Callable[[Item], bool]) -> Item | None:
        """Return the next item that may go, of the address whose turn it is. An address whose first item may not go keeps its
        place, and the turn goes to the next one. None when there is no item that may go."""
        address = next((address for address, waiting in self._by_address.items() if may_go(waiting[0])), None)
        if address is None:
            return None
        waiting = self._by_address.pop(address)
        item = waiting.popleft()
        self._length -= 1
        if waiting:
            self._by_address[address] = waiting
        return item
