"""The private socket of gRPC, and who is behind each connection to it.

gRPC names the socket that a connection comes from. Each has a name that no other one ever has, so that a call under it is of
nobody else.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final
from urllib.parse import unquote

from federation.shell.passing import Passing
from federation.shell.private_folder import PrivateFolder
from federation.trust import Caller

UNIX: Final = "unix:"
ANYBODY: Final = Caller("", None, ())


class GrpcCallers:
    """path       of the socket on which gRPC listens
    is_proved  callers may have to prove their names
    """

    def __init__(self, folder: PrivateFolder, is_proved: bool) -> None:
        self.path = ""
        self.is_proved = is_proved
        self._folder = folder
        self._callers: dict[str, Caller] = {}  # by the path of the socket that they come from

    async def connect(self, half: Passing, caller: Caller) -> None:
        """Connect one half of a connection to gRPC. Raises OSError."""
        loop = asyncio.get_running_loop()
        if not self.is_proved:
            await loop.create_unix_connection(lambda: half, self.path)
            return
        path = self._folder.new_path()
        source = socket.socket(socket.AF_UNIX)
        try:
            source.setblocking(False)
            source.bind(path)
            self._callers[path] = caller
            half.ended = lambda: self._callers.pop(path, None)
            await loop.sock_connect(source, self.path)
            os.unlink(path)
            await loop.create_unix_connection(lambda: half, sock=source)
        except BaseException:
            self._callers.pop(path, None)
            source.close()
            raise

    def of(self, peer: str) -> Caller | None:
        """Return the other end of a call, by what gRPC says of it; None when it has gone."""
        return self._callers.get(unquote(peer.removeprefix(UNIX))) if self.is_proved else ANYBODY
