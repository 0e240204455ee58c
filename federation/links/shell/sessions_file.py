"""The file in which a node remembers where its links have sessions, so that one that was lost meanwhile is noticed."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

from broker.server.logging import get_logger
from broker.server.private_file import PrivateFile
from federation.definitions.resolution import LINKS_MAX
from federation.links.reconnecting import SessionPlace

FILE: Final = "link-sessions.json"
FILE_BYTES_MAX: Final = 16 * 2**20

Places = dict[str, SessionPlace]
"""By the id of the link."""


class SessionsFile:
    """`folder`: "" for a node that keeps nothing. The file is written by one thread at a time, the newest state only."""

    def __init__(self, folder: str) -> None:
        self._file = PrivateFile(os.path.join(folder, FILE)) if folder else None
        self._log = get_logger("links")
        self._wanted: Places = {}
        self._written: Places | None = {}  # None after a failure: the next call tries again
        self._writing: asyncio.Task[None] | None = None

    async def read(self) -> Places:
        """The sessions of the process before. None are known where the file cannot be read, which is logged."""
        file = self._file
        if file is None:
            return {}
        try:
            places = decode(await asyncio.to_thread(file.read, FILE_BYTES_MAX))
        except (OSError, ValueError) as error:
            self._log.warning("sessions of links not known", file=file.path, reason=str(error))
            return {}
        self._wanted = self._written = places
        return places

    def follow(self, places: Places) -> None:
        """The sessions are these now."""
        self._wanted = places
        if self._file is not None and self._writing is None and places != self._written:
            self._writing = asyncio.get_running_loop().create_task(self._write(self._file))

    async def _write(self, file: PrivateFile) -> None:
        while (places := self._wanted) != self._written:
            try:
                await asyncio.to_thread(_store, file, places)
            except OSError as error:
                self._log.error("sessions of links not stored", file=file.path, reason=error.strerror or str(error))
                self._written = None
                break
            self._written = places
        self._writing = None

    async def stop(self) -> None:
        """Until the newest state is written."""
        if self._writing is not None:
            await self._writing


def _store(file: PrivateFile, places: Places) -> None:
    file.change(lambda: encode(places))


def encode(places: Places) -> bytes:
    sessions = {link_id: place._asdict() for link_id, place in places.items()}
    return json.dumps({"format": 1, "sessions": sessions}).encode()


def decode(data: bytes) -> Places:
    """Raises ValueError."""
    if not data:
        return {}
    document: Any = json.loads(data)
    sessions = document.get("sessions") if isinstance(document, dict) and document.get("format") == 1 else None
    if not isinstance(sessions, dict) or len(sessions) > LINKS_MAX:
        raise ValueError("sessions: the file has none of format 1")
    found: Places = {}
    for link_id, place in sessions.items():
        match place:
            case {"client_id": str(client_id), "host": str(host), "port": int(port)}:
                found[link_id] = SessionPlace(client_id, host, port)
            case _:
                raise ValueError(f"sessions.{link_id[:64]}: client_id, host and port are not there")
    return found
