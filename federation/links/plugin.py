"""The plugin `links`: connects the definitions, the ownership, the interest of the cluster, and the sockets of links."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from broker.alarm import Alarm
from broker.config.addresses import Address
from broker.config.settings_listeners import ListenerSettings
from broker.listener_facts import ListenerFacts
from broker.message import NEVER
from broker.metrics.metric import Metric
from broker.origin import HeaderError
from broker.plugins import Plugin
from broker.server.listener import Listener
from broker.server.logging import get_logger
from broker.server.protocol import ClientProtocol
from broker.server.start_error import StartError
from broker.server.turns import TurnEnd
from federation.definitions.resolution import Resolution
from federation.definitions.shell.cluster import DefinitionsCluster
from federation.definitions.shell.service import DefinitionsService
from federation.extension import Extension
from federation.links.bridging.bridging import bridging_of
from federation.links.links import Links
from federation.links.ownership_table import Drain, Run
from federation.links.pb.link_status_pb2 import DESCRIPTOR, ListLinksRequest
from federation.links.queues import QueueDefaults
from federation.links.reports import LinkEvents, LinkLog, bridging_metrics, link_alarms, link_metrics, queue_metrics
from federation.links.settings import LinksSettings, shares_secrets
from federation.links.shell.owners import VERSION, Owners, SessionsFile
from federation.links.shell.service import GroupQueuesService, LinksService
from federation.links.shell.upstream_socket import UpstreamSocket
from federation.links.status import LinkState
from federation.plugin import FederationPlugin
from federation.shell.dialer import Dialer
from federation.tags import TAG_LINKS
from federation.trust import Caller

if TYPE_CHECKING:
    from broker.server.host import Host


class NodeListener(Extension):
    """`address` is that of the event streams. A connection is one of `mqtt.max_connections`; limits for addresses of clients,
    and plugins that look at them, have no say."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._listener = Listener(ListenerSettings(address), "plugins.federation.fed_addr", host.now())
        self._listener.facts = ListenerFacts(str(address), "tcp", is_node=True)

    def mqtt_protocol(self, ended: Callable[[], None], caller: Caller) -> asyncio.Protocol:
        listener = self._listener
        if caller.names is not None:
            listener = copy(listener)
            listener.facts = ListenerFacts(listener.facts.name, "tls", is_node=True, node_names=tuple(caller.names))
        protocol = ClientProtocol(self._host, listener)
        protocol.ended = ended
        return protocol


class LinksPlugin(Plugin, TurnEnd):
    """`links` is the core; `_sockets` are the shells of its links, by id. The end of a turn carries out what the turn has
    changed."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._loop = asyncio.get_running_loop()
        self._log = get_logger("links")
        self.settings: LinksSettings = server.settings.plugins.links
        self.links = Links(self.settings.domain.encode(), server.broker, random.Random(), defaults_of(self.settings))
        self._owners = Owners(server)
        self._service = LinksService(server, self.links, self._owners)
        self._link_log = LinkLog()
        self._events = LinkEvents()
        self._sockets: dict[str, UpstreamSocket] = {}
        folder = self.settings.dir or server.settings.data_dir
        self.definitions = DefinitionsService(
            server,
            self.settings.declared(),
            server.path_of(folder) if folder else "",
            self._resolve,
            shares_secrets(server.settings),
        )
        self._sessions = SessionsFile(server.path_of(folder) if folder else "")
        self._cluster: DefinitionsCluster | None = None
        self._dialer: Dialer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._has_changed = False  # links or owners, in this turn
        self._has_fired = False  # the timer, in this turn

    # --- start and stop

    async def prepare(self) -> None:
        server = self.server
        home = bridging_of(server.broker).home
        home.name = self.settings.domain.encode()
        home.node_name = server.members.node_name
        await self.definitions.prepare()
        self._owners.sessions = await self._sessions.read()
        if server.api is not None:
            from federation.definitions.api.services import register

            register(server.api, self.definitions)
            queues = GroupQueuesService(server, self.links.queues)
            server.api.register(DESCRIPTOR.services_by_name["FederationLinks"], self._service)
            server.api.register(DESCRIPTOR.services_by_name["GroupQueues"], queues)
        federation = next((plugin for plugin in server.plugins if isinstance(plugin, FederationPlugin)), None)
        self._owners.prepare(federation)
        if federation is not None:
            self._cluster = DefinitionsCluster(
                server, self.definitions, TAG_LINKS, not federation.settings.allow_plain_secrets, federation.dialer
            )
            self._dialer = federation.dialer
            self.definitions.made_here = self._cluster.changed
            listener = NodeListener(server, federation.settings.fed_addr)
            federation.extensions += [self._owners, self._service, listener, self._cluster]

    def tags(self) -> dict[str, str]:
        return {TAG_LINKS: VERSION}

    async def start(self) -> None:
        broker = self.server.broker
        if broker.commits.journal is not None:
            try:
                bridging_of(broker).home.deletions.restore(broker.commits.journal)
            except (HeaderError, TypeError, ValueError) as error:
                raise StartError(f"persistence: a record of a deleted retained message: {error}") from None
        self.links.interest.observe(broker)
        self._owners.start()
        self._resolve(self.definitions.resolution())
        identity = broker.identity
        is_new = identity.is_new or (not identity.is_durable and self._sessions.is_missing)
        self.links.plain_ids, self.links.secret = await self._sessions.begin(self.links.plans(), is_new)
        self.server.turns.ends.append(self)  # links run from now on, under names that the disk has
        self.server.flush_soon()
        self.links.drop_old_queues(self.server.now())
        if self._cluster is not None:
            self._cluster.start()

    async def reload(self) -> None:
        """Links that failed try again at once: each connection reads the files of TLS anew."""
        for link in self.links.by_id.values():
            if link.state is LinkState.ERROR:
                link.restart(self.server.now())
        self.server.flush_soon()

    async def leave(self) -> None:
        """With a federation the links are drained before its leave."""
        if self._owners.federation is None:
            await self._owners.before_leave()

    async def stop(self) -> None:
        if self._cluster is not None:
            await self._cluster.stop()
        self._owners.set_sessions(self.links.sessions())
        await self._owners.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self in self.server.turns.ends:
            self.server.turns.ends.remove(self)
        await self.definitions.stop()
        self.links.stop(self.server.now())
        self._sessions.follow(self._owners.sessions)
        await self._sessions.stop()
        sockets = list(self._sockets.values())
        await asyncio.gather(*(socket.stop() for socket in sockets))

    async def alarms(self) -> list[Alarm]:
        return link_alarms(await self._service.List(ListLinksRequest(), None))

    def metrics(self) -> list[Metric]:
        now = self.server.now()
        return [
            *bridging_metrics(bridging_of(self.server.broker)),
            *link_metrics(self._service.statuses(now), now),
            *queue_metrics(self.links.queues, now),
            *self.definitions.metrics(),
        ]

    def _resolve(self, resolution: Resolution) -> None:
        self.links.resolve(resolution, self.server.now())
        self._owners.set_links(self.links.plans())
        self.server.flush_soon()

    # --- the end of a turn

    def turn_ended(self, now: float) -> None:
        links = self.links
        self._follow_owners(now)
        if links.turn_ended(now):
            self._arm_timer(links.queues.next_timeout())
            self.server.flush_soon()
        self._follow_links()
        if self._has_changed:
            self._report(now)
        if self._has_changed or self._has_fired:
            self._has_changed = self._has_fired = False
            self._arm_timer(links.next_timeout())

    def _follow_owners(self, now: float) -> None:
        """Run, drain and end links as the ownership says."""
        owners = self._owners
        owners.turn_ended()
        drained = self.links.drained()
        for link_id in drained:
            self._end(link_id, now)
        if drained:
            owners.released(drained)
        while owners.take_changed():
            self._has_changed = True
            self.links.set_nodes(owners.nodes_with_queues(), now)
            for order in owners.ownership.take_orders():
                if isinstance(order, Run):
                    self.links.run(order.link_id, order.epoch, now, order.session)
                elif isinstance(order, Drain):
                    self.links.drain(order.link_id, order.deadline, now)
                else:
                    self._end(order.link_id, now)
            self._drop_moved_queues(now)

    def _end(self, link_id: str, now: float) -> None:
        self._tell_dropped(link_id, self.links.end(link_id, now, keeps_queue=self._owners.is_alone()))

    def _drop_moved_queues(self, now: float) -> None:
        """Drop what a link was to push here, and another node pushes now."""
        for link_id in self.links.queues_left():
            if self._owners.ownership.settled_at(link_id):
                self._tell_dropped(link_id, self.links.drop_queue(link_id, now))

    def _tell_dropped(self, link_id: str, count: int) -> None:
        if count:
            self._log.warning("messages that a link was to push are dropped: it moves", id=link_id, count=count)

    def _follow_links(self) -> None:
        """Do what links ask for: one that is new gets a socket, one that is gone loses it."""
        for link_id, has_moved in self.links.take_due().items():
            self._has_changed = self._has_changed or has_moved
            link = self.links.by_id.get(link_id)
            socket = self._sockets.get(link_id)
            if socket is not None and socket.link is not link:
                socket.carry_out()
                del self._sockets[link_id]
                socket = None
            if link is not None:
                if socket is None:
                    socket = self._sockets[link_id] = UpstreamSocket(link, self.server, self._dialer)
                socket.carry_out()

    def _report(self, now: float) -> None:
        """Tell what has become of links in this turn: of all at once, because it looks at each of them."""
        rows = self._service.statuses(now)
        for line in self._link_log.changes(rows, self.links.plans(), self._owners.ownership, now):
            getattr(self._log, line.level)(line.event, **line.details)
        self._owners.set_sessions(self.links.sessions())
        self._sessions.follow(self._owners.sessions)
        messages = self._events.changes(rows)
        for message in messages:
            self.server.broker.router.publish_here(message, now)
        if messages:
            self.server.flush_soon()

    def _arm_timer(self, at: float) -> None:
        timer = self._timer
        if timer is not None:
            if self._timer_at <= at:
                return
            timer.cancel()
            self._timer = None
        if at != NEVER:
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._has_fired = True
        for fault in self.links.handle_timeout(self.server.now()):
            self.server.plugin_error(fault)
        self.server.flush_soon()


def defaults_of(settings: LinksSettings) -> QueueDefaults:
    return QueueDefaults(settings.max_queues, settings.queue_max_length, settings.queue_max_length_bytes)
