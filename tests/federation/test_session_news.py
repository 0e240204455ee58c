"""Claims and moves are told by their numbers: who has heard one, has heard all before it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from broker.broker import Broker
from federation.sessions.homes import Homes
from federation.stream.sender import PeerSender
from simulator.federation import Federation

COUNT = 3_000  # more than one block has


class Teller:
    """A node with many homes, and its sender to another one."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        federation = Federation(2, 2)
        node = federation.node(federation.hosts[0]).node
        assert node.sessions is not None
        self.homes: Homes = node.sessions.homes
        self.broker: Broker = node.broker
        self.sender: PeerSender = node.senders["n2"]
        self.homes.by_client.clear()
        self.sender.news.clear()
        for number in range(COUNT):
            self.homes.by_client[str(number)] = self.homes.made(str(number), 1)

    def numbers(self) -> dict[str, int]:
        found = {client_id: home.number for client_id, home in self.homes.by_client.items()}
        return found | {client_id: ended.number for client_id, ended in self.homes.ended.items()}

    def change(self) -> None:
        """Some clients are claimed anew, the sessions of others end."""
        for client_id in self.rng.sample(sorted(self.homes.by_client), 200):
            home = self.homes.by_client[client_id]
            if self.rng.random() < 0.5:
                self.homes.claim_anew(home, home.counter)
                self.homes.tell_claim(client_id)
            else:
                self.homes.end(home, True)

    def blocks(self) -> Iterator[int]:
        """Tell everything. Yields how far the claims were told by each block."""
        while self.sender.news.claims:
            block = self.sender.news.next_block(True, 0.0)
            assert block is not None
            yield block.claims_told


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_claim_is_not_told_before_one_with_a_lower_number(seed: int, begins: bool) -> None:
    teller = Teller(seed)
    news = teller.sender.news
    if not begins:
        news.begin(teller.sender.outbox)
    teller.change()
    if begins:  # the other node knows nothing any more
        news.begin(teller.sender.outbox)
    numbers = teller.numbers()
    assert len(news.claims) == COUNT
    blocks = 0
    for told in teller.blocks():
        blocks += 1
        assert min([numbers[client_id] for client_id in news.claims], default=told + 1) > told
        if blocks == 1:
            teller.change()
            numbers = teller.numbers()
    assert blocks > 2
