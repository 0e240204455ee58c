"""The end of a node of a test, whether it was forked or is a program of its own."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from waiting import process_ends

if TYPE_CHECKING:
    from node_process import Nodes


@pytest.mark.parametrize("is_forked", [True, False])
async def test_the_end_of_a_process_is_awaited(nodes: Nodes, is_forked: bool) -> None:
    node = nodes.make({})
    node.is_forked = is_forked
    process = (await node.start()).process
    assert process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    with pytest.raises(AssertionError, match="not within 0 s: its end"):
        await process_ends(node.pid, "its end", 0.0)
    process.kill()
    assert process.wait(60.0) == process.wait(60.0) == -signal.SIGKILL
    node.process = None
