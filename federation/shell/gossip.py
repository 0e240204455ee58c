"""Sockets and timers for a Serf node: UDP and TCP on one port, on asyncio. No rule of the protocol is here."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from federation.gossip.addresses import Address
from federation.gossip.exchange import StreamRequest
from federation.serf.events import Event, JoinResult, Left, MemberFailed, MemberLeave
from federation.serf.retry_join import RetryJoin, SeedsJoined, SeedsUnreachable
from federation.serf.serf import Serf, SerfPhase
from federation.shell.gossip_protocols import AcceptedStream, Datagrams, OpenedStream

GOSSIP_PORT: Final = 8902
"""Where a join goes when the host names no port."""
DATAGRAM_BUFFER_BYTES: Final = 1 << 20
"""Asked of the kernel for each direction: a burst of gossip should not be lost while the loop is busy."""
DROPS_LOG_INTERVAL: Final = 60.0
"""Seconds between two warnings about gossip that was dropped."""
LOST_MEMBER_SPREAD: Final = 5.0
"""Seconds over which the nodes try their seeds again after a member was lost."""
FREE_PORT_TRIES: Final = 20
TCP_BACKLOG: Final = 128

Log = Callable[[str, str, dict[str, object]], None]
"""Level ("debug", "info", "warning", "error"), what happened, details."""


class JoinError(Exception):
    """No host of a join answered. `errors`: why, by host as it was given."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{host}: {text}" for host, text in errors.items()) or "no hosts were given")
        self.errors = errors


def parse_host(text: str) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address. ValueError says what is wrong."""
    host = text.strip()
    port_text = ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is no address: write an IPv6 address as [::1] or [::1]:{GOSSIP_PORT}")
        port_text = rest[1:]
        has_port = bool(rest)
    elif host.count(":") == 1:
        host, _, port_text = host.partition(":")
        has_port = True
    else:
        has_port = False
    if not host:
        raise ValueError(f"{text!r} is no address: the host is missing, write it as host:{GOSSIP_PORT}")
    if not has_port:
        return host, GOSSIP_PORT
    if not (port_text.isascii() and port_text.isdigit()) or not 0 < int(port_text) < 65536:
        raise ValueError(f"{text!r} is no address: the port must be a number from 1 to 65535")
    return host, int(port_text)


@dataclass(frozen=True, slots=True)
class GossipSockets:
    """Bound sockets of one port; `start` takes them over."""

    datagram: socket.socket
    stream: socket.socket
    port: int

    def close(self) -> None:
        self.datagram.close()
        self.stream.close()


def bind_gossip(host: str, port: int) -> GossipSockets:
    """UDP and TCP on the same port; port 0 finds a free one. OSError names the address and what is wrong."""
    tries = FREE_PORT_TRIES if port == 0 else 1
    while True:
        tries -= 1
        try:
            return _bind_both(host, port)
        except OSError as error:
            if tries == 0:
                text = error.strerror or str(error)
                raise OSError(error.errno, f"gossip cannot listen on {host or '*'}:{port}: {text}") from error


def _bind_both(host: str, port: int) -> GossipSockets:
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    infos.sort(key=lambda info: info[0] != socket.AF_INET)
    family, _, _, _, address = infos[0]
    stream = socket.socket(family, socket.SOCK_STREAM)
    try:
        stream.setblocking(False)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.bind(address)
        # Listening at once: with SO_REUSEADDR two sockets may bind one port as long as neither listens.
        stream.listen(TCP_BACKLOG)
        bound: int = stream.getsockname()[1]
        datagram = socket.socket(family, socket.SOCK_DGRAM)
        try:
            datagram.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                datagram.setsockopt(socket.SOL_SOCKET, option, DATAGRAM_BUFFER_BYTES)
            datagram.bind((address[0], bound, *address[2:]))
        except OSError:
            datagram.close()
            raise
    except OSError:
        stream.close()
        raise
    return GossipSockets(datagram, stream, bound)


def _silent(level: str, event: str, details: dict[str, object]) -> None:
    """Logs nothing."""


class GossipShell:
    """Runs one Serf node. `on_events` gets every event, in order, on the loop; it may call Serf and then `flush`.

    `sockets` from `bind_gossip` when the port had to be known before the node was made; otherwise `start` binds.
    """

    def __init__(
        self,
        serf: Serf,
        bind_host: str,
        bind_port: int,
        on_events: Callable[[list[Event]], None],
        retry_join: RetryJoin | None = None,
        sockets: GossipSockets | None = None,
        log: Log = _silent,
    ) -> None:
        self.serf = serf
        self._bind_host = bind_host
        self._bind_port = bind_port
        self._on_events = on_events
        self._retry_join = retry_join
        self._sockets = sockets
        self._log = log
        self.loop: asyncio.AbstractEventLoop
        self._datagrams: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._flushing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.streams: set[asyncio.Transport] = set()
        self._join_waiters: dict[int, asyncio.Future[JoinResult]] = {}
        self._left_waiters: list[asyncio.Future[None]] = []
        self._maps_ipv4 = False
        self.accepted: dict[AcceptedStream, None] = {}
        self._drops_logged: dict[str, int] = dict(serf.counters.dropped)
        self._drops_log_at = 0.0
        self.send_errors = 0
        self.stopped = False

    # --- start and stop

    async def start(self) -> None:
        """Bind and run. OSError with the address when the port cannot be had."""
        self.loop = asyncio.get_running_loop()
        if self._sockets is None:
            self._sockets = bind_gossip(self._bind_host, self._bind_port)
        sockets = self._sockets
        # A socket bound to [::] reaches IPv4 members too, under their mapped addresses only.
        self._maps_ipv4 = sockets.datagram.family == socket.AF_INET6
        self._datagrams, _ = await self.loop.create_datagram_endpoint(lambda: Datagrams(self), sock=sockets.datagram)
        self._server = await self.loop.create_server(
            lambda: AcceptedStream(self), sock=sockets.stream, backlog=TCP_BACKLOG
        )
        self._log("info", "gossip listens", {"host": self._bind_host, "port": sockets.port})
        self.flush()

    async def stop(self) -> None:
        """Close everything at once, without a leave."""
        if self.stopped:
            return
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for transport in list(self.streams):
            transport.abort()
        if self._server is not None:
            self._server.close()
        if self._datagrams is not None:
            self._datagrams.close()
        if self._sockets is not None and self._server is None:
            self._sockets.close()
        for join_waiter in self._join_waiters.values():
            join_waiter.cancel()
        for left_waiter in self._left_waiters:
            left_waiter.cancel()
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn

    # --- what the owner asks

    async def join(self, hosts: list[str]) -> dict[str, str]:
        """Join the cluster through these hosts. Gives the errors of those that did not answer; JoinError when none did."""
        if self._retry_join is not None:
            self._retry_join.resume()
        errors = await self._try_join(hosts)
        if self.serf.phase == SerfPhase.LEFT:  # nobody let this node in again, so it did not ask anybody else
            errors = dict.fromkeys(hosts, "this is the node itself, which has left; name another one") | errors
        if len(errors) == len(dict.fromkeys(hosts)):
            raise JoinError(errors)
        return errors

    async def leave(self, timeout: float) -> bool:
        """Leave gracefully, waiting at most `timeout` seconds; False when it is not known by then that the others heard.
        The shell still runs: stop it.
        `retry_join` rests until `join` is called.
        """
        if self._retry_join is not None:
            self._retry_join.stop()
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._left_waiters.append(waiter)
        self.serf.leave(self.loop.time())
        self.flush()
        try:
            await asyncio.wait_for(waiter, timeout)
        except TimeoutError:
            return self.serf.phase >= SerfPhase.PROPAGATING  # only the wait for the last ones was cut short
        finally:
            if waiter in self._left_waiters:
                self._left_waiters.remove(waiter)
        return True

    def flush(self) -> None:
        """Send, open and tell what the core wants, and move the timer. Call it after every call to Serf from outside."""
        if self._flushing or self.stopped:
            return
        self._flushing = True
        try:
            events = self.serf.take_events()
            while events:
                self._handle_events(events)
                events = self.serf.take_events()
            if self._datagrams is not None:
                for data, address in self.serf.packets_to_send():
                    mapped = self._maps_ipv4 and "." in address[0]
                    try:
                        self._datagrams.sendto(data, (f"::ffff:{address[0]}", address[1]) if mapped else address)
                    except (OSError, ValueError):
                        self.send_errors += 1
            for request in self.serf.take_stream_requests():
                self._start_task(self._open_stream(request))
        finally:
            self._flushing = False
        self._move_timer()

    # --- the core's wishes

    def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, JoinResult):
                waiter = self._join_waiters.pop(event.join_id, None)
                if waiter is not None and not waiter.done():
                    waiter.set_result(event)
            elif isinstance(event, Left):
                for left_waiter in self._left_waiters:
                    if not left_waiter.done():
                        left_waiter.set_result(None)
            elif isinstance(event, (MemberFailed, MemberLeave)) and self._retry_join is not None:
                self._retry_join.member_lost(self.loop.time(), random.random() * LOST_MEMBER_SPREAD)
        if self._retry_join is not None:
            self._retry_join.members_changed(self.serf.alive_others(), self.loop.time())
        self._on_events(events)

    def _move_timer(self) -> None:
        deadline = self.serf.next_timeout()
        if self._retry_join is not None:
            retry_at = self._retry_join.next_timeout()
            if retry_at is not None:
                deadline = min(deadline, retry_at)
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # it will fire early and look again, which is cheaper than moving it for every packet
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self.loop.call_at(deadline, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        now = self.loop.time()
        self.serf.handle_timeout(now)
        if now >= self._drops_log_at:
            self._log_drops(now)
        if self._retry_join is not None:
            hosts = self._retry_join.take_hosts(now)
            if hosts:
                self._start_task(self._retry(self._retry_join, hosts))
        self.flush()

    def _log_drops(self, now: float) -> None:
        dropped = self.serf.counters.dropped
        logged = self._drops_logged
        if dropped != logged:
            news: dict[str, object] = {
                reason: count - logged[reason] for reason, count in dropped.items() if count != logged[reason]
            }
            self._log("warning", "gossip dropped", news)
            self._drops_logged = dict(dropped)
            self._drops_log_at = now + DROPS_LOG_INTERVAL

    def make_room(self) -> None:
        """Close the stream that has been open longest: whoever opens many and sends nothing must not keep the others out."""
        for oldest in self.accepted:
            oldest.close()
            return

    def _start_task(self, coroutine: Any) -> None:
        task: asyncio.Task[None] = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- streams that we open; Serf bounds their number

    async def _open_stream(self, request: StreamRequest) -> None:
        opened = OpenedStream(self, request)
        try:
            async with asyncio.timeout(request.timeout):
                await self.loop.create_connection(lambda: opened, request.address[0], request.address[1])
                await opened.finished
        except TimeoutError:
            opened.fail(f"no answer within {request.timeout:g} s")
        except OSError as error:
            opened.fail(os.strerror(error.errno) if error.errno else str(error))
        finally:
            opened.close()

    # --- joins

    async def _try_join(self, hosts: list[str], retry_join: RetryJoin | None = None) -> dict[str, str]:
        """Join all; the errors of those that failed, by host as given. `retry_join` when it asked for this."""
        errors: dict[str, str] = {}
        addresses: dict[Address, str] = {}
        own = self.serf.local_member
        alternatives: dict[str, list[Address]] = {}
        for host in dict.fromkeys(hosts):
            try:
                found = await self._resolve(host)
            except ValueError as error:
                errors[host] = str(error)
                continue
            except OSError as error:
                errors[host] = f"the name cannot be resolved: {error.strerror or error}"
                continue
            if (own.ip, own.port) in found:
                if self._retry_join is not None:
                    self._retry_join.remove(host)
                continue  # ourselves
            alternatives[host] = found
            for address in found:
                addresses[address] = host
        if not alternatives:
            return errors
        if retry_join is not None and retry_join.stopped:  # while the names were looked up
            return errors | dict.fromkeys(alternatives, "this node was told to leave")
        waiter: asyncio.Future[JoinResult] = self.loop.create_future()
        try:
            join_id = self.serf.join(list(addresses), self.loop.time())
        except ValueError as error:
            return errors | dict.fromkeys(alternatives, str(error))
        self._join_waiters[join_id] = waiter
        self.flush()
        result = await waiter
        for host, found in alternatives.items():
            if all(address in result.errors for address in found):
                errors[host] = result.errors[found[0]]
        return errors

    async def _resolve(self, text: str) -> list[Address]:
        host, port = parse_host(text)
        infos = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((str(info[4][0]), int(info[4][1])) for info in infos))

    async def _retry(self, retry_join: RetryJoin, hosts: list[str]) -> None:
        errors = await self._try_join(hosts, retry_join)
        now = self.loop.time()
        retry_join.attempt_finished(errors, now)
        retry_join.members_changed(self.serf.alive_others(), now)
        for event in retry_join.take_events():
            if isinstance(event, SeedsJoined):
                self._log("info", "joined", {"hosts": event.hosts})
            elif isinstance(event, SeedsUnreachable):
                details: dict[str, object] = {"after_seconds": round(event.after, 1), "errors": event.errors}
                self._log("error", "retry_join has not reached all hosts yet, it goes on trying", details)
        if errors:
            self._log("debug", "join failed", {"errors": errors})
        self.flush()
