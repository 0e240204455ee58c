"""A node of a domain as a simulated process: a federated node that has links, and a listener where links of others come in."""

from __future__ import annotations

from typing import Final

from broker.message import NEVER
from broker.publisher import Publisher
from broker.session.connection import Connection
from federation.definitions.resolution import Resolution
from federation.links.bridging.bridging import bridging_of
from federation.links.links import Links
from federation.links.ownership import Ownership
from federation.links.ownership_table import (
    Drain,
    Run,
)
from federation.links.relay import Relay
from federation.serf.events import Event, MemberStatus
from federation.trust import Reach
from simulator.link_owners import OWNER_PORT, LinkOwners
from simulator.link_streams import MQTT_PORT, NODE_PORT, ListenerEnd, UpstreamEnd
from simulator.network import Stream
from simulator.node_process import NodeOptions, NodeProcess
from simulator.process import Machine
from simulator.world import Host

INCARNATION_BITS: Final = 63
LINK_PORTS: Final = (MQTT_PORT, NODE_PORT)


class DomainNode(NodeProcess):
    """`resolution` is what the node starts with. Without the plugin `links` it is the upstream of others, and has no domain."""

    def __init__(self, host: Host, options: NodeOptions, domain: str, resolution: Resolution, has_plugin: bool) -> None:
        super().__init__(host, options)
        now = host.world.now
        if has_plugin:
            bridging_of(self.broker).home.name = domain.encode()
        bridging_of(self.broker).home.node_name = options.name
        self.links = Links(domain.encode(), self.broker, host.rng)
        incarnation = host.rng.getrandbits(INCARNATION_BITS)
        self.owners = LinkOwners(Ownership(options.name, incarnation, int(now * 1000) + 1))
        self.owners.core.join(bool(options.seeds), now)
        self._ends: dict[str, UpstreamEnd] = {}
        self._repeated = 0  # by ends that are gone
        self._listened: dict[Stream, ListenerEnd] = {}
        self.links.interest.observe(self.broker)
        self.resolve(resolution, now)

    def resolve(self, resolution: Resolution, now: float) -> None:
        """The node runs all links of the definitions."""
        self.links.resolve(resolution, now)
        self.owners.core.set_links(self.links.plans(), now)

    @property
    def repeated(self) -> int:
        """Number of messages that other domains have sent to this node again."""
        pulled = sum(end.repeated for end in self._ends.values())
        return self._repeated + pulled + sum(end.repeated for end in self._listened.values())

    # --- who runs the links

    def handle_events(self, events: list[Event], now: float) -> None:
        super().handle_events(events, now)
        living = {
            member.name: (member.ip, member.port)
            for member in self.serf.members()
            if member.status in (MemberStatus.ALIVE, MemberStatus.LEAVING) and member.name != self.name
        }
        if living != self.owners.addresses:
            self.owners.members_changed(living, now)
            self.links.set_nodes({name: Reach(f"{ip}:{NODE_PORT}") for name, (ip, _) in living.items()}, now)

    def _carry_out(self, host: Machine, now: float) -> bool:
        """Run and end links; whether there was anything."""
        drained = self.links.drained()
        for link_id in drained:
            self.links.end(link_id, now)
            self.owners.core.released(link_id, now)
        core = self.owners.core
        if core.waits_until_ready() and self.node.receivers.know_interest(self.owners.addresses):
            core.ready(now)
        core.set_sessions(self.links.sessions())
        orders = self.owners.take_orders(host, now)
        for order in orders:
            if isinstance(order, Run):
                self.links.run(order.link_id, order.epoch, now, order.session)
            elif isinstance(order, Drain):
                self.links.drain(order.link_id, order.deadline, now)
            else:
                self.links.end(order.link_id, now)
        return bool(orders) or bool(drained)

    # --- streams

    def stream_accepted(self, stream: Stream, now: float) -> None:
        if stream.port in LINK_PORTS:
            self._listened[stream] = ListenerEnd(self.broker, stream, now)
        elif stream.port == OWNER_PORT:
            self.owners.accepted(stream)
        else:
            super().stream_accepted(stream, now)

    def stream_opened(self, stream: Stream, now: float) -> None:
        end = self._end_of(stream)
        if end is not None:
            end.opened(now)
        else:
            super().stream_opened(stream, now)

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        end = self._listened.get(stream) or self._end_of(stream)
        if end is not None:
            end.received(data, now)
        elif self.owners.knows(stream):
            self.owners.received(stream, data, now)
        elif stream.port not in (*LINK_PORTS, OWNER_PORT):
            super().stream_received(stream, data, now)

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        listened = self._listened.pop(stream, None)
        end = self._end_of(stream)
        if listened is not None:
            listened.closed(now)
            self._repeated += listened.repeated
        elif end is not None:
            end.closed(error, now)
        elif self.owners.knows(stream):
            self.owners.closed(stream, now)
        elif stream.port not in (*LINK_PORTS, OWNER_PORT):
            super().stream_closed(stream, error, now)

    def _end_of(self, stream: Stream) -> UpstreamEnd | None:
        if stream.port in LINK_PORTS:
            for end in self._ends.values():
                if end.stream is stream:
                    return end
        return None

    # --- time and turns

    def next_timeout(self) -> float | None:
        first = super().next_timeout()
        return min(NEVER if first is None else first, self.links.next_timeout(), self.owners.next_timeout())

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        for fault in self.links.handle_timeout(now):
            raise fault
        self.owners.handle_timeout(now)

    def end_turn(self, host: Machine, now: float) -> bool:
        busy = super().end_turn(host, now)
        busy = self.links.turn_ended(now) or busy
        busy = any(self.links.take_due().values()) or busy  # every end is looked at below
        busy = self._carry_out(host, now) or busy
        for link_id, end in list(self._ends.items()):
            if self.links.by_id.get(link_id) is not end.link:
                end.follow(host)
                self._repeated += end.repeated
                del self._ends[link_id]
        for link_id, link in self.links.by_id.items():
            if link_id not in self._ends:
                self._ends[link_id] = UpstreamEnd(link)
            end = self._ends[link_id]
            busy = end.follow(host) or busy
            busy = end.read(now) or busy
        return busy

    def carry_out(self, connection: Connection) -> bool:
        owner = connection.owner
        if not isinstance(owner, ListenerEnd | Relay):
            return False
        owner.carry_out(connection)
        return True

    def set_reading(self, publisher: Publisher) -> None:
        assert isinstance(publisher.owner, ListenerEnd | Relay)
        publisher.owner.set_reading(publisher)
