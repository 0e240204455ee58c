"""The text for an address that cannot be opened."""

from __future__ import annotations

import errno
import socket

import pytest

from broker.server.start_error import bind_error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "cannot be resolved (Name or service"),
        (OSError(errno.EADDRINUSE, "in use"), "is in use by another process; stop it or give another port"),
        (OSError(errno.EADDRNOTAVAIL, "not here"), "is not an address of this machine; use one of its own"),
        (OSError(errno.EACCES, "denied"), "no permission to open h:1; ports below 1024 need root"),
        (OSError(errno.ENOENT, "gone"), "cannot open h:1: No such file or directory"),
        (OSError("AF_UNIX path too long"), "cannot open h:1: AF_UNIX path too long"),
    ],
)
def test_each_fault_names_key_address_and_remedy(error: OSError, words: str) -> None:
    text = str(bind_error(error, "h:1", "listeners[0].address"))
    assert text.startswith("listeners[0].address: ")
    assert "h:1" in text
    assert words in text
