"""Where the lines of the log go. A disk that is full, a reader that is gone or a reader that reads no more costs lines of
the log, which are counted, and nothing else: no caller gets an error, and the loop waits once, for a moment."""

from __future__ import annotations

import os
import select
import sys
from typing import Final, TextIO

WAIT_MS_MAX: Final = 50  # for a reader that is behind; one that did not read in that time is not waited for again
PIECE_BYTES: Final = select.PIPE_BUF  # a pipe that takes anything takes this much without blocking


class LogOutput:
    """`lost`: lines that could not be written since the start. `told`: as many of them as a line of the log named."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.lost = 0
        self.told = 0
        standard_error: TextIO | None = sys.stderr  # None: the process was started without it
        self._stream = standard_error if stream is None else stream
        self._fd = -1
        self._poll = select.poll()
        self._is_stuck = False
        self._is_torn = False  # a line was begun and not ended: the next one must not stand behind it
        is_real = standard_error is sys.__stderr__  # and not what a test put in its place
        if stream is None and standard_error is not None and is_real:
            # Past Python's buffer, which would keep what a full disk refused and fail again at the end of the process.
            self._fd = standard_error.fileno()
            self._poll.register(self._fd, select.POLLOUT)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write_line(self, line: str) -> None:
        try:
            is_written = self._write(f"{line}\n")
        except (OSError, ValueError):  # ValueError: the stream is closed
            is_written = False
        if is_written:
            self.told = self.lost
        else:
            self.lost += 1

    # What structlog calls: one method a level.
    debug = info = warn = warning = error = exception = critical = write_line

    def _write(self, text: str) -> bool:
        if self._fd >= 0:
            return self._write_pieces(text.encode("utf-8", "backslashreplace"))
        if self._stream is None:
            return False
        self._stream.write(text)
        self._stream.flush()
        return True

    def _write_pieces(self, data: bytes) -> bool:
        if self._is_torn:
            data = b"\n" + data
        while data:
            if not self._poll.poll(0 if self._is_stuck else WAIT_MS_MAX):
                self._is_stuck = True
                return False
            self._is_stuck = False
            data = data[os.write(self._fd, data[:PIECE_BYTES]) :]
            self._is_torn = len(data) > 0
        return True
