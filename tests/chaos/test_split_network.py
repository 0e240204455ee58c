"""The network that splits is fast enough for nodes that dial in vain again and again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from node_process import Nodes
from split_network import split_network

STREAMS = 30


async def test_streams_that_have_ended_in_a_split_are_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took a look at all sockets: nodes that dialled in vain during a cut of 32 s kept the relays from all else for 140 s,
    nodes of one side from each other, too."""
    looks: list[int] = []
    look = psutil.net_connections

    def counted(kind: str) -> object:
        looks.append(1)
        return look(kind)

    monkeypatch.setattr(psutil, "net_connections", counted)
    made = Nodes(tmp_path)
    nodes = [made.make_federated() for _ in range(2)]
    async with split_network(nodes) as network:
        network.split(nodes[0])
        _, _, port = nodes[0].config["plugins"]["federation"]["advertise_fed_addr"].rpartition(":")
        ends = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", int(port)) for _ in range(STREAMS)))
        for reader, writer in ends:
            assert await reader.read() == b""
            writer.close()
        assert 0 < len(looks) < STREAMS / 2, len(looks)
