"""A log that cannot be written: the program continues, and lost lines are counted and reported."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from typing import Final

import pytest

from broker.config.settings import LogSettings
from broker.server.log_output import LogOutput
from broker.server.logging import get_logger, setup_logging
from waiting import DEADLINE

# Logs, prints how often it waited for the reader, and continues after a line on standard input.
PROGRAM: Final = """
import select, sys
class Poll:
    waits = 0
    def __init__(self):
        self.poll_object = poll()
    def register(self, *arguments):
        self.poll_object.register(*arguments)
    def poll(self, milliseconds):
        ready = self.poll_object.poll(milliseconds)
        Poll.waits += milliseconds > 0 and not ready
        return ready
poll, select.poll = select.poll, Poll
from broker.config.settings import LogSettings
from broker.server.logging import get_logger, setup_logging
setup_logging(LogSettings())
log = get_logger("x")
for round in range(2):
    Poll.waits = 0
    for number in range(100):
        log.info("line", number=number, filler="." * 2000)
    print(Poll.waits, flush=True)
    sys.stdin.readline()
log.info("last")
"""

# Writes lines that a pipe takes in pieces, more than it holds; one more after a line on standard input.
LONG_LINES: Final = """
import sys
from broker.server.log_output import LogOutput
output = LogOutput()
for number in range(40):
    output.info("x" * 10_000)
print(output.lost, flush=True)
sys.stdin.readline()
output.info("after")
"""


class Full(io.StringIO):
    """A stream whose disk may be full."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def start(stderr: int, program: str = PROGRAM) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """Check that the process ends with exit status 0."""
    process.communicate("\n\n", timeout=DEADLINE)
    assert process.returncode == 0


def drain(pipe: int) -> str:
    """Everything that is in a pipe now."""
    os.set_blocking(pipe, False)
    data = b""
    with contextlib.suppress(BlockingIOError):
        while more := os.read(pipe, 65536):
            data += more
    return data.decode()


@pytest.mark.parametrize("form", ["text", "json"])
def test_lost_lines_are_counted_and_reported_once(form: str) -> None:
    stream = Full()
    setup_logging(LogSettings(format=form), stream)
    log = get_logger("x")
    log.info("one")
    log.info("two")
    stream.is_full = False
    log.info("three")
    log.info("four")
    three, four = stream.getvalue().splitlines()
    assert "three" in three
    assert "lines_lost_before" in three
    assert "2" in three.rpartition("lines_lost_before")[2]
    assert "lines_lost_before" not in four


def test_a_closed_stream() -> None:
    stream = io.StringIO()
    stream.close()
    output = LogOutput(stream)
    output.info("a line")
    assert output.lost == 1


def test_a_full_disk() -> None:
    with open("/dev/full", "w") as full:
        process = start(full.fileno())
    end(process)


def test_lines_without_a_standard_error_are_dropped() -> None:
    process = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, PROGRAM],
        input="\n\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert process.returncode == 0
    assert len(process.stdout.split()) == 2


def test_a_reader_that_is_gone() -> None:
    reading, writing = os.pipe()
    process = start(writing)
    os.close(writing)
    os.close(reading)
    end(process)


def test_one_wait_for_a_reader_that_does_not_read() -> None:
    reading, writing = os.pipe()
    process = start(writing)
    os.close(writing)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n", "the pipe holds a third of the lines at most"
    drain(reading)  # the reader reads again
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline()
    first_line = drain(reading).partition("\n")[0]
    assert 50 < int(first_line.rpartition("lines_lost_before=")[2]) < 100, first_line
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(DEADLINE) == 0
    assert " last" in drain(reading)
    os.close(reading)
    process.stdout.close()


def test_a_torn_line_does_not_spoil_the_next_one() -> None:
    """The next line reports the lost lines, so it must be a line of its own."""
    reading, writing = os.pipe()
    process = start(writing, LONG_LINES)
    os.close(writing)
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 20
    text = drain(reading)
    assert len(text) % 10_001 > 0, "no line was torn"
    end(process)
    assert drain(reading) == "\nafter\n"
    os.close(reading)
