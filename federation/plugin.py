"""The federation plugin: connects the node, the membership and the event streams, and runs them on the loop."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import random
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from broker.alarm import Alarm
from broker.config.addresses import UNSPECIFIED_HOSTS, Address, advertised_address
from broker.config.interfaces import local_ipv4_addresses
from broker.message import NEVER
from broker.metrics.metric import Metric
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.start_error import StartError, bind_error
from federation import counters
from federation.alarms import node_alarms
from federation.api.copy_metrics import copy_metrics
from federation.api.gossip_metrics import gossip_metrics
from federation.api.keys import KeysService
from federation.api.membership import MembershipService
from federation.api.peers import PeersService, peer_metrics
from federation.api.session_metrics import drain_metrics, session_metrics
from federation.api.sessions import SessionsService
from federation.api.trust_metrics import trust_metrics
from federation.exposure import exposure_warnings
from federation.extension import Extension
from federation.gossip.keyring import parse_key
from federation.membership import FederationMembership
from federation.node import Node
from federation.node_events import BadAddress, NoWay
from federation.pb.federation_pb2 import DESCRIPTOR
from federation.pb.keys_pb2 import DESCRIPTOR as KEYS
from federation.refusals import Refusals
from federation.serf.config import SerfConfig
from federation.serf.serf import Serf
from federation.sessions.drain import SERVING, DrainRefused
from federation.sessions.pb.sessions_pb2 import DESCRIPTOR as SESSIONS
from federation.settings import FederationSettings
from federation.shell.dialer import Dialer
from federation.shell.drain import DrainControl
from federation.shell.gossip_sockets import GossipSockets, bind_gossip
from federation.shell.grpc_options import BATCH_OVERHEAD_MAX, message_bytes_max
from federation.shell.keeper_clients import KeeperClients
from federation.shell.keyring_file import KeyringFile
from federation.shell.node_tls import NodeTls
from federation.shell.outlet_flush import OutletFlush
from federation.shell.peer_client import PeerClient
from federation.shell.plugin_calls import PluginCalls
from federation.shell.private_folder import PrivateFolder
from federation.shell.rpc import RpcShell
from federation.shell.sibling_workers import STREAM, begin_as_worker
from federation.shell.stream_server import StreamServer
from federation.shell.worker_leaves import WorkerLeaves
from federation.stream.state import State
from federation.tags import TAG_CLIENTS, TAG_WORKER_OF, TAG_ZONE, own_tags
from federation.trust import PLAIN

if TYPE_CHECKING:
    from broker.server.host import Host
    from broker.server.worker import Worker

TICK_SECONDS: Final = 1.0
"""Seconds between two looks for deadlines while there are other nodes."""
KEY: Final = "plugins.federation"
DRAIN_SECONDS_MAX: Final = 0.8
"""Longest wait before a leave until other nodes have acknowledged their events."""


def _bind(streams: StreamServer, address: Address, key: str, is_tls: bool) -> int:
    """Open an address of the streams. Returns its port. Raises StartError."""
    try:
        return streams.bind(address.host, address.port, is_tls)
    except OSError as error:
        raise bind_error(error, str(address), f"{KEY}.{key}") from error


class FederationPlugin(Plugin):
    """`node` is the core; `membership` knows the other nodes; `_clients` are the event streams to them, by name. Other plugins
    add to `extensions` while they are prepared."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._log = get_logger("federation")
        self._loop = asyncio.get_running_loop()
        self.settings: FederationSettings = server.settings.plugins.federation
        self.node = Node(self.settings.node_name, server.broker, self.settings, random.Random())
        self._worker = server.worker
        has_siblings = self._worker is not None and len(self._worker.place.gossip_ports) > 1
        self.membership = FederationMembership(
            self.node, self.settings, self._members_changed, self._before_leave, server.stop_soon, KEY, has_siblings
        )
        server.members = self.membership
        self.extensions: list[Extension] = []
        self.refusals = Refusals()
        self._folder = PrivateFolder()
        self.tls: NodeTls | None = None
        self.dialer: Dialer | None = None
        if self.settings.tls is not None:
            self.tls = NodeTls(self.settings.tls.files(server.path_of), self.settings.node_name, f"{KEY}.tls")
            self.dialer = Dialer(self.tls, self.membership, self.settings.require_tls, self._folder, self.refusals)
        # A block of an event log has one message of max_packet_size at most, behind smaller ones.
        answer_max = message_bytes_max(server.settings.mqtt.max_packet_size + BATCH_OVERHEAD_MAX)
        self.membership.plugin_calls = PluginCalls(self.membership, self.dialer, answer_max)
        self.extensions.append(self.membership.plugin_calls)
        self._keyring_file: KeyringFile | None = None
        if self.settings.keyring_file:
            self._keyring_file = KeyringFile(server.path_of(self.settings.keyring_file), f"{KEY}.keyring_file")
        self._streams: StreamServer | None = None
        self._sockets: GossipSockets | None = None
        self._rpc: RpcShell | None = None
        self._clients: dict[str, PeerClient] = {}
        self._keepers = KeeperClients(self._changed, self._log, self.dialer)
        self.drain = DrainControl(self.node, self.membership, server.now, self._drain_changed, self._log)
        if self._worker is not None:
            begin_as_worker(self.node, self.drain, self._worker, server.settings.store_type)
        self._outlet_flush = OutletFlush(self.node, self._arm_timer, server.flush_soon)
        self._leaves: WorkerLeaves | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._twin = ""  # that was told
        self._drained: asyncio.Event | None = None  # of a leave that waits for acknowledgements

    # --- start and stop

    async def prepare(self) -> None:
        self._read_tls()
        self.server.turns.ends.append(self._outlet_flush)
        if self.server.api is not None:
            services = DESCRIPTOR.services_by_name
            self.server.api.register(services["Membership"], MembershipService(self.membership, self.server.wall_time))
            self.server.api.register(KEYS.services_by_name["Keys"], KeysService(self.membership))
            peers = PeersService(self.node, self.server.now, self.server.wall_time)
            self.server.api.register(services["Peers"], peers)
            sessions = SessionsService(self.node, self.drain, self.server.wall_time, self.server.now)
            self.server.api.register(SESSIONS.services_by_name["Sessions"], sessions)

    def _gossip_keys(self) -> tuple[bytes, ...]:
        """The keys of the gossip, the primary one first; none when it is plain. Raises StartError."""
        if self._keyring_file is not None:
            return self._keyring_file.read()
        return tuple(parse_key(text) for text in self.settings.encrypt_keys)

    async def reload(self) -> None:
        self._read_tls()

    def _read_tls(self) -> None:
        """Read the certificates, for connections from now on. Raises StartError."""
        if self.tls is not None:
            self.tls.renew()
            end = datetime.fromtimestamp(self.tls.expires_at, UTC)
            self._log.info("certificate of this node read", expires=end.isoformat(timespec="minutes"))
            if self.tls.warning:
                text = "other nodes refuse the certificate of this node, or soon will"
                self._log.warning(text, reason=self.tls.warning, key=f"{KEY}.tls.cert")

    async def start(self) -> None:
        settings = self.settings
        self.membership.open_snapshot(self.server.path_of)
        try:
            self.node.begin(self.server.now(), self.membership.has_seeds, self.membership.joins_others)
        except (TypeError, ValueError) as error:
            raise StartError(
                f"persistence: a record of another node does not have the values of its kind: {error}"
            ) from error
        bytes_max = message_bytes_max(self.server.settings.mqtt.max_packet_size)
        # What an incoming batch causes is written at once; waiting for the end of the loop turn would only add latency.
        streams = self._streams = StreamServer(
            self.node,
            bytes_max,
            self._changed,
            self._log,
            self.server.turns,
            self.extensions,
            self.tls,
            self._folder,
            self.refusals,
        )
        streams.acks_due = self._outlet_flush.acks_due
        if self._worker is not None:
            streams.bind_path(self._worker.path(STREAM, self._worker.place.index))
        fed_advertised = tls_advertised = ""
        if not settings.require_tls:
            port = _bind(streams, settings.fed_addr, "fed_addr", False)
            fed_advertised = self._advertised(
                settings.advertise_fed_addr, settings.fed_addr, port, "fed_addr"
            ).host_port
        if settings.tls is not None:
            port = _bind(streams, settings.tls.addr, "tls.addr", True)
            advertised = self._advertised(settings.tls.advertise_addr, settings.tls.addr, port, "tls.addr")
            tls_advertised = advertised.host_port
        gossip_addr = settings.gossip_addr
        try:
            if self._worker is None or self._worker.place.is_member:
                self._sockets = bind_gossip(gossip_addr.host, gossip_addr.port)
            else:
                self._sockets = GossipSockets(*self._worker.gossip, gossip_addr.port)
        except OSError as error:
            raise bind_error(error, str(gossip_addr), f"{KEY}.gossip_addr") from error
        gossip_advertised = self._advertised(
            settings.advertise_gossip_addr, gossip_addr, self._sockets.port, "gossip_addr"
        )
        try:
            config = SerfConfig(
                node_name=settings.node_name,
                advertise_ip=await self._resolve(gossip_advertised),
                advertise_port=gossip_advertised.port,
                profile=settings.gossip.config(settings.gossip_profile, settings.gossip_cidrs_allowed),
                encrypt_keys=self._gossip_keys(),
                keeps_keys=self._keyring_file is not None,
                verify_incoming=settings.gossip_verify_incoming,
                verify_outgoing=settings.gossip_verify_outgoing,
                label=settings.gossip_label,
                tags=self.server.tags
                | ({TAG_CLIENTS: settings.server_reference} if settings.server_reference else {})
                | ({TAG_ZONE: settings.zone} if settings.zone else {})
                | ({} if self._worker is None else self._worker_tags(self._worker))
                | own_tags(
                    fed_advertised,
                    settings.batch,
                    self.server.broker.identity,
                    tls_advertised,
                    settings.session_scope == "federation",
                ),
                reconnect_interval=settings.reconnect_interval,
                reconnect_timeout=settings.reconnect_timeout,
                tombstone_timeout=settings.tombstone_timeout,
            )
            serf = Serf(config, random.SystemRandom(), self.server.now())
        except ValueError as error:
            raise StartError(f"{KEY}: {error}") from error
        if not config.profile.networks.allow(config.advertise_ip):
            text = (
                f"{config.advertise_ip}, the address of this node, is in none; nodes with the same list refuse this one"
            )
            self._log.warning(text, key=f"{KEY}.gossip_cidrs_allowed")
        for key, text in exposure_warnings(settings):
            self._log.warning(text, key=f"{KEY}.{key}")
        for text in settings.start_warnings(self.server.settings, self.server.path_of):
            self._log.warning(text, key=KEY)
        await streams.start()
        sockets, self._sockets = self._sockets, None
        await self.membership.start(serf, sockets, self._keyring_file)
        if settings.rpc_addr is not None:
            self._rpc = RpcShell(self.membership, serf, settings.rpc_auth, self._log)
            try:
                await self._rpc.start(settings.rpc_addr)
            except OSError as error:
                raise bind_error(error, str(settings.rpc_addr), f"{KEY}.rpc_addr") from error
        if self._worker is not None and self._worker.place.is_leaving:
            self._leaves = WorkerLeaves(self.drain, self._worker.has_left, self._log)
            try:
                self._leaves.start()
            except DrainRefused as refused:
                raise StartError(f"worker {self._worker.place.index} cannot leave: {refused}") from None
        self._log.info(
            "federation started",
            node=settings.node_name,
            fed_addr=fed_advertised,
            fed_tls=tls_advertised,
            gossip_addr=gossip_advertised.host_port,
        )

    async def leave(self) -> None:
        await self.membership.leave_at_stop()

    async def stop(self) -> None:
        if self._leaves is not None:
            self._leaves.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._outlet_flush.stop()
        if self._outlet_flush in self.server.turns.ends:
            self.server.turns.ends.remove(self._outlet_flush)
        self.node.stopped()
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            client.sender.outlet = None
        await asyncio.gather(*(client.stop() for client in clients))
        await self._keepers.stop()
        if self._streams is not None:
            await self._streams.stop()
        if self.membership.plugin_calls is not None:
            await self.membership.plugin_calls.stop()
        if self.dialer is not None:
            await self.dialer.stop()
        self._folder.remove()
        if self._rpc is not None:
            await self._rpc.stop()
        await self.membership.stop()
        if self._sockets is not None:
            self._sockets.close()

    def metrics(self) -> list[Metric]:
        serf = self.membership.serf
        found = peer_metrics(self.node, self.server.now()) + trust_metrics(self.refusals, self.tls)
        if self.node.sessions is not None:
            found += session_metrics(self.node.sessions)
        if self.node.drain is not None:
            found += drain_metrics(self.node.drain)
        if self.node.copies is not None:
            found += copy_metrics(self.node.copies, self.server.now())
        return found + ([] if serf is None else gossip_metrics(serf, self.server.now()))

    def not_ready(self) -> list[str]:
        found = ["this node left the federation"] if self.node.has_left else []
        if self.node.drain is not None and self.node.drain.state != SERVING:
            found.append("this node is drained: it takes no clients")
        twin = self.node.twin()
        return [*found, f"the node {twin} has the same store id: one of the two stores is a copy"] if twin else found

    async def alarms(self) -> list[Alarm]:
        serf = self.membership.serf
        return [] if serf is None else node_alarms(self.node, serf, self.server.now())

    def lost_messages(self) -> dict[str, int]:
        return counters.lost_messages(self.node.counters)

    def refused_input(self) -> dict[str, int]:
        refused = {f"nodes_refused_{word}": count for word, count in self.refusals.totals.items()}
        if self._rpc is not None:
            refused |= self._rpc.refused_input()
        return counters.refused_input(self.node.counters) | refused

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

    def _worker_tags(self, worker: Worker) -> dict[str, str]:
        place, name = worker.place, self.settings.node_name
        return {TAG_WORKER_OF: place.node_name(name)} if place.index else {}

    # --- turns and timers

    def _changed(self) -> None:
        """A stream acted on the broker, on a sender or a keeper."""
        copies = self.node.copies
        if copies is not None:
            if copies.replication.kept.is_changed:
                copies.replication.settle()
            self._keepers.follow(copies.replication.keepers)
        for sender in self.node.senders.values():
            if sender.state is not State.STREAMING:
                self._follow()
                self._arm_timer()
                break
        self._look_whether_drained()
        self.server.flush_soon()

    def _acked(self) -> None:
        """An acknowledgement came on a direct stream."""
        if self._drained is not None:
            self._look_whether_drained()
        if self.node.promises is not None:
            self.node.promises.settle()
        self.server.flush_soon()

    def _drain_changed(self) -> None:
        self._arm_timer()
        self.server.flush_soon()

    def _arm_timer(self) -> None:
        at = self.node.next_timeout(gathers=False)
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
        self.drain.look()
        self._log_node_events()
        self._look_for_twin()
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
                found = self._clients[name] = PeerClient(
                    self.node.name, sender, self._changed, self._acked, self._log, self.dialer
                )
                sender.outlet = found.writer
            found.follow()
        if self.node.copies is not None:
            self._keepers.follow(self.node.copies.replication.keepers)

    def _members_changed(self) -> None:
        self._log_node_events()
        self._follow()
        self._arm_timer()
        if self._streams is not None:
            self._streams.carry_out()
        if self.dialer is not None:
            self.dialer.members_changed()
        for extension in self.extensions:
            extension.members_changed()
        self.server.flush_soon()

    def _look_for_twin(self) -> None:
        """Two nodes with one store id: what is done is known by it. The node with the greater name stops."""
        twin = self.node.twin()
        if twin and twin != self._twin:
            name = self.node.name
            self._log.error(
                "two nodes have one store id: the store of one was copied", node=twin, stops=max(twin, name)
            )
            if name > twin:
                self.server.stop_soon(
                    f"the store of this node has the id of that of the node {twin}: it is a copy. Give this node an empty "
                    "data_dir of its own, or import an export"
                )
        self._twin = twin

    def _log_node_events(self) -> None:
        for event in self.node.take_events():
            if isinstance(event, BadAddress):
                self._log.warning(
                    "a member's fed_addr is not an address, so it gets no events", node=event.name, fed_addr=event.text
                )
            elif isinstance(event, NoWay):
                if self.refusals.note(PLAIN, event.name, event.reason, self._loop.time()) >= 0:
                    self._log.warning("refused a member", node=event.name, reason=event.reason)
            else:
                self._log.warning(
                    "a node that is alive sends no events; restart it, or let this node leave and join by the API",
                    node=event.name,
                    seconds=event.seconds,
                )
