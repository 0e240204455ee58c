"""The joins of seeds: a fault of one is not that of another, and a node that was told to leave joins no more."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

import federation.shell.joining
from federation.gossip.addresses import Address
from federation.serf.events import JoinResult
from federation.serf.joins import JOIN_ADDRESSES_MAX
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf
from federation.shell.joining import Joining
from federation.shell.seeds import SeedResolver
from stations import Log

SEED = "10.0.0.1:8902"
NAME = "nodes.example:8902"


class Cluster:
    """Stands for Serf: `joined` are the addresses that were asked, each of which answers when `answers` says so."""

    def __init__(self, answers: bool = True) -> None:
        self.local_member = SimpleNamespace(ip="10.0.0.9", port=8902)
        self.joined: list[Address] = []
        self.answers = answers
        self.joining: Joining | None = None
        self.asked = 0
        self.alive: set[Address] = set()
        self.was_asked = asyncio.Event()

    def join(self, addresses: list[Address], now: float, ignores_old: bool = False) -> int:
        self.joined += addresses
        self.asked += 1
        self.was_asked.set()
        if self.answers:
            asyncio.get_running_loop().call_soon(self.answer, self.asked)
        return self.asked

    def answer(self, join_id: int) -> None:
        assert self.joining is not None
        self.joining.finished(JoinResult(join_id, 1, {}))

    def alive_others(self) -> int:
        return len(self.alive)

    def alive_addresses(self) -> set[Address]:
        return self.alive


class Names(SeedResolver):
    """Resolves SEED; names give `found`, or fail as it does, or never answer."""

    def __init__(self, found: list[Address] | Exception | None) -> None:
        super().__init__()
        self.found = found

    async def resolve(self, text: str) -> list[Address]:
        if text == SEED:
            return [("10.0.0.1", 8902)]
        if isinstance(self.found, Exception):
            raise self.found
        if self.found is None:
            await asyncio.Event().wait()
        return cast("list[Address]", self.found)


def joining_of(cluster: Cluster, names: Names, retry_join: RetryJoin, log: Log) -> Joining:
    joining = cluster.joining = Joining(cast(Serf, cluster), lambda: None, log, retry_join, names)
    return joining


def retry_of(*hosts: str) -> RetryJoin:
    retry_join = RetryJoin(list(hosts), 1.0, 60.0, 0.0)
    retry_join.take_hosts(0.0)
    return retry_join


@pytest.mark.parametrize("found", [OSError("no such name"), ModuleNotFoundError("dns"), None])
async def test_an_address_is_joined_whatever_is_wrong_with_names(
    monkeypatch: pytest.MonkeyPatch, found: Exception | None
) -> None:
    monkeypatch.setattr(federation.shell.joining, "RESOLVE_SECONDS_MAX", 0.05)
    cluster, log = Cluster(), Log()
    retry_join = retry_of(NAME, SEED)
    await joining_of(cluster, Names(found), retry_join, log).retry(retry_join, [NAME, SEED])
    assert cluster.joined == [("10.0.0.1", 8902)]
    assert retry_join.pending == [NAME]
    assert retry_join.next_timeout() is not None, "the name is tried again"


async def test_a_node_that_was_told_to_leave_joins_no_further_addresses() -> None:
    """The answers to the first addresses may take seconds."""
    cluster, log = Cluster(answers=False), Log()
    addresses = [(f"10.0.1.{number}", 8902) for number in range(JOIN_ADDRESSES_MAX + 10)]
    retry_join = retry_of(NAME)
    joining = joining_of(cluster, Names(addresses), retry_join, log)
    attempt = asyncio.ensure_future(joining.retry(retry_join, [NAME]))
    await cluster.was_asked.wait()
    retry_join.stop()
    cluster.answer(1)
    await attempt
    assert cluster.joined == addresses[:JOIN_ADDRESSES_MAX]


async def test_addresses_of_living_members_are_not_joined_again() -> None:
    """A headless service has the addresses of all members: after each loss all of them would be joined by all."""
    cluster, log = Cluster(), Log()
    addresses = [(f"10.0.1.{number}", 8902) for number in range(40)]
    cluster.alive = {("10.0.0.1", 8902), *addresses[:37]}
    retry_join = retry_of(NAME, SEED)
    joining = joining_of(cluster, Names(addresses), retry_join, log)
    await joining.retry(retry_join, [NAME, SEED])
    assert cluster.joined == addresses[37:]
    assert retry_join.pending == []
    cluster.alive.update(addresses)
    retry_join.member_lost(0.0)
    await joining.retry(retry_join, retry_join.take_hosts(100.0))
    assert cluster.joined == addresses[37:]
    assert (retry_join.pending, retry_join.next_timeout()) == ([], None)
    await joining.join([NAME])  # the operator's call asks all
    assert cluster.joined[3:] == addresses
