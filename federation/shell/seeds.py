"""The addresses behind a seed of `retry_join`: a host by the system's rules, or the hosts of SRV records by DNS (RFC 2782)."""

from __future__ import annotations

import asyncio
import random
import socket
from importlib import import_module
from typing import TYPE_CHECKING, Final

from broker.config.addresses import parse_address
from federation.gossip.addresses import Address
from federation.settings import DEFAULT_GOSSIP_PORT

if TYPE_CHECKING:
    from dns.resolver import Answer

SEED_ADDRESSES_MAX: Final = 256
"""Addresses of one seed that an attempt tries: of more, so many by chance."""
DNS_SECONDS_MAX: Final = 5.0
"""Longest time for the SRV records of one seed."""


class SeedResolver:
    """`nameservers`: (IP address, port) of what is asked for SRV records; None for those of the system."""

    def __init__(self, nameservers: list[Address] | None = None) -> None:
        self._nameservers = nameservers

    async def resolve(self, text: str) -> list[Address]:
        """All addresses of HOST, HOST:PORT or srv+NAME now. ValueError: the text is none of these; OSError: there are none."""
        seed = parse_address(text, DEFAULT_GOSSIP_PORT, unix_allowed=False, srv_allowed=True)
        if seed.scheme == "srv":
            found = await self._service(seed.host)
        else:
            found = await _host(seed.host, seed.port)
        unique = list(dict.fromkeys(found))
        return unique if len(unique) <= SEED_ADDRESSES_MAX else random.sample(unique, SEED_ADDRESSES_MAX)

    async def _service(self, name: str) -> list[Address]:
        answer = await self._ask(name)
        given: dict[str, list[str]] = {}  # addresses that came along with the records
        for records in answer.response.additional:
            given.setdefault(records.name.to_text(), []).extend(
                record.address for record in records if record.rdtype in _ADDRESS_TYPES
            )
        targets = [(record.target.to_text(), record.port) for record in answer if record.target.to_text() != "."]
        if not targets:
            raise OSError(f"the SRV records of {name} say that there is no such service")
        looked_up = await asyncio.gather(
            *(_host(target.rstrip("."), port) for target, port in targets if not given.get(target)),
            return_exceptions=True,
        )
        found = [(ip, port) for target, port in targets for ip in given.get(target, [])]
        for result in looked_up:
            if isinstance(result, list):
                found += result
        if not found:
            raise OSError(f"no host of the SRV records of {name} has an address")
        return found

    async def _ask(self, name: str) -> Answer:
        # Imported where it is used, and beside the loop: most nodes have no seeds of this kind, and the module has 3 MB.
        await asyncio.to_thread(import_module, "dns.asyncresolver")
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException

        try:
            # Reads the system's file again, which may lie on a disk that hangs.
            resolver = await asyncio.to_thread(Resolver, configure=self._nameservers is None)
            if self._nameservers is not None:
                resolver.nameservers = [ip for ip, _ in self._nameservers]
                resolver.nameserver_ports = dict(self._nameservers)
            return await resolver.resolve(name, "SRV", lifetime=DNS_SECONDS_MAX, search=True)
        except DNSException as error:
            raise OSError(f"no SRV records of {name}: {error}") from error


_ADDRESS_TYPES: Final = (1, 28)  # A, AAAA


async def _host(host: str, port: int) -> list[Address]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(info[4][0]), int(info[4][1])) for info in infos]
