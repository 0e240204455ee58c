"""The newest events of all clients of a node, found by client id: they say what became of a client."""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.hooks import ClientObserver

EVENTS_MAX: Final = 5000  # of all clients together; the oldest go
BYTES_MAX: Final = 4 * 1024 * 1024  # of their texts: a client id may have 64 KiB, also that of a client that is refused
TEXT_MAX: Final = 200  # characters of a reason or a user name
VERSIONS: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5"}  # whole texts: clients without a user name share them


class ClientEvent:
    """`at` is monotonic seconds; `kind` is connected, disconnected, refused or session_ended; `text` has the reason."""

    __slots__ = ("addr", "at", "client_id", "kind", "text")

    def __init__(self, at: float, client_id: str, kind: str, addr: str, text: str) -> None:
        self.at = at
        self.client_id = client_id
        self.kind = kind
        self.addr = addr
        self.text = text


class ClientHistory(ClientObserver):
    """Refusals before a client id was read are not kept: nobody could ask for them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._events: deque[ClientEvent] = deque()
        self._bytes = 0

    def of(self, client_id: str) -> list[ClientEvent]:
        """The events of a client that are kept, the newest first."""
        return [event for event in reversed(self._events) if event.client_id == client_id]

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        text = VERSIONS.get(version) or f"MQTT {version}"
        self._note(client_id, "connected", addr, f"{text}, user {username[:TEXT_MAX]}" if username else text)

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        self._note(client_id, "disconnected", addr, reason)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        if client_id:
            self._note(client_id, "refused", addr, reason)

    def session_terminated(self, client_id: str, reason: str) -> None:
        self._note(client_id, "session_ended", "", reason)

    def _note(self, client_id: str, kind: str, addr: str, text: str) -> None:
        event = ClientEvent(self._now(), client_id, kind, addr, text if len(text) <= TEXT_MAX else text[:TEXT_MAX])
        self._events.append(event)
        self._bytes += _size(event)
        while len(self._events) > EVENTS_MAX or self._bytes > BYTES_MAX:
            self._bytes -= _size(self._events.popleft())


def _size(event: ClientEvent) -> int:
    return 4 * len(event.client_id) + len(event.addr) + 4 * len(event.text)
