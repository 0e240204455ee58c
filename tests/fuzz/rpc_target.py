"""What clients of the RPC of an agent send: requests of the real program, cut and changed."""

from __future__ import annotations

import re
from random import Random

import msgpack  # type: ignore[import-untyped]

from fuzz_target import Target, joined, rng_of, separated, test_data
from mutation import mutated
from rpc_agent import Agent

HANDSHAKE = msgpack.packb({"Command": "handshake", "Seq": 1}) + msgpack.packb({"Version": 1})


class RpcTarget(Target):
    """Chunks of one connection. Nothing is raised, and what comes back is msgpack; each response names its request."""

    def __init__(self) -> None:
        rows = [row for row in test_data("gossip-vectors.json") if row["transport"] == "rpc"]
        requests = [bytes.fromhex(row["hex"]) for row in rows if row["name"].endswith("requests")]
        objects = [msgpack.packb(item) for row in rows for item in row["decoded"]]
        super().__init__(requests, tuple(objects))

    def make(self, rng: Random) -> bytes:
        data = mutated(rng, rng.choice(self.seeds), self.seeds, self.pieces)
        chunks = [data] if rng.random() < 0.5 else re.findall(rb"(?s).{1,%d}" % rng.randint(1, 40), data)
        return joined([HANDSHAKE, *chunks] if rng.random() < 0.8 else chunks)

    def run(self, data: bytes) -> None:
        rng = rng_of(data)
        agent = Agent("sekret" if rng.random() < 0.1 else "")
        client = agent.client()
        for number, chunk in enumerate(separated(data)):
            has_more = client.client.receive_data(chunk, number * 0.5)
            while has_more:
                has_more = client.client.work(number * 0.5)
            for call in agent.rpc.take_calls():
                agent.rpc.finish(call, "" if rng.random() < 0.5 else "refused")
            agent.serf.handle_timeout(number * 0.5)
            agent.settle(number * 0.5)
            agent.rpc.handle_timeout(number * 0.5)
            self._check(client.take())
        agent.rpc.disconnected(client.client)
        assert len(agent.serf.asked_queries) == 0
        assert agent.rpc.clients == {}

    def _check(self, items: list[object]) -> None:
        headers = [item for item in items if isinstance(item, dict) and item.keys() == {"Error", "Seq"}]
        assert len(items) <= 2 * len(headers), "a body without a header"
        assert all(isinstance(item, dict) for item in items)
