"""The plugin `links`: connects the definitions, what local clients want, and the sockets of links."""

# not a core: runs in the loop
from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from broker.message import NEVER
from broker.metrics.metric import Metric, counter, counters
from broker.plugins import Plugin
from broker.server.logging import get_logger
from broker.server.turns import TurnEnd
from federation.definitions.resolution import Resolution
from federation.definitions.shell.cluster import DefinitionsCluster
from federation.definitions.shell.service import DefinitionsService
from federation.links.bridging.bridging import LinkBridging, bridging_of
from federation.links.links import Links
from federation.links.queues import QueueDefaults
from federation.links.reports import LinkLog
from federation.links.settings import LinksSettings, shares_secrets
from federation.links.shell.node_links import NodeLinks
from federation.links.shell.owners import TAG
from federation.links.shell.sessions_file import SessionsFile
from federation.links.shell.upstream_socket import UpstreamSocket
from federation.links.status import LinkState
from federation.plugin import FederationPlugin

if TYPE_CHECKING:
    from broker.server.host import Host


class LinksPlugin(Plugin):
    """`links` is the core; `_sockets` are the shells of its links, by id."""

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        self._loop = asyncio.get_running_loop()
        self.settings: LinksSettings = server.settings.plugins.links
        self.links = Links(self.settings.domain.encode(), server.broker, random.Random(), defaults_of(self.settings))
        self.node_links = NodeLinks(server, self.links, self.changed)
        self._link_log = LinkLog(get_logger("links"), self.links, self.node_links.runs_on)
        self._sockets: dict[str, UpstreamSocket] = {}
        folder = self.settings.dir or server.settings.data_dir
        self.definitions = DefinitionsService(
            server,
            self.settings.declared(),
            server.path_of(folder) if folder else "",
            self._definitions_changed,
            shares_secrets(server.settings),
        )
        self._sessions = SessionsFile(server.path_of(folder) if folder else "")
        self._cluster: DefinitionsCluster | None = None
        self._turn_end = LinksTurnEnd(self)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._has_changed = False  # links, in this turn
        self._has_fired = False  # the timer, in this turn

    async def prepare(self) -> None:
        home = bridging_of(self.server.broker).home
        home.name = self.settings.domain.encode()
        home.node_name = self.server.members.node_name
        await self.definitions.prepare()
        self.links.sessions_left = await self._sessions.read()
        if self.server.api is not None:
            from federation.definitions.api.services import register

            register(self.server.api, self.definitions)
        self.node_links.prepare()
        federation = next((plugin for plugin in self.server.plugins if isinstance(plugin, FederationPlugin)), None)
        if federation is not None:
            self._cluster = DefinitionsCluster(
                self.server, self.definitions, TAG, not federation.settings.allow_plain_secrets
            )
            self.definitions.made_here = self._cluster.changed
            federation.extensions.append(self._cluster)

    def tags(self) -> dict[str, str]:
        return self.node_links.tags()

    def metrics(self) -> list[Metric]:
        return (
            bridging_metrics(bridging_of(self.server.broker)) + self.node_links.metrics() + self.definitions.metrics()
        )

    async def start(self) -> None:
        self.links.interest.observe(self.server.broker)
        self.server.turns.ends.append(self._turn_end)
        self.node_links.start()
        self.node_links.resolve(self.definitions.resolution())
        self.links.drop_old_queues(self.server.now())
        if self._cluster is not None:
            self._cluster.start()

    async def reload(self) -> None:
        """Links that failed try again at once: each connection reads the files of TLS anew."""
        for link in self.links.by_id.values():
            if link.state is LinkState.ERROR:
                link.restart(self.server.now())
        self.changed()

    async def leave(self) -> None:
        await self.node_links.leave()

    async def stop(self) -> None:
        if self._cluster is not None:
            await self._cluster.stop()
        await self.node_links.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._turn_end in self.server.turns.ends:
            self.server.turns.ends.remove(self._turn_end)
        await self.definitions.stop()
        self.links.stop(self.server.now())
        self._sessions.follow(self.links.sessions())
        await self._sessions.stop()
        sockets = list(self._sockets.values())
        await asyncio.gather(*(socket.stop() for socket in sockets))

    def _definitions_changed(self, resolution: Resolution) -> None:
        self.node_links.resolve(resolution)

    def changed(self) -> None:
        """Links came, went, or want another connection."""
        for link_id, socket in list(self._sockets.items()):
            if self.links.by_id.get(link_id) is not socket.link:
                socket.carry_out()
                del self._sockets[link_id]
        for link_id, link in self.links.by_id.items():
            if link_id not in self._sockets:
                self._sockets[link_id] = UpstreamSocket(
                    link, self.server.turns, self._link_changed, self.server.plugin_error
                )
            self._sockets[link_id].carry_out()
        self._link_changed()

    def _link_changed(self) -> None:
        self._has_changed = True
        self.server.flush_soon()

    def turn_ended(self) -> None:
        """Tell what has become of links in this turn: of all at once, because it looks at each of them."""
        if self._has_changed:
            self._link_log.changed(self.server.now())
            self._sessions.follow(self.links.sessions())
            if self.node_links.follow():
                self.server.flush_soon()
        if self._has_changed or self._has_fired:
            self._has_changed = self._has_fired = False
            self._arm_timer(self.links.next_timeout())

    def carry_out(self) -> None:
        """Do what links ask for at the end of a turn."""
        for link_id in self.links.take_due():
            socket = self._sockets.get(link_id)
            link = self.links.by_id.get(link_id)
            if socket is not None and link is socket.link:
                socket.carry_out()
                if link.effects.take_moved():
                    self._link_changed()

    def queues_moved(self) -> None:
        """Jobs, offers or limits are to be written."""
        self._arm_timer(self.links.queues.next_timeout())
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
        if self.links.handle_timeout(self.server.now(), self.server.plugin_error):
            self.changed()
        self.server.flush_soon()


def defaults_of(settings: LinksSettings) -> QueueDefaults:
    return QueueDefaults(settings.max_queues, settings.queue_max_length, settings.queue_max_length_bytes)


def bridging_metrics(bridging: LinkBridging) -> list[Metric]:
    """Metrics of links that connect here, and of messages with an origin."""
    return [
        counter(
            "gmqtt_links_refused_total",
            "Clients that asked to be a link of another domain, and whose account does not have the role.",
            bridging.refused,
        ),
        counters(
            "gmqtt_link_messages_skipped_total",
            "Messages that a link of another domain did not get: that domain was in their path, or allows no more hops.",
            "reason",
            [("path", bridging.home.path_skipped), ("hops", bridging.home.hops_skipped)],
        ),
        counter(
            "gmqtt_link_pages_evicted_total",
            "Pages of numbers of messages from other domains that made room: copies of these count as new.",
            bridging.home.duplicates.evicted,
        ),
        counter(
            "gmqtt_retained_deletions_forgotten_total",
            "Deletions of retained messages that made room: an older message that waits for a link may bring one back.",
            bridging.home.deletions.forgotten,
        ),
    ]


class LinksTurnEnd(TurnEnd):
    """Tells the upstreams what the turn has changed in the interest of the cluster, and acknowledges to them what other nodes
    have acknowledged."""

    def __init__(self, plugin: LinksPlugin) -> None:
        self._plugin = plugin

    def turn_ended(self, now: float) -> None:
        plugin = self._plugin
        plugin.links.settle(now)
        if plugin.server.broker.acks_awaited:
            plugin.links.release()
        plugin.node_links.turn_ended()
        if plugin.links.turn_ended(now):
            plugin.queues_moved()
        if plugin.links.interest.has_changes() and plugin.links.pass_on(now):
            plugin.server.flush_soon()
        plugin.carry_out()
        plugin.turn_ended()
