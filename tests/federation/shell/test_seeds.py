"""The addresses behind seeds: hosts by the system, SRV records from a DNS server on loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.server.logging import get_logger
from dns_server import DnsServer, running_dns_server
from federation.serf.config import SerfConfig
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf
from federation.shell.gossip import GossipShell
from federation.shell.gossip_sockets import bind_gossip
from federation.shell.seeds import SEED_ADDRESSES_MAX, SeedResolver
from waiting import eventually

NAME = "_gossip._tcp.gmqttd.test."


@pytest_asyncio.fixture
async def server() -> AsyncIterator[DnsServer]:
    async with running_dns_server() as running:
        yield running


def resolver(server: DnsServer) -> SeedResolver:
    return SeedResolver([("127.0.0.1", server.port)])


async def test_a_host_has_the_addresses_of_the_system() -> None:
    assert await SeedResolver().resolve("127.0.0.1") == [("127.0.0.1", 8902)]
    assert await SeedResolver().resolve("127.0.0.1:99") == [("127.0.0.1", 99)]
    assert ("127.0.0.1", 7) in await SeedResolver().resolve("localhost:7")


async def test_srv_records_name_hosts_and_ports(server: DnsServer) -> None:
    server.records[NAME, "SRV"] = ["0 0 8902 pod-0.test.", "10 5 9000 pod-1.test.", "0 0 7 localhost."]
    server.records["pod-0.test.", "A"] = ["10.1.0.1", "10.1.0.2"]
    server.records["pod-1.test.", "A"] = ["10.1.0.3"]
    server.additional = ["pod-0.test.", "pod-1.test."]
    found = await resolver(server).resolve(f"srv+{NAME}")
    assert set(found) >= {("10.1.0.1", 8902), ("10.1.0.2", 8902), ("10.1.0.3", 9000), ("127.0.0.1", 7)}
    server.records[NAME, "SRV"] = ["0 0 8902 pod-1.test."]
    assert await resolver(server).resolve(f"srv+{NAME}") == [("10.1.0.3", 8902)]  # asked again each time


async def test_more_records_than_a_datagram_has_room_for_come_over_tcp(server: DnsServer) -> None:
    count = SEED_ADDRESSES_MAX + 20
    server.records[NAME, "SRV"] = [f"0 0 {1000 + number} pod.test." for number in range(count)]
    server.records["pod.test.", "A"] = ["10.1.0.1"]
    server.additional = ["pod.test."]
    found = await resolver(server).resolve(f"srv+{NAME}")
    assert len(set(found)) == len(found) == SEED_ADDRESSES_MAX
    assert server.asked == [(NAME, "udp"), (NAME, "tcp")]


@pytest.mark.parametrize(("records", "reason"), [([], NAME), (["0 0 0 ."], "no such service")])
async def test_a_name_without_addresses_is_an_error(server: DnsServer, records: list[str], reason: str) -> None:
    server.records[NAME, "SRV"] = records
    with pytest.raises(OSError, match=reason):
        await resolver(server).resolve(f"srv+{NAME}")


@pytest.mark.parametrize("text", ["srv+", "srv+a b", "unix:///run/x", "a:b:c"])
async def test_a_text_that_is_no_seed_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="for example"):
        await SeedResolver().resolve(text)


class Node:
    def __init__(self, name: str, server: DnsServer, seeds: list[str]) -> None:
        sockets = bind_gossip("127.0.0.1", 0)
        self.port = sockets.port
        loop = asyncio.get_running_loop()
        self.serf = Serf(SerfConfig(name, "127.0.0.1", self.port), random.Random(1), loop.time())
        self.retry_join = RetryJoin(seeds, 0.05, 60.0, loop.time())
        log = get_logger("gossip")
        self.shell = GossipShell(self.serf, sockets, lambda events: None, log, self.retry_join, resolver(server))


async def test_nodes_of_a_headless_service_find_each_other_although_each_is_in_it(server: DnsServer) -> None:
    """The first node is alone in its own service, and takes the name for reached; it asks again as long as it is alone."""
    nodes = [Node(f"n{number}", server, [f"srv+{NAME}"]) for number in range(3)]
    server.records[NAME, "SRV"] = [f"0 0 {nodes[0].port} localhost."]
    server.records["localhost.", "A"] = ["127.0.0.1"]
    server.additional = ["localhost."]
    try:
        await nodes[0].shell.start()
        await eventually(lambda: len(server.asked) > 3, "the first node asks again and again")
        assert nodes[0].retry_join.reached
        assert nodes[0].serf.alive_others() == 0
        server.records[NAME, "SRV"] = [f"0 0 {node.port} localhost." for node in nodes]
        for node in nodes[1:]:
            await node.shell.start()
        await eventually(lambda: all(node.serf.alive_others() == 2 for node in nodes), "all know all")
    finally:
        for node in nodes:
            await node.shell.stop()
