"""The memory of all connections whose CONNECT is not accepted yet: their input, and the state of layers in front of MQTT."""

# compiled with mypyc
from __future__ import annotations

from collections import OrderedDict


class Unaccepted:
    """Oldest first. Nobody has authenticated these clients, so what they take is bounded as a whole: at the bound the oldest
    connection ends, because a client that means to connect is done in a moment.

    bytes   of all of them
    closed  number of connections that ended at the bound
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.closed = 0
        self._bytes: OrderedDict[object, int] = OrderedDict()

    def note(self, connection: object, size: int) -> None:
        """Return what a connection has now."""
        self.bytes += size - self._bytes.get(connection, 0)
        self._bytes[connection] = size

    def forget(self, connection: object) -> None:
        """The connection is accepted, or has ended."""
        self.bytes -= self._bytes.pop(connection, 0)

    def take_oldest(self, bytes_max: int) -> object | None:
        """The connection to close because all have more than `bytes_max`; None while they are within it."""
        if self.bytes <= bytes_max:
            return None
        oldest, size = self._bytes.popitem(last=False)
        self.bytes -= size
        self.closed += 1
        return oldest

    def __len__(self) -> int:
        return len(self._bytes)
