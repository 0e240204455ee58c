"""`log.clients`: a line of the log for each client that connects, disconnects or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker.hooks import ClientObserver
from broker.server.logging import get_logger

LINES_MAX: Final = 100  # a second at the level info, so that clients that reconnect all the time do not fill the disk


class ClientLog(ClientObserver):
    """Writes at most LINES_MAX lines a second, or every line at the level debug. `left_out_before` in the next line is the
    number of omitted lines."""

    def __init__(self, time: Callable[[], float], level: str) -> None:
        self._time = time
        self._is_bounded = level != "debug"
        self._log = get_logger("client")
        self._second_began_at = time()
        self._lines = 0  # in that second
        self._left_out = 0

    def client_connected(self, client_id: str, addr: str, version: int, username: str, keep_alive: int) -> None:
        self._write(
            "connected", client_id=client_id, addr=addr, version=version, username=username, keep_alive=keep_alive
        )

    def client_disconnected(self, client_id: str, addr: str, reason: str) -> None:
        self._write("disconnected", client_id=client_id, addr=addr, reason=reason)

    def client_refused(self, client_id: str, addr: str, username: str, reason: str) -> None:
        self._write("refused", client_id=client_id, addr=addr, username=username, reason=reason)

    def _write(self, event: str, **fields: Any) -> None:
        now = self._time()
        if now - self._second_began_at >= 1.0:
            self._second_began_at = now
            self._lines = 0
        self._lines += 1
        if self._is_bounded and self._lines > LINES_MAX:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out_before"] = self._left_out
            self._left_out = 0
        self._log.info(event, **fields)
