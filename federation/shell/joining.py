"""The joins of one node: seeds are resolved, their addresses joined, and `retry_join` is told what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker.config.addresses import is_ip, parse_address
from federation.gossip.addresses import Address
from federation.serf.events import JoinResult
from federation.serf.joins import JOIN_ADDRESSES_MAX
from federation.serf.retry_join import RetryJoin, SeedsJoined, SeedsUnreachable
from federation.serf.serf import Serf
from federation.settings import DEFAULT_GOSSIP_PORT
from federation.shell.seeds import SeedResolver

RESOLVE_SECONDS_MAX: Final = 10.0  # of one host; the others of the attempt wait for it


class Joining:
    """`flush` is called after each call to Serf. The owner passes every JoinResult to `finished`."""

    def __init__(
        self, serf: Serf, flush: Callable[[], None], log: Any, retry_join: RetryJoin | None, resolver: SeedResolver
    ) -> None:
        self._serf = serf
        self._flush = flush
        self._log = log
        self._retry_join = retry_join
        self._resolver = resolver
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[int, asyncio.Future[JoinResult]] = {}

    def finished(self, result: JoinResult) -> None:
        waiter = self._waiters.pop(result.join_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    def stop(self) -> None:
        for waiter in self._waiters.values():
            waiter.cancel()

    async def retry(self, retry_join: RetryJoin, hosts: list[str]) -> None:
        """One attempt of `retry_join`."""
        literal = [host for host in hosts if is_ip(parse_address(host, DEFAULT_GOSSIP_PORT, srv_allowed=True).host)]
        errors: dict[str, str] = {}
        for some in (literal, [host for host in hosts if host not in literal]):  # no address waits for a name
            try:
                errors |= await self.join(some, retry_join)
            except Exception as error:  # else no attempt would follow
                self._log.error("a fault in the join of seeds", exc_info=error)
                errors |= dict.fromkeys(some, str(error))
        now = self._loop.time()
        retry_join.attempt_finished(errors, now)
        retry_join.members_changed(self._serf.alive_others(), now)
        for event in retry_join.take_events():
            if isinstance(event, SeedsJoined):
                self._log.info("joined", hosts=event.hosts)
            elif isinstance(event, SeedsUnreachable):
                text = "retry_join has not reached all hosts yet, it goes on trying"
                self._log.error(text, after_seconds=round(event.after, 1), errors=event.errors)
        if errors:
            self._log.debug("join failed", errors=errors)
        self._flush()

    async def join(
        self, hosts: list[str], retry_join: RetryJoin | None = None, ignores_old: bool = False
    ) -> dict[str, str]:
        """Join all addresses of all hosts; gives the errors of those hosts of which no address was joined. `retry_join` when
        the attempt is its own: addresses of members that are alive are not joined again. `ignores_old`: without user events of
        before."""
        errors: dict[str, str] = {}
        resolved: dict[str, list[Address]] = {}
        own = self._serf.local_member
        unique = list(dict.fromkeys(hosts))
        for host, found in zip(unique, await asyncio.gather(*map(self._addresses, unique)), strict=True):
            if isinstance(found, str):
                errors[host] = found
                continue
            resolved[host] = [address for address in found if address != (own.ip, own.port)]
            if not resolved[host]:
                del resolved[host]
                self._leads_here(host)
        # A name may have the addresses of all members: after each loss, each node would push-pull with each other one.
        known = set() if retry_join is None else self._serf.alive_addresses()
        addresses = list(dict.fromkeys(at for found in resolved.values() for at in found if at not in known))
        failures: dict[Address, str] = {}
        for at in range(0, len(addresses), JOIN_ADDRESSES_MAX):
            some = addresses[at : at + JOIN_ADDRESSES_MAX]
            if retry_join is not None and retry_join.stopped:  # during the resolution of names, or the joins before
                failures |= dict.fromkeys(some, "this node was told to leave")
            else:
                failures |= await self._join_addresses(some, ignores_old)
        for host, found in resolved.items():
            if all(address in failures for address in found):
                errors[host] = failures[found[0]]
        return errors

    async def _addresses(self, host: str) -> list[Address] | str:
        """All addresses of a host now, or why there are none."""
        try:
            async with asyncio.timeout(RESOLVE_SECONDS_MAX):
                return await self._resolver.resolve(host)
        except ValueError as error:
            return str(error)
        except TimeoutError:
            return f"the name was not resolved within {RESOLVE_SECONDS_MAX:g} s"
        except OSError as error:
            return f"the name cannot be resolved: {error.strerror or error}"

    def _leads_here(self, host: str) -> None:
        """A host has no other address than this node's. A name may have more of them later, an address never."""
        if self._retry_join is not None:
            seed = parse_address(host, DEFAULT_GOSSIP_PORT, srv_allowed=True)
            if is_ip(seed.host):
                self._retry_join.remove(host)
            else:
                self._retry_join.leads_here(host)

    async def _join_addresses(self, addresses: list[Address], ignores_old: bool) -> dict[Address, str]:
        waiter: asyncio.Future[JoinResult] = self._loop.create_future()
        self._waiters[self._serf.join(addresses, self._loop.time(), ignores_old)] = waiter
        self._flush()
        return (await waiter).errors
