"""The federation as a plugin: puts the node, the gossip and the event streams together and runs them on the loop."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import TYPE_CHECKING, Final

from broker.config.addresses import UNSPECIFIED_HOSTS, Address, advertised_address
from broker.config.interfaces import local_ipv4_addresses
from broker.message import NEVER
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError, bind_error
from federation import counts
from federation.node import Node, own_tags
from federation.serf.config import SerfConfig
from federation.serf.events import (
    Event,
    Member,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    MemberReap,
    MemberUpdate,
    NameConflict,
)
from federation.serf.retry_join import RetryJoin
from federation.serf.serf import Serf, SerfPhase
from federation.shell.gossip import GossipShell, GossipSockets, bind_gossip
from federation.shell.grpc_client import PeerClient
from federation.shell.grpc_options import message_bytes_max
from federation.shell.outflow import Outflow
from federation.shell.stream_server import StreamServer
from federation.stream.state import State

if TYPE_CHECKING:
    from broker.server.lifecycle import Server

TICK_SECONDS: Final = 1.0  # how often deadlines are looked for while there are other nodes
KEY: Final = "plugins.federation"
DRAIN_SECONDS_MAX: Final = 0.8  # at the stop, for what is on its way to other nodes
LEAVE_SECONDS_MAX: Final = 2.5  # at the stop, for others to hear of it
LEAVE_BY_HAND_SECONDS_MAX: Final = 15.0  # by the API, where nobody waits for the end of the process

_MEMBER_NEWS: Final = (
    (MemberJoin, "member joined"),
    (MemberLeave, "member left"),
    (MemberFailed, "member failed"),
    (MemberUpdate, "member updated"),
    (MemberReap, "member forgotten"),
)


class FederationPlugin(Plugin):
    """Also what the Membership service of the API acts on: join, leave, force_leave, members."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._log = get_logger("federation")
        self._loop = asyncio.get_running_loop()
        self.settings = server.settings.plugins.federation
        self.node = Node(self.settings.node_name, server.broker, self.settings, random.Random())
        self._streams: StreamServer | None = None
        self._gossip: GossipShell | None = None
        self._sockets: GossipSockets | None = None
        self._clients: dict[str, PeerClient] = {}
        self._outflow = Outflow(self.node.outlets, self._arm_timer)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._retry_deadline: asyncio.TimerHandle | None = None
        self._is_leaving = False  # for good: the process stops
        self._lost_name = False  # to another node
        self._retry_join: RetryJoin | None = None

    # --- life

    async def prepare(self) -> None:
        self.server.turns.ends.append(self._outflow)
        if self.server.api is not None:
            from federation.api.membership import register_membership

            register_membership(self.server.api, self)

    async def start(self) -> None:
        settings = self.settings
        bytes_max = message_bytes_max(self.server.settings.mqtt.max_packet_size)
        # A batch that came is a turn of its own: waiting for the end of this one would only be time.
        self._streams = StreamServer(self.node, bytes_max, self._changed, self._log, self.server.turns)
        fed_addr = settings.fed_addr
        try:
            fed_port = self._streams.bind(fed_addr.host, fed_addr.port)
        except OSError as error:
            raise bind_error(error, str(fed_addr), f"{KEY}.fed_addr") from error
        gossip_addr = settings.gossip_addr
        try:
            self._sockets = bind_gossip(gossip_addr.host, gossip_addr.port)
        except OSError as error:
            raise bind_error(error, str(gossip_addr), f"{KEY}.gossip_addr") from error
        fed_advertised = self._advertised(settings.advertise_fed_addr, fed_addr, fed_port, "fed_addr")
        gossip_advertised = self._advertised(
            settings.advertise_gossip_addr, gossip_addr, self._sockets.port, "gossip_addr"
        )
        try:
            config = SerfConfig(
                node_name=settings.node_name,
                advertise_ip=await self._resolve(gossip_advertised),
                advertise_port=gossip_advertised.port,
                tags=own_tags(fed_advertised.host_port, settings.batch),
            )
            serf = Serf(config, random.Random(), self.server.now())
        except ValueError as error:
            raise StartError(f"{KEY}: {error}") from error
        retry_join: RetryJoin | None = None
        if settings.retry_join:
            hosts = [address.host_port for address in settings.retry_join]
            retry_join = RetryJoin(hosts, settings.retry_interval, settings.retry_timeout, self.server.now())
            self._retry_join = retry_join
            if settings.retry_timeout_action == "exit":
                self._retry_deadline = self._loop.call_later(settings.retry_timeout, self._retry_over, retry_join)
        self._gossip = GossipShell(
            serf,
            gossip_addr.host,
            self._sockets.port,
            self._members_changed,
            retry_join,
            self._sockets,
            self._log_gossip,
        )
        await self._streams.start()
        await self._gossip.start()
        self._log.info(
            "federation started",
            node=settings.node_name,
            fed_addr=fed_advertised.host_port,
            gossip_addr=gossip_advertised.host_port,
        )

    async def leave(self) -> None:
        """Within the stop's budget: what is queued goes out, then the others are told."""
        self._is_leaving = True
        if self._gossip is None or self._gossip.stopped:
            return
        if self._lost_name:
            # A leave is told by name: the others would take it for the leave of the node that the name belongs to.
            await self._gossip.stop()
            self._left()
            return
        await self._drain(DRAIN_SECONDS_MAX)
        self._expect_ends()
        if self._gossip.serf.phase != SerfPhase.LEFT and not await self._gossip.leave(LEAVE_SECONDS_MAX):
            self._log.warning("left without knowing that the others heard it", seconds=LEAVE_SECONDS_MAX)
        self._left()

    async def stop(self) -> None:
        for timer in (self._timer, self._retry_deadline):
            if timer is not None:
                timer.cancel()
        self._timer = None
        if self._outflow in self.server.turns.ends:
            self.server.turns.ends.remove(self._outflow)
        self.node.left()
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            client.sender.outlet = None
        await asyncio.gather(*(client.stop() for client in clients))
        if self._streams is not None:
            await self._streams.stop()
        if self._gossip is not None:
            await self._gossip.stop()
        elif self._sockets is not None:
            self._sockets.close()

    def lost_messages(self) -> dict[str, int]:
        return counts.lost_messages(self.node.counters)

    def refused_input(self) -> dict[str, int]:
        return counts.refused_input(self.node.counters)

    def _advertised(self, advertise: Address | None, bound: Address, port: int, key: str) -> Address:
        """What others are told: the host as configured or this machine's, the port as bound where it was left open."""
        wanted = bound if advertise is None else advertise
        if wanted.port == 0:
            wanted = Address("tcp", wanted.host, port)
        found, warning = advertised_address(wanted, local_ipv4_addresses() if wanted.host in UNSPECIFIED_HOSTS else ())
        if warning is not None:
            self._log.warning(warning, key=f"{KEY}.{key}")
        return found

    async def _resolve(self, address: Address) -> str:
        """Gossip carries IP addresses."""
        try:
            infos = await self._loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise StartError(
                f"{KEY}.advertise_gossip_addr: {address.host} cannot be resolved ({error.strerror or error}); "
                "give an IP address"
            ) from error
        return str(infos[0][4][0])

    def _expect_ends(self) -> None:
        """Others end the streams of a node that says that it leaves: no news for the log."""
        for client in self._clients.values():
            client.expects_end = True

    async def _drain(self, seconds: float) -> None:
        """Wait until nodes that take events have got all of them."""
        end = self._loop.time() + seconds
        while self._loop.time() < end:
            if not any(
                sender.outbox.size or sender.outbox.on_way
                for sender in self.node.senders.values()
                if sender.state is State.STREAMING
            ):
                return
            await asyncio.sleep(0.02)
        self._log.warning("some events did not reach other nodes before the stop", seconds=seconds)

    # --- turns and timers

    def _changed(self) -> None:
        """A stream acted on the broker or on a sender."""
        for sender in self.node.senders.values():
            if sender.state is not State.STREAMING:
                self._follow()
                self._arm_timer()
                break
        self.server.flush_soon()

    def _arm_timer(self) -> None:
        at = self.node.next_timeout()
        if self.node.senders:
            at = min(at, self.server.now() + TICK_SECONDS)
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at:
                return  # it fires early and looks again: cheaper than moving it
            timer.cancel()
            self._timer = None
        if at != NEVER:
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._timer_fired)
        self._outflow.is_watched = at != NEVER

    def _timer_fired(self) -> None:
        self._timer = None
        self._outflow.is_watched = False
        now = self.server.now()
        self.node.handle_timeout(now)
        self._follow()
        self.server.turns.flush_now(now)  # a deadline may bring something for receivers here, too

    def _follow(self) -> None:
        """Clients as the node's senders want them."""
        for name, client in list(self._clients.items()):
            if self.node.senders.get(name) is not client.sender:
                del self._clients[name]
                client.sender.outlet = None
                client.follow()
        for name, sender in self.node.senders.items():
            found = self._clients.get(name)
            if found is None:
                found = self._clients[name] = PeerClient(self.node, sender, self._changed, self._log)
                sender.outlet = found.writer
            found.follow()

    # --- membership

    def _members_changed(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, NameConflict):
                self._name_conflict(event)
            for kind, news in _MEMBER_NEWS:
                if isinstance(event, kind) and event.member.name != self.node.name:
                    member = event.member
                    self._log.info(news, node=member.name, addr=f"{member.ip}:{member.port}", tags=member.tags)
        self.node.member_events(events, self.server.now())
        self._joined_again()
        self._after_members()

    def _joined_again(self) -> None:
        """After a leave the API made this node a member again: its streams follow."""
        gossip = self._gossip
        if gossip is not None and self.node.has_left and not self._is_leaving and gossip.serf.phase == SerfPhase.ALIVE:
            self.node.joined(gossip.serf.members(), self.server.now())

    def _after_members(self) -> None:
        for bad in self.node.take_events():
            self._log.warning("a member's fed_addr is no address: it gets no events", node=bad.name, fed_addr=bad.text)
        self._follow()
        self._arm_timer()
        if self._streams is not None:
            self._streams.members_changed()
        self.server.flush_soon()

    def _name_conflict(self, conflict: NameConflict) -> None:
        where = f"{conflict.ip}:{conflict.port}"
        if conflict.lost and self._stands_alone():
            # Refused at a join by the API, which has said so: no reason to stop serving.
            self._log.error("not joined: the name of this node is taken", node=conflict.name, other=where)
        elif conflict.lost:
            self._lost_name = True
            self.server.stop_soon(
                f"the node name {conflict.name!r} belongs to another node of the federation, at {where}; "
                f"give this one another {KEY}.node_name"
            )
        elif conflict.ours:
            self._log.error("another node has the name of this one", node=conflict.name, other=where)
        else:
            self._log.warning("two nodes have one name", node=conflict.name, other=where)

    def _stands_alone(self) -> bool:
        gossip = self._gossip
        is_joining = self._retry_join is not None and bool(self._retry_join.pending)
        return gossip is not None and not is_joining and gossip.serf.alive_others() == 0

    def _left(self) -> None:
        self.node.left()
        self._after_members()

    def _retry_over(self, retry_join: RetryJoin) -> None:
        if not retry_join.reached and retry_join.pending:
            hosts = ", ".join(retry_join.pending)
            self.server.stop_soon(
                f"{KEY}.retry_join: {hosts} did not answer within {self.settings.retry_timeout:g} s "
                "and retry_timeout_action is exit"
            )

    def _log_gossip(self, level: str, event: str, details: dict[str, object]) -> None:
        getattr(self._log, level)(event, **details)

    # --- what the API asks (federation.api.control). Each may raise NotRunning.

    async def join(self, hosts: list[str]) -> dict[str, str]:
        """Join the federation through these gossip addresses; the errors of those that did not answer. Raises
        federation.shell.gossip.JoinError when none did. A node that has left is a member again."""
        gossip = self._running()
        try:
            return await gossip.join(hosts)
        finally:
            self._joined_again()
            self._after_members()

    async def leave_federation(self) -> bool:
        """Leave gracefully and go on for the node's own clients; False when it is not known that the others heard it."""
        gossip = self._running()
        await self._drain(DRAIN_SECONDS_MAX)
        self._expect_ends()
        heard = await gossip.leave(LEAVE_BY_HAND_SECONDS_MAX)
        self._left()
        return heard

    def force_leave(self, name: str) -> bool:
        """Turn a failed member into one that has left; False for an unknown name, ValueError for this node's own."""
        gossip = self._running()
        if gossip.serf.member(name) is None:
            return False
        gossip.serf.force_leave(name, self.server.now())
        gossip.flush()
        return True

    def members(self) -> list[Member]:
        """All members that this node knows, itself included."""
        return self._running().serf.members()

    def _running(self) -> GossipShell:
        """Raises NotRunning: the API may be open before the federation is, and until after it."""
        from federation.api.membership import NotRunning

        if self._gossip is None or self._gossip.stopped:
            raise NotRunning("the federation of this node is not running (yet)")
        return self._gossip
