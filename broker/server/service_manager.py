"""systemd is told of this process (sd_notify(3)): that it is ready, reloads, stops, and is alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import Final

MICROSECONDS: Final = 1_000_000


class ServiceManager:
    """Does nothing where NOTIFY_SOCKET is not set. A message that cannot be sent is left out: the service manager has its own
    deadlines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchdog: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """The node serves clients, at the start or after a reload."""
        self._send("READY=1")
        interval = watchdog_seconds()
        if interval and self._watchdog is None:
            self._alive(interval)

    def reloading(self) -> None:
        self._send(reloading_text())

    def stopping(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        self._send("STOPPING=1")

    def _alive(self, interval: float) -> None:
        self._send("WATCHDOG=1")
        self._watchdog = self._loop.call_later(interval, self._alive, interval)

    def _send(self, text: str) -> None:
        notify(text)


def watchdog_seconds() -> float:
    """Return half of the time after which systemd takes the process for dead; 0.0 without a watchdog for this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / MICROSECONDS / 2 if text.isdecimal() else 0.0


def reloading_text() -> str:
    return f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"


def notify(text: str) -> None:
    """Tell systemd, where it has started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    address = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        sock.sendto(text.encode(), address)
