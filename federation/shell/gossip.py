"""The asyncio shell of a Serf node: sockets and timers."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final

from broker.config.addresses import socket_name_text
from broker.server.bounded_log import CounterLog
from federation.errors import JoinFailed
from federation.serf.events import Event, JoinResult, Left, MemberFailed, MemberLeave
from federation.serf.leaving import SerfPhase
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf
from federation.shell.gossip_protocols import AcceptedStream, Datagrams, GossipLink, OpenedStream
from federation.shell.gossip_sockets import TCP_BACKLOG, GossipSockets
from federation.shell.joining import Joining
from federation.shell.seeds import SeedResolver

LOST_MEMBER_SPREAD: Final = 5.0
"""Seconds over which nodes spread their attempts to join their seeds after a member was lost."""


class GossipShell:
    """Runs one Serf node on bound sockets. `on_events` gets every event, in order, on the loop; it may call Serf and then
    `flush`."""

    def __init__(
        self,
        serf: Serf,
        sockets: GossipSockets,
        on_events: Callable[[list[Event]], None],
        log: Any,
        retry_join: RetryJoin | None = None,
        resolver: SeedResolver | None = None,
    ) -> None:
        self.serf = serf
        self._on_events = on_events
        self._retry_join = retry_join
        self._sockets = sockets
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._link = GossipLink(serf, self._loop, self.flush)
        self._datagrams = Datagrams(self._link)
        self._transport: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._flushing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._joining = Joining(serf, self.flush, log, retry_join, resolver or SeedResolver())
        self._left_waiters: list[asyncio.Future[None]] = []
        self._maps_ipv4 = False
        self._drops_log = CounterLog(
            log.warning, "gossip dropped", self._drops, self._loop.time(), self._take_last_sender
        )

    @property
    def stopped(self) -> bool:
        return self._link.stopped

    # --- start and stop

    async def start(self) -> None:
        sockets = self._sockets
        # A socket bound to [::] sends to IPv4 members only under their mapped addresses.
        self._maps_ipv4 = sockets.datagram.family == socket.AF_INET6
        self._transport, _ = await self._loop.create_datagram_endpoint(lambda: self._datagrams, sock=sockets.datagram)
        self._server = await self._loop.create_server(
            lambda: AcceptedStream(self._link), sock=sockets.stream, backlog=TCP_BACKLOG
        )
        self._log.debug("gossip listens", address=socket_name_text(sockets.stream.getsockname()))
        self.flush()

    async def stop(self) -> None:
        """Close everything at once, without a leave."""
        if self.stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._link.abort()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._server is not None:
            self._server.close()
        if self._transport is not None:
            self._transport.close()
        if self._server is None:
            self._sockets.close()
        self._joining.stop()
        for left_waiter in self._left_waiters:
            left_waiter.cancel()
        await asyncio.sleep(0)  # transports close their sockets in the next turn of the loop

    # --- calls of the owner

    async def join(self, hosts: list[str], ignores_old: bool = False) -> dict[str, str]:
        """Join the cluster through these hosts (HOST or HOST:PORT). `ignores_old`: without user events of before.

        Gives the errors of the hosts that did not answer. JoinFailed when none did.
        """
        if self._retry_join is not None:
            self._retry_join.resume()
        errors = await self._joining.join(hosts, ignores_old=ignores_old)
        if self.serf.phase == SerfPhase.LEFT:  # all hosts are this node itself, so nothing was asked
            errors = dict.fromkeys(hosts, "this is the node itself, which has left; name another one") | errors
        if len(errors) == len(dict.fromkeys(hosts)):
            raise JoinFailed(errors)
        return errors

    async def leave(self, timeout: float) -> bool:
        """Leave gracefully within `timeout` seconds. False when the leave was not broadcast by then.

        The shell still runs: stop it. The attempts of `retry_join` go on only after the next `join`.
        """
        if self._retry_join is not None:
            self._retry_join.stop()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._left_waiters.append(waiter)
        self.serf.leave(self._loop.time())
        self.flush()
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            return self.serf.phase >= SerfPhase.PROPAGATING  # the leave was broadcast; only the last wait is cut short
        finally:
            if waiter in self._left_waiters:
                self._left_waiters.remove(waiter)
        return True

    def flush(self) -> None:
        """Take events, packets and stream requests from Serf and set the timer. Call it after every call to Serf."""
        if self._flushing or self.stopped:
            return
        self._flushing = True
        try:
            events = self.serf.take_events()
            while events:
                self._handle_events(events)
                events = self.serf.take_events()
            if self._transport is not None:
                for data, address in self.serf.packets_to_send():
                    mapped = self._maps_ipv4 and "." in address[0]
                    try:
                        self._transport.sendto(data, (f"::ffff:{address[0]}", address[1]) if mapped else address)
                    except (OSError, ValueError):
                        self.serf.counters.send_errors += 1
            for request in self.serf.take_stream_requests():
                self._start_task(OpenedStream(self._link, request).run())
        finally:
            self._flushing = False
        self._set_timer()

    # --- events and timers

    def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, JoinResult):
                self._joining.finished(event)
            elif isinstance(event, Left):
                for left_waiter in self._left_waiters:
                    if not left_waiter.done():
                        left_waiter.set_result(None)
            elif isinstance(event, (MemberFailed, MemberLeave)) and self._retry_join is not None:
                self._retry_join.member_lost(self._loop.time(), random.random() * LOST_MEMBER_SPREAD)
        if self._retry_join is not None:
            self._retry_join.members_changed(self.serf.alive_others(), self._loop.time())
        self._on_events(events)

    def _set_timer(self) -> None:
        deadline = self.serf.next_timeout()
        if self._retry_join is not None:
            retry_at = self._retry_join.next_timeout()
            if retry_at is not None:
                deadline = min(deadline, retry_at)
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # the timer fires early and is set again: cheaper than to move it for every packet
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        now = self._link.now()
        self.serf.handle_timeout(now)
        self._drops_log.check(now)
        if self._retry_join is not None:
            hosts = self._retry_join.take_hosts(now)
            if hosts:
                self._start_task(self._joining.retry(self._retry_join, hosts))
        self.flush()

    def _drops(self) -> dict[str, int]:
        return {reason.value: count for reason, count in self.serf.counters.dropped.items()}

    def _take_last_sender(self) -> dict[str, object]:
        sender = self._link.dropped_from
        self._link.dropped_from = None
        return {"last_from": socket_name_text(sender)} if sender is not None else {}

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine)
        self._tasks.add(task)  # Serf bounds the streams, `retry_join` has one attempt at a time
        task.add_done_callback(self._tasks.discard)
