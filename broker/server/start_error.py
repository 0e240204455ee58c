"""Faults of a start that the operator can mend."""

from __future__ import annotations

import errno
import os
import socket


class StartError(Exception):
    """The node cannot start. The text names the key, the fault and the remedy."""


def file_error(key: str, path: str, error: Exception) -> StartError:
    """The StartError for a file that cannot be read, an OSError, or whose content cannot be used. `key` is the
    configuration key of the file."""
    if isinstance(error, OSError):
        return StartError(f"{key}: {path} cannot be read: {error.strerror or error}")
    return StartError(f"{key}: {path}: {error}")


def bind_error(error: OSError, address: str, key: str) -> StartError:
    """The StartError for an address that cannot be opened. `key` is the configuration key of the address."""
    code = error.errno
    if isinstance(error, socket.gaierror):
        return StartError(f"{key}: the host of {address} cannot be resolved ({error.strerror}); give an IP address")
    if code == errno.EADDRINUSE:
        return StartError(f"{key}: {address} is in use by another process; stop it or give another port")
    if code == errno.EADDRNOTAVAIL:
        return StartError(f"{key}: {address} is not an address of this machine; use one of its own, or 0.0.0.0 for all")
    if code == errno.EACCES:
        return StartError(f"{key}: no permission to open {address}; ports below 1024 need root")
    reason = os.strerror(code) if code is not None and code > 0 else str(error)
    return StartError(f"{key}: cannot open {address}: {reason}")
