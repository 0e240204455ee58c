"""A folder that only this user may enter, for the private sockets of gRPC."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Final

from broker.server.start_error import StartError

SOCKET_PATH_BYTES_MAX: Final = 107  # of a unix socket
NAME_CHARS_MAX: Final = 20  # of a file in the folder


class PrivateFolder:
    """`make`, then `path`, then `remove`."""

    def __init__(self) -> None:
        self._path = ""
        self._number = 0

    def make(self) -> None:
        """Raises StartError."""
        try:
            self._path = tempfile.mkdtemp(prefix="gmqttd-")
        except OSError as error:
            raise StartError(
                f"plugins.federation: there is no folder for the private sockets of gRPC ({error}); "
                "set TMPDIR to one that can be written to"
            ) from error
        size = len(os.fsencode(self._path)) + 1 + NAME_CHARS_MAX
        if size > SOCKET_PATH_BYTES_MAX:
            raise StartError(
                f"plugins.federation: private sockets of gRPC in {self._path} have paths of {size} bytes, "
                f"{SOCKET_PATH_BYTES_MAX} are possible; set TMPDIR to a shorter one"
            )

    def new_path(self) -> str:
        """The path of a file that there never was before."""
        self._number += 1
        return os.path.join(self._path, str(self._number))

    def remove(self) -> None:
        if self._path:
            shutil.rmtree(self._path, ignore_errors=True)
