"""The federation plugin: connects the node, the membership and the event streams, and runs them on the loop."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import random
import socket
from typing import TYPE_CHECKING, Final

from broker.config.addresses import UNSPECIFIED_HOSTS, Address, advertised_address, is_loopback
from broker.config.interfaces import local_ipv4_addresses
from broker.message import NEVER
from broker.metrics.metric import Metric
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError, bind_error
from federation import counters
from federation.api.gossip_metrics import gossip_metrics
from federation.api.membership import MembershipService
from federation.api.peers import PeersService, peer_metrics
from federation.extension import Extension
from federation.membership import FederationMembership
from federation.node import BadAddress, Node, own_tags
from federation.pb.federation_pb2 import DESCRIPTOR
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.settings import FederationSettings
from federation.shell.gossip_sockets import GossipSockets, bind_gossip
from federation.shell.grpc_options import message_bytes_max
from federation.shell.outlet_flush import OutletFlush
from federation.shell.peer_client import PeerClient
from federation.shell.stream_server import StreamServer
from federation.stream.state import State

if TYPE_CHECKING:
    from broker.server.host import Host

TICK_SECONDS: Final = 1.0
"""Seconds between two looks for deadlines while there are other nodes."""
KEY: Final = "plugins.federation"
DRAIN_SECONDS_MAX: Final = 0.8
"""Longest wait before a leave until other nodes have acknowledged their events."""


class FederationPlugin(Plugin):
    """`node` is the core; `membership` knows the other nodes; `_clients` are the event streams to them, by name. Other plugins
    add to `extensions` while they are prepared."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._log = get_logger("federation")
        self._loop = asyncio.get_running_loop()
        self.settings: FederationSettings = server.settings.plugins.federation
        self.node = Node(self.settings.node_name, server.broker, self.settings, random.Random())
        self.membership = FederationMembership(
            self.node, self.settings, self._members_changed, self._before_leave, server.stop_soon, KEY
        )
        server.members = self.membership
        self.extensions: list[Extension] = []
        self._streams: StreamServer | None = None
        self._sockets: GossipSockets | None = None
        self._clients: dict[str, PeerClient] = {}
        self._outlet_flush = OutletFlush(self.node, self._arm_timer, server.flush_soon)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._drained: asyncio.Event | None = None  # of a leave that waits for acknowledgements

    # --- start and stop

    async def prepare(self) -> None:
        self.server.turns.ends.append(self._outlet_flush)
        if self.server.api is not None:
            services = DESCRIPTOR.services_by_name
            self.server.api.register(services["Membership"], MembershipService(self.membership))
            peers = PeersService(self.node, self.server.now, self.server.wall_time)
            self.server.api.register(services["Peers"], peers)

    async def start(self) -> None:
        settings = self.settings
        try:
            self.node.begin(self.server.now(), bool(settings.retry_join))
        except (TypeError, ValueError) as error:
            raise StartError(
                f"persistence: a record of another node does not have the values of its kind: {error}"
            ) from error
        bytes_max = message_bytes_max(self.server.settings.mqtt.max_packet_size)
        # What an incoming batch causes is written at once; waiting for the end of the loop turn would only add latency.
        self._streams = StreamServer(self.node, bytes_max, self._changed, self._log, self.server.turns, self.extensions)
        self._streams.acks_due = self._outlet_flush.acks_due
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
                tags=self.server.tags | own_tags(fed_advertised.host_port, settings.batch, self.server.broker.identity),
            )
            serf = Serf(config, random.Random(), self.server.now())
        except ValueError as error:
            raise StartError(f"{KEY}: {error}") from error
        for address, key in ((fed_addr, "fed_addr"), (gossip_addr, "gossip_addr")):
            if not is_loopback(address.host):
                self._log.warning(
                    f"whoever reaches {address} can join the federation, read and publish: other nodes are not authenticated "
                    "and nothing is encrypted; use a loopback or private address",
                    key=f"{KEY}.{key}",
                )
        for text in settings.start_warnings(self.server.settings, self.server.path_of):
            self._log.warning(text, key=KEY)
        await self._streams.start()
        sockets, self._sockets = self._sockets, None
        await self.membership.start(serf, sockets)
        self._log.info(
            "federation started",
            node=settings.node_name,
            fed_addr=fed_advertised.host_port,
            gossip_addr=gossip_advertised.host_port,
        )

    async def leave(self) -> None:
        await self.membership.leave_at_stop()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._outlet_flush in self.server.turns.ends:
            self.server.turns.ends.remove(self._outlet_flush)
        self.node.stopped()
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            client.sender.outlet = None
        await asyncio.gather(*(client.stop() for client in clients))
        if self._streams is not None:
            await self._streams.stop()
        await self.membership.stop()
        if self._sockets is not None:
            self._sockets.close()

    def metrics(self) -> list[Metric]:
        serf = self.membership.serf
        return peer_metrics(self.node, self.server.now()) + ([] if serf is None else gossip_metrics(serf))

    def not_ready(self) -> list[str]:
        return ["this node left the federation"] if self.node.has_left else []

    def lost_messages(self) -> dict[str, int]:
        return counters.lost_messages(self.node.counters)

    def refused_input(self) -> dict[str, int]:
        return counters.refused_input(self.node.counters)

    def _advertised(self, advertise: Address | None, bound: Address, port: int, key: str) -> Address:
        """The address to tell other nodes: the configured one, completed by an address of this machine and the bound port."""
        wanted = bound if advertise is None else advertise
        if wanted.port == 0:
            wanted = Address("tcp", wanted.host, port)
        found, warning = advertised_address(wanted, local_ipv4_addresses() if wanted.host in UNSPECIFIED_HOSTS else ())
        if warning is not None:
            self._log.warning(warning, key=f"{KEY}.{key}")
        return found

    async def _resolve(self, address: Address) -> str:
        """The IP address of an advertised host; gossip carries IP addresses only."""
        try:
            infos = await self._loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise StartError(
                f"{KEY}.advertise_gossip_addr: {address.host} cannot be resolved ({error.strerror or error}); "
                "give an IP address"
            ) from error
        return str(infos[0][4][0])

    async def _before_leave(self) -> None:
        """Let extensions hand over what they do; wait until other nodes have acknowledged their events; then expect the ends of
        their streams.

        Other nodes end their streams to a node that leaves. These ends are not logged.
        """
        await asyncio.gather(*(extension.before_leave() for extension in self.extensions))
        drained = self._drained = self._drained or asyncio.Event()
        self._look_whether_drained()
        try:
            await asyncio.wait_for(drained.wait(), DRAIN_SECONDS_MAX)
        except TimeoutError:
            self._log.warning("some events did not reach other nodes before the leave", seconds=DRAIN_SECONDS_MAX)
        for client in self._clients.values():
            client.expects_end = True

    def _look_whether_drained(self) -> None:
        """After each acknowledgement, and after each stream that was lost: nothing can be acknowledged there."""
        if self._drained is None:
            return
        for sender in self.node.senders.values():
            if sender.state is State.STREAMING and (sender.outbox.size or sender.outbox.on_way):
                return
        self._drained.set()
        self._drained = None

    # --- turns and timers

    def _changed(self) -> None:
        """A stream acted on the broker or on a sender."""
        for sender in self.node.senders.values():
            if sender.state is not State.STREAMING:
                self._follow()
                self._arm_timer()
                break
        self._look_whether_drained()
        self.server.flush_soon()

    def _acked(self) -> None:
        """An acknowledgement came on a direct stream. It seldom changes anything here."""
        if self._drained is not None:
            self._look_whether_drained()
        broker = self.server.broker
        promises = self.node.promises
        is_kept = promises is not None and promises.settle()
        if is_kept or broker.reading_changes or broker.dirty or broker.acks_awaited:
            self.server.flush_soon()

    def _arm_timer(self) -> None:
        at = self.node.next_timeout()
        if self.node.senders:
            at = min(at, self.server.now() + TICK_SECONDS)
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at:
                return  # the timer fires early and is set again: cheaper than to move it
            timer.cancel()
            self._timer = None
        if at != NEVER:
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._timer_fired)
        self._outlet_flush.is_watched = at != NEVER

    def _timer_fired(self) -> None:
        self._timer = None
        self._outlet_flush.is_watched = False
        now = self.server.now()
        self.node.handle_timeout(now)
        self._look_whether_drained()
        self._log_node_events()
        self._follow()
        self.server.turns.flush_now(now)  # deadlines may cause output for clients of this node

    def _follow(self) -> None:
        """Open and close clients so that each sender has one, and let each do what its sender asks for."""
        for name, client in list(self._clients.items()):
            if self.node.senders.get(name) is not client.sender:
                del self._clients[name]
                client.sender.outlet = None
                client.follow()
        for name, sender in self.node.senders.items():
            found = self._clients.get(name)
            if found is None:
                found = self._clients[name] = PeerClient(self.node.name, sender, self._changed, self._acked, self._log)
                sender.outlet = found.writer
            found.follow()

    def _members_changed(self) -> None:
        self._log_node_events()
        self._follow()
        self._arm_timer()
        if self._streams is not None:
            self._streams.carry_out()
        for extension in self.extensions:
            extension.members_changed()
        self.server.flush_soon()

    def _log_node_events(self) -> None:
        for event in self.node.take_events():
            if isinstance(event, BadAddress):
                self._log.warning(
                    "a member's fed_addr is not an address, so it gets no events", node=event.name, fed_addr=event.text
                )
            else:
                self._log.warning(
                    "a node that is alive sends no events; restart it, or let this node leave and join by the API",
                    node=event.name,
                    seconds=event.seconds,
                )
