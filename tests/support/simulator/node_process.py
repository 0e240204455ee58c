"""A whole federated node as a simulated process: broker, gossip and event streams, as the plugin puts them together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.message import NEVER
from broker.publisher import Publisher
from broker.session.connection import Connection
from federation.gossip.addresses import Address
from federation.node import Node
from federation.serf.config import SerfConfig
from federation.serf.events import Event, JoinResult, Left, MemberEvent, MemberFailed, MemberLeave, NameConflict
from federation.serf.leaving import SerfPhase
from federation.serf.retry_join import RetryJoin
from federation.settings import FederationSettings, ReplicationSettings
from federation.shell.sibling_workers import know_siblings
from federation.tags import EXTENSION_SESSIONS, TAG_DRAINING, TAG_EXTENSIONS, TAG_WORKER_OF, own_tags
from simulator.client import Client, ClientEnd
from simulator.earlier_frames import hear_as_before
from simulator.event_streams import FEDERATION_PORT, UNIX, EventStreams
from simulator.network import Stream
from simulator.node_store import WALL_START, Disk, NodeStore
from simulator.process import Machine
from simulator.serf_process import GOSSIP_PORT, SerfProcess
from simulator.world import Host

LOST_MEMBER_SPREAD: Final = 5.0
RETRY_TIMEOUT: Final = 60.0
SETTLE_ROUNDS_MAX: Final = 2_000
"""A client with a Receive Maximum of 1 takes one queued message in a round."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """`name` may differ from the host's. `seeds` are `retry_join`, tried each `retry_interval` seconds for ever. `disk`: None
    for a node without a store. `clock_error`: seconds that its clock is ahead. `extensions`: the Serf tag `fed_ext` of an
    older version, which knows no others of its peers, and shares sessions where it says so. `siblings`: the IP addresses of
    the other workers of its node, by name; `worker_of`: the name of that node, "" for worker 0. `mqtt`: settings of the
    broker."""

    name: str
    seeds: list[Address] = field(default_factory=list)
    retry_interval: float = 5.0
    outbox_age_max: float = 300.0
    outbox_bytes_max: int = 64 * 2**20
    outbox_policy: str = "drop_oldest"
    disk: Disk | None = None
    clock_error: float = 0.0
    extensions: str | None = None
    session_scope: str = "federation"
    replication: ReplicationSettings = field(default_factory=ReplicationSettings)
    siblings: dict[str, str] = field(default_factory=dict)
    worker_of: str = ""
    mqtt: dict[str, Any] = field(default_factory=dict)


class NodeProcess(SerfProcess):
    """`received` are the (topic, payload) that the node's own client was sent. `lost_name`: it must be stopped."""

    def __init__(self, host: Host, options: NodeOptions) -> None:
        now = host.world.now
        self.broker = Broker(MqttSettings(**options.mqtt), host.rng, now)
        self.broker.wall_offset = WALL_START + options.clock_error
        self._store = None if options.disk is None else NodeStore(options.disk, self.broker, host.rng, now)
        extensions = options.extensions
        self._extensions = None if extensions is None else frozenset(extensions.split(","))
        has_sessions = self._extensions is None or EXTENSION_SESSIONS in self._extensions
        identity = self.broker.identity if has_sessions else None
        tags = own_tags(
            f"{host.ip}:{FEDERATION_PORT}", True, identity, shares_sessions=options.session_scope == "federation"
        )
        if options.extensions is not None:
            tags[TAG_EXTENSIONS] = options.extensions
        if options.worker_of:
            tags[TAG_WORKER_OF] = options.worker_of
        self._tags = tags
        config = SerfConfig(options.name, host.ip, GOSSIP_PORT, tags)
        super().__init__(host, config, [])
        self.name = options.name
        settings = FederationSettings(
            node_name=options.name,
            outbox_age_max=options.outbox_age_max,
            outbox_bytes_max=options.outbox_bytes_max,
            outbox_policy=options.outbox_policy,
            session_scope=options.session_scope,
            replication=options.replication,
        )
        self.node = Node(options.name, self.broker, settings, host.rng)
        self.node.worker_of = options.worker_of or (options.name if options.siblings else "")
        know_siblings(self.node, {name: f"{UNIX}{ip}" for name, ip in options.siblings.items()})
        self.clients: list[ClientEnd] = []
        self._own = self.add_client("client", now)  # before there are nodes that it would wait for
        self.received = self._own.received
        self._filters: dict[str, None] = {}  # that it wants
        siblings = options.siblings.values()
        self.node.begin(now, bool(options.seeds), any(ip not in siblings for ip, _ in options.seeds))
        self.retry_join: RetryJoin | None = None
        if options.seeds:
            seeds = [f"{ip}:{port}" for ip, port in options.seeds]
            self.retry_join = RetryJoin(seeds, options.retry_interval, RETRY_TIMEOUT, now)
        self.join_results: dict[int, JoinResult] = {}
        self.lost_name = False
        self._retry_id = 0
        self._streams = EventStreams(self.node, host)
        self._host = host

    # --- what a test may do; each is followed by `Host.settle`

    def add_client(self, client_id: str, now: float) -> Client:
        client = Client(self.broker, f"{client_id} of {self.name}", now)  # it is not to move between nodes
        self.clients.append(client)
        return client

    @property
    def refuses(self) -> bool:
        """Return whether it refuses QoS 1 and 2: its disk was full at the last attempt to write."""
        journal = self.broker.commits.journal
        return journal is not None and journal.is_full

    def subscribe(self, topic_filter: str, now: float) -> None:
        self._filters[topic_filter] = None
        self._own.subscribe(topic_filter, now)

    def unsubscribe(self, topic_filter: str, now: float) -> None:
        self._filters.pop(topic_filter, None)
        self._own.unsubscribe(topic_filter, now)

    def publish(self, topic: str, payload: bytes, now: float) -> None:
        self._own.publish(topic, payload, now)

    def join(self, addresses: list[Address], now: float) -> int:
        """As the API's join; `join_results` has what came of it."""
        if self.retry_join is not None:
            self.retry_join.resume()
        return self.serf.join(addresses, now)

    def leave(self, now: float) -> None:
        """As the API's leave: the node goes on for its own clients."""
        if self.retry_join is not None:
            self.retry_join.stop()
        self.serf.leave(now)

    def begin_drain(self, rate: int, now: float) -> None:
        assert self.node.drain is not None
        self.node.drain.begin(rate, now)
        self.serf.set_tags(self._tags | {TAG_DRAINING: "1"}, now)

    def end_drain(self, now: float) -> None:
        assert self.node.drain is not None
        self.node.drain.end(now)
        self.serf.set_tags(self._tags, now)
        if self._own.is_closed:
            self._own.connect(self.broker, now)
            for topic_filter in self._filters:
                self._own.subscribe(topic_filter, now)

    # --- streams

    def stream_accepted(self, stream: Stream, now: float) -> None:
        if stream.port == FEDERATION_PORT:
            self._streams.accepted(stream)
        else:
            super().stream_accepted(stream, now)

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        if self._streams.knows(stream):
            self._streams.received(stream, data, now)
        elif stream.port != FEDERATION_PORT:
            super().stream_received(stream, data, now)

    def stream_closed(self, stream: Stream, error: str, now: float) -> None:
        if self._streams.knows(stream):
            self._streams.closed(stream, error, now)
        elif stream.port != FEDERATION_PORT:
            super().stream_closed(stream, error, now)

    # --- time

    def next_timeout(self) -> float | None:
        first = super().next_timeout()
        assert first is not None
        first = min(first, self.node.next_timeout(), self.broker.next_timeout() or NEVER)
        if self._store is not None:
            first = min(first, self._store.next_timeout())
        if self.retry_join is not None:
            first = min(first, self.retry_join.next_timeout() or NEVER)
        return min(first, self._streams.next_timeout())

    def handle_timeout(self, now: float) -> None:
        super().handle_timeout(now)
        self.node.handle_timeout(now)
        self.broker.handle_timeout(now)
        if self._store is not None:
            self._store.handle_timeout(now)
        self._streams.handle_timeout(now)
        if self.retry_join is not None:
            hosts = self.retry_join.take_hosts(now)
            if hosts:
                addresses = [(host.rpartition(":")[0], int(host.rpartition(":")[2])) for host in hosts]
                self._retry_id = self.serf.join(addresses, now)

    # --- what must go out

    def flush(self, host: Machine, now: float) -> None:
        super().flush(host, now)
        for _ in range(SETTLE_ROUNDS_MAX):
            if not self.end_turn(host, now):
                return
        raise AssertionError(f"{self.name}: no rest within one turn")

    def handle_events(self, events: list[Event], now: float) -> None:
        for event in events:
            if isinstance(event, NameConflict) and event.lost:
                self.lost_name = True
            elif isinstance(event, Left):
                self.node.left()
            elif isinstance(event, JoinResult):
                self._join_ended(event, now)
            elif isinstance(event, (MemberFailed, MemberLeave)) and self.retry_join is not None:
                self.retry_join.member_lost(now, self._host.rng.random() * LOST_MEMBER_SPREAD)
        if self.retry_join is not None:
            self.retry_join.members_changed(self.serf.alive_others(), now)
        self.node.member_events([self._as_known(event) for event in events], now)
        hear_as_before(self.node)
        if self.node.has_left and self.serf.phase == SerfPhase.ALIVE:
            self.node.joined(self.serf.members(), now)

    def _as_known(self, event: Event) -> Event:
        """The event without extensions that this version does not know."""
        if self._extensions is None or not isinstance(event, MemberEvent):
            return event
        told = event.member.tags.get(TAG_EXTENSIONS, "").split(",")
        known = ",".join([name for name in told if name in self._extensions])
        return replace(event, member=replace(event.member, tags={**event.member.tags, TAG_EXTENSIONS: known}))

    def _join_ended(self, result: JoinResult, now: float) -> None:
        if self.retry_join is not None and result.join_id == self._retry_id:
            self._retry_id = 0
            errors = {f"{ip}:{port}": text for (ip, port), text in result.errors.items()}
            self.retry_join.attempt_finished(errors, now)
            self.retry_join.take_events()
        else:
            self.join_results[result.join_id] = result

    def end_turn(self, host: Machine, now: float) -> bool:
        """One round of broker, streams and clients; whether there was anything."""
        busy = False
        for connection in self.broker.take_dirty():
            assert isinstance(connection, Connection)
            busy = self.carry_out(connection) or busy
        busy = self._set_reading(now) or busy
        if self.broker.slices.has_work():
            self.broker.go_on(now)
            busy = True
        for client in self.clients:
            busy = client.take(now) or busy
        busy = self._streams.drive(now) or busy
        busy = self.node.turn_ended(now) or busy
        return (self._store is not None and self._store.turn_ended(now)) or busy

    def carry_out(self, connection: Connection) -> bool:
        """Write the output of a connection that is none of `clients`; False for others. A process that builds on this one
        has such connections."""
        return False

    def set_reading(self, publisher: Publisher) -> None:
        """Read on or no more from such a connection."""
        raise AssertionError("a publisher without an owner")

    def _set_reading(self, now: float) -> bool:
        """Publishers that full receivers have held go on; whether there were any."""
        changes = self.broker.take_reading_changes()
        for publisher in changes:
            if isinstance(publisher, Connection):
                if isinstance(publisher.owner, ClientEnd):
                    publisher.owner.set_reading(now)
                else:
                    self.set_reading(publisher)
                continue
            self._streams.set_reading(publisher, now)
        return bool(changes)
