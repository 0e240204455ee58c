"""The links of one node among those of its cluster: which of them run here, and what operators see of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config.addresses import Address
from broker.config.settings_listeners import ListenerSettings
from broker.listener_facts import ListenerFacts
from broker.server.listener import Listener
from broker.server.protocol import ClientProtocol
from federation.extension import Extension

if TYPE_CHECKING:
    from broker.server.host import Host
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from broker.metrics.metric import Metric
from broker.server.logging import get_logger
from federation.definitions.resolution import Resolution
from federation.links.link import Link
from federation.links.links import Links
from federation.links.pb.link_status_pb2 import DESCRIPTOR, ListLinksRequest, ListLinksResponse
from federation.links.reports import LinkEvents, in_order, link_metrics, link_row, queue_metrics
from federation.links.shell.owners import TAG, VERSION, Owners
from federation.links.status import LinkState, LinkStatus, has_state, planned
from federation.plugin import FederationPlugin


class NodeListener(Extension):
    """`address` is that of the event streams. A connection is one of `mqtt.max_connections`; limits for addresses of clients,
    and plugins that look at them, have no say."""

    def __init__(self, host: Host, address: Address) -> None:
        self._host = host
        self._listener = Listener(ListenerSettings(address), "plugins.federation.fed_addr", host.now())
        self._listener.facts = ListenerFacts(str(address), "tcp", is_node=True)

    def mqtt_protocol(self, ended: Callable[[], None]) -> asyncio.Protocol:
        protocol = ClientProtocol(self._host, self._listener)
        protocol.ended = ended
        return protocol


WAITS: Final = "starts when the other nodes do not run the link any more, at the latest at the deadline"


class NodeLinks:
    """`prepare`, `start`, then `resolve` with each change of the definitions, then `stop`. `changed` is called when other
    links run than before."""

    def __init__(self, host: Host, links: Links, changed: Callable[[], None]) -> None:
        self._host = host
        self._links = links
        self._changed = changed
        self._log = get_logger("links")
        self._events = LinkEvents()
        self._draining: set[str] = set()
        self._owners: Owners | None = None

    # --- start and stop

    def prepare(self) -> None:
        """Add the services between nodes and those of the API."""
        host = self._host
        federation = next((plugin for plugin in host.plugins if isinstance(plugin, FederationPlugin)), None)
        owners = self._owners = Owners(host, federation, self)
        if federation is not None:
            federation.extensions += [owners, NodeListener(host, federation.settings.fed_addr)]
        if host.api is not None:
            from federation.links.shell.service import GroupQueuesService, LinksService

            service = LinksService(host.members.node_name, owners, self)
            host.api.register(DESCRIPTOR.services_by_name["FederationLinks"], service)
            queues = GroupQueuesService(host.members.node_name, self._links.queues, host.now)
            host.api.register(DESCRIPTOR.services_by_name["GroupQueues"], queues)

    def tags(self) -> dict[str, str]:
        return {TAG: VERSION}

    def start(self) -> None:
        """Run the links of this node."""
        if self._owners is not None:
            self._owners.start()

    def resolve(self, resolution: Resolution) -> None:
        """The definitions are these from now on."""
        self._links.resolve(resolution, self._host.now())
        if self._owners is not None:
            self._owners.set_links(self._links.plans())
        self._changed()

    async def leave(self) -> None:
        """The node stops. With a federation the links are drained before its leave."""
        if self._owners is not None and not self._owners.is_federated:
            await self._owners.before_leave()

    async def stop(self) -> None:
        if self._owners is not None:
            await self._owners.stop()

    # --- orders of the ownership

    def run_link(self, link_id: str, epoch: int) -> None:
        self._draining.discard(link_id)
        self._links.run(link_id, epoch, self._host.now())

    def drain_link(self, link_id: str, deadline: float) -> None:
        self._draining.add(link_id)
        self._links.drain(link_id, deadline, self._host.now())

    def end_link(self, link_id: str) -> None:
        self._draining.discard(link_id)
        self._tell_dropped(link_id, self._links.end(link_id, self._host.now(), keeps_queue=self._is_alone()))

    def owners_changed(self) -> None:
        """Return what a link was to push here, and another node pushes now, is dropped."""
        owners = self._owners
        moved = [link_id for link_id in self._links.queues_left() if owners is not None and owners.settled_at(link_id)]
        for link_id in list(self._links.sessions_left):
            owner = None if owners is None else owners.owner(link_id)
            if owner is not None and owner.epoch and owner.node != self._host.members.node_name:
                del self._links.sessions_left[link_id]  # from now on it is for that node to know
        for link_id in moved:
            self._tell_dropped(link_id, self._links.drop_queue(link_id, self._host.now()))
        if moved:
            self._changed()

    def _tell_dropped(self, link_id: str, count: int) -> None:
        if count:
            self._log.warning("messages that a link was to push are dropped: it moves", id=link_id, count=count)

    def set_nodes(self, nodes: Mapping[str, str]) -> None:
        self._links.set_nodes(nodes, self._host.now())
        self._changed()

    def carried_out(self) -> None:
        self._changed()

    def turn_ended(self) -> None:
        """Release the links that are drained."""
        if self._owners is not None:
            self._owners.turn_ended()
        drained: list[str] = []
        for link_id in self._draining:
            link = self._links.by_id.get(link_id)
            if link is None or link.is_drained():
                drained.append(link_id)
        if drained:
            for link_id in drained:
                self.end_link(link_id)
            self._changed()
            if self._owners is not None:
                self._owners.released(drained)

    def follow(self) -> bool:
        """After each change of links: tell of it. False when there was nothing to tell."""
        host = self._host
        now = host.now()
        messages = self._events.changes(self.statuses(now))
        for message in messages:
            host.broker.router.publish_here(message, now)
        return bool(messages)

    def _is_alone(self) -> bool:
        """Return whether no other node of this cluster may run links."""
        owners = self._owners
        if owners is None or not owners.is_federated:
            return True
        return not any(TAG in other.tags for other in self._host.members.others())

    def runs_on(self, link_id: str) -> str:
        """The other node that runs a link, or is about to; "" where none is known."""
        owner = None if self._owners is None else self._owners.owner(link_id)
        return "" if owner is None or owner.node == self._host.members.node_name else owner.node

    # --- what operators see

    def statuses(self, now: float) -> list[LinkStatus]:
        """The links that run here or are about to."""
        node = self._host.members.node_name
        epochs = self._links.epochs
        found = [
            replace(status, node=node, epoch=epochs.get(status.link_id, 0)) for status in self._links.statuses(now)
        ]
        plans = self._links.plans()
        for claim in [] if self._owners is None else self._owners.waiting():
            plan = plans.get(claim.link_id)
            if plan is not None and claim.link_id not in self._links.by_id:
                row = planned(plan, LinkState.STARTING, claim.since, claim.since)
                found.append(replace(row, deadline=claim.deadline, next_step=WAITS, node=node, epoch=claim.epoch))
        return found

    def metrics(self) -> list[Metric]:
        now = self._host.now()
        return link_metrics(self.statuses(now), now) + queue_metrics(self._links.queues, now)

    def list_here(self, request: ListLinksRequest) -> ListLinksResponse:
        now = self._host.now()
        rows = [link_row(status, now, self._host.wall_time) for status in self.statuses(now)]
        return ListLinksResponse(links=in_order(row for row in rows if has_state(row.status, request.state)))

    def restart_here(self, link_id: str) -> bool:
        link: Link | None = self._links.by_id.get(link_id)
        if link is None or link_id in self._draining:
            return False
        link.restart(self._host.now())
        self._changed()
        return True
