"""What happens inside `ChaosRun.running` without a kill -9 at random: a node is away for a while, and a clock steps back."""

from __future__ import annotations

import asyncio
from typing import Final

from chaos_run import BATCH_SECONDS, ChaosRun
from clock_node import ClockNode
from waiting import eventually

CLOCK_STEP_SECONDS: Final = 3600.0
BATCHES_MEANWHILE: Final = 2


async def node_away(run: ChaosRun, seconds: float) -> None:
    """Stop a node with SIGTERM for some seconds. The archive goes on with the others meanwhile: a batch that is planned with
    records of the node could not end without it."""
    node = run.nodes[-1]
    async with run.all_read():
        await node.stop()
    batches = run.archive.batches()
    run.say(f"{node.name} is stopped for {seconds:.0f} s")
    await asyncio.sleep(seconds)
    await eventually(
        lambda: run.archive.batches() >= batches + BATCHES_MEANWHILE,
        f"{BATCHES_MEANWHILE} batches of the archive while {node.name} is away, see {run.archive.log_path}",
        BATCH_SECONDS,
    )
    await node.start()
    run.say(f"{node.name} is back; the archive has committed {run.archive.batches() - batches} batches meanwhile")


async def clock_steps_back(run: ChaosRun) -> None:
    """Set a clock right that is CLOCK_STEP_SECONDS ahead; later kill and start the node, whose last record is in the future."""
    node = run.nodes[-1]
    assert isinstance(node, ClockNode)
    node.set_clock(CLOCK_STEP_SECONDS)
    run.say(f"the clock of {node.name} is {CLOCK_STEP_SECONDS:.0f} s ahead")
    await run.published_more()
    node.set_clock(0.0)
    run.say(f"the clock of {node.name} stepped back by {CLOCK_STEP_SECONDS:.0f} s")
    await run.published_more()
    await node.kill()
    await node.start()
    run.say(f"{node.name} was killed and started again with a clock an hour before its last record")
    await run.published_more()
