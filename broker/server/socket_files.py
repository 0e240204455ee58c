"""The files of Unix sockets, of the listeners and of the API: before and after."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from broker.config.addresses import Address
from broker.server.start_error import StartError, bind_error


def check_socket_path(key: str, address: Address) -> None:
    """Remove the socket of a dead process. Raises StartError when another one listens there or the name is taken."""
    try:
        mode = os.stat(address.path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise bind_error(error, str(address), key) from error
    if not stat.S_ISSOCK(mode):
        raise StartError(f"{key}: {address} exists already and is not a socket; remove it or give another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            os.unlink(address.path)
            return
        except OSError as error:
            raise bind_error(error, str(address), key) from error
    raise StartError(f"{key}: {address} is in use by another process; stop it or give another path")


def try_socket_path(key: str, address: Address) -> None:
    """Raises StartError when no socket can be made there: no such folder, no permission, a path that is too long."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(address.path)
        os.unlink(address.path)
    except OSError as error:
        raise bind_error(error, str(address), key) from error


def remove_socket_files(paths: list[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)
    paths.clear()
