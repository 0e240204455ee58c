"""The output of the log.

Lines that cannot be written (a full disk, a reader that is gone or does not read) are lost and counted. No caller gets
an error. The loop waits for a slow reader once, at most WAIT_MS_MAX.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Final, TextIO

WAIT_MS_MAX: Final = 50  # for a slow reader; no further wait until it has read
PIECE_BYTES: Final = select.PIPE_BUF  # a pipe that is ready takes this many bytes without blocking


class LogOutput:
    """lost  lines since the start that could not be written
    told  how many of them a later line has reported
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.lost = 0
        self.told = 0
        standard_error: TextIO | None = sys.stderr  # None: the process was started without it
        self._stream = standard_error if stream is None else stream
        self._fd = -1
        self._poll = select.poll()
        self._is_stuck = False
        self._is_torn = False  # the last line has no end; the next one begins with a line end
        is_real = standard_error is sys.__stderr__  # not a stream that a test has put in its place
        if stream is None and standard_error is not None and is_real:
            # Python's buffer would keep a line that a full disk refused, and fail again at the end of the process.
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

    # structlog calls one method for each level.
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
