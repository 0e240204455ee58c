"""A command that runs a pipeline is stopped: by Ctrl-C, and as systemd does it, which signals Java and the workers, too."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from event_log_node import event_log_nodes

PROGRAM = (sys.executable, "-c", "from gmqttctl.cli import main; main()")


@pytest.mark.parametrize(
    ("job", "number"), [pytest.param("rollup", signal.SIGINT, marks=pytest.mark.slow), ("archive", signal.SIGTERM)]
)
async def test_a_run_ends_without_a_traceback(job: str, number: signal.Signals, tmp_path: Path) -> None:
    with event_log_nodes("n1") as (node,):
        node.append_numbers(50)
        pipe = asyncio.subprocess.PIPE
        options = ("--servers", node.address, "--dir", str(tmp_path / "data"), "--every", "200ms")
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, "pipeline", "run", job, *options, stdout=pipe, stderr=pipe, start_new_session=True
        )
        try:
            assert process.stdout is not None
            starts = await process.stdout.readline()
            assert b"Spark" in starts
            first = await process.stdout.readline()
            assert b": batch 0, 50 messages" in first
            os.killpg(process.pid, number)
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    line, *others = output.decode().splitlines()
    assert others == []
    assert ": 50 messages in " in line or "stopped in the middle of a batch" in line
    assert errors.decode() == ""
