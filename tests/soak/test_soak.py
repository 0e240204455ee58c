"""A short soak: nothing leaks, and the counters add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import TRANSPORTS, Soak


@pytest.mark.slow
async def test_nothing_leaks_and_the_counters_add_up(tmp_path: Path) -> None:
    soak = Soak(tmp_path, clients=40, seconds=4.0, seed=1)
    metrics = await soak.run()
    assert set(soak.left) == {
        f"{way} {transport}" for way in ("disconnect", "cut", "silence") for transport in TRANSPORTS
    }
    assert metrics["gmqtt_messages_acknowledged_total"] > 0
    assert metrics["dropped"] > 0, "cuts lose what was on the way to sessions that end"
