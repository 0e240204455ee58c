"""The file with the process id of a node. `gmqttd reload` reads it. Two running nodes cannot share one."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Final

PID_TEXT_MAX: Final = 20
COMMAND_NAME: Final = b"gmqttd"
MODULE_NAME: Final = b"broker"  # python -m broker


class PidFileError(Exception):
    """The file cannot be written, or names no running node."""


def read_pid(path: str) -> int:
    """The process id of the running node that the file names. Raises PidFileError."""
    try:
        with open(path, encoding="ascii") as file:
            text = file.read(PID_TEXT_MAX + 1).strip()
    except FileNotFoundError:
        raise PidFileError(f"{path}: there is no such file; is the node running with this configuration?") from None
    except OSError as error:
        raise PidFileError(f"{path}: the file cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    if not text.isdigit() or len(text) > 10 or int(text) <= 0:
        raise PidFileError(f"{path}: this file holds no process id; pid_file must name a file of its own")
    pid = int(text)
    if not is_running_node(pid):
        raise PidFileError(f"{path}: no gmqttd has the process id {pid}; the node that wrote it is gone")
    return pid


def write_pid(path: str) -> None:
    """Write this process's id. Replaces the file of a node that has ended. Raises PidFileError when that node runs."""
    try:
        pid = read_pid(path)
    except PidFileError:
        _refuse_foreign_file(path)
    else:
        if pid != os.getpid():
            raise PidFileError(f"{path}: a gmqttd with process id {pid} is running with this pid_file; stop it first")
    file = Path(path)
    if not file.parent.is_dir():
        raise PidFileError(f"{path}: there is no folder {file.parent}; make it, or name another pid_file")
    try:
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        partial.write_text(f"{os.getpid()}", encoding="ascii")  # the Go broker's reload expects no line end
        partial.replace(file)
    except OSError as error:
        raise PidFileError(f"{path}: the pid file cannot be written: {error.strerror}") from None


def remove_pid(path: str) -> None:
    """Remove the file if it still names this process."""
    try:
        with open(path, encoding="ascii") as file:
            if file.read(PID_TEXT_MAX).strip() != str(os.getpid()):
                return
        os.unlink(path)
    except (OSError, UnicodeDecodeError):
        return


def _refuse_foreign_file(path: str) -> None:
    """Raise PidFileError for a file without a process id, which was named by mistake."""
    try:
        with open(path, "rb") as file:
            text = file.read(PID_TEXT_MAX + 1).strip()
    except OSError:
        return
    if text and not (text.isdigit() and len(text) <= 10):
        raise PidFileError(f"{path}: this file holds no process id and is not overwritten; name another pid_file")


def is_running_node(pid: int) -> bool:
    """Return whether the process exists and, where its command line can be read, is a gmqttd."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user
    except OverflowError:
        return False
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            arguments = file.read(4096).split(b"\0")
    except OSError:
        return True
    if arguments == [b""]:
        return False  # a zombie has no command line
    names = [os.path.basename(argument) for argument in arguments[:2]]
    return COMMAND_NAME in names or (b"-m", MODULE_NAME) in pairwise(arguments)
