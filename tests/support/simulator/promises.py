"""Nodes with stores, clients with durable sessions, and when which of these was promised what (promise_oracle)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final

from broker.message import NEVER
from federation.of_workers import JOIN_SECONDS
from federation.settings import ReplicationSettings
from federation.stream.counters import DropReason
from federation.tags import EXTENSION_COPIES, EXTENSION_FIELDS, EXTENSION_SESSIONS, EXTENSIONS
from simulator.durable_client import DurableClient, Sent
from simulator.durable_station import GROUP_FILTER, GROUP_NUMBER, DurableStation
from simulator.federation import RETURN_LIMIT, ROUGH, Federation, address
from simulator.node_process import NodeProcess
from simulator.node_store import WRITE_SECONDS_MAX, Disk
from simulator.world import Host

LARGE_BYTES: Final = 60_000
ONLINE_LIMIT: Final = 60.0
"""Seconds until all clients are connected and have said what they had to, after the last fault."""
GRANT_LIMIT: Final = 30.0
ANSWERS_MAX: Final = 40  # of a client that is late, in one step


class Promises:
    """A federation whose nodes have stores, except those of the numbers `plain`. Those of `older` say that they read what the
    version before promises reads. Each `workers` of them in turn are the workers of one machine; or there are machines with as
    many as each of `machines` says. `joins`: numbers of nodes that all others join. Those of `before` share sessions and
    copies, and neither say nor read the newest extension.

    sent     all messages that were published with QoS 1 and 2
    lasting_kinds  records that may stay for nobody
    clocks_jump  the clocks of nodes that run go back or forth
    publishers_are_cut  one that moves may be on both sides of a cut
    moves_are_ordered  no node is silent for longer than ORDER_SECONDS_MAX while publishers move
    drops    of all processes that have ended, by reason
    deaths   how many of them were killed
    """

    def __init__(
        self,
        seed: int,
        count: int,
        plain: frozenset[int] = frozenset(),
        older: frozenset[int] = frozenset(),
        clock_errors: tuple[float, ...] = (),
        workers: int = 1,
        machines: tuple[int, ...] = (),
        joins: tuple[int, ...] = (1, 2),
        before: frozenset[int] = frozenset(),
        **options: Any,
    ) -> None:
        rng = Random(f"stations {seed}")
        own: list[dict[str, Any]] = []
        of_workers = as_workers(machines or (workers,) * (count // workers))
        for number in range(1, count + 1):
            one: dict[str, Any] = {"disk": None if number in plain else Disk(), **of_workers[number - 1]}
            if number in older:
                one["extensions"] = EXTENSION_FIELDS
            if number in before:
                one["extensions"] = f"{EXTENSIONS},{EXTENSION_SESSIONS},{EXTENSION_COPIES}"
            if clock_errors:
                one["clock_error"] = clock_errors[number - 1]
            own.append(one)
        options.setdefault("replication", ReplicationSettings(adopt_after=NEVER))
        self.federation = Federation(seed, count, list(joins), ROUGH, each=own, **options)
        self.world = self.federation.world
        self.rng = self.federation.rng
        self.sent: list[Sent] = []
        self.drops: Counter[str] = Counter()
        self.deaths = 0
        self.stations = {
            host: DurableStation(number, own[number - 1]["disk"], number in older, rng)
            for number, host in enumerate(self.federation.hosts, 1)
        }
        self.clocks_jump = False
        self.publishers_are_cut = False
        self.moves_are_ordered = True
        self.lasting_kinds: frozenset[int] = frozenset()
        self._promised: dict[tuple[DurableClient, str], float] = {}  # from which moment on messages count
        self._lost_disk_at: dict[str, float] = {}  # by node: when its newest disk was new
        self._serials: Counter[str] = Counter()
        self.until_online()
        self.begin()

    def begin(self) -> None:
        """What is granted now is known everywhere: it counts from here on."""
        self.federation.until_agreement(RETURN_LIMIT, "the subscriptions")
        for host, station in self.stations.items():
            if host.process is None:
                continue
            for client in station.subscribers:
                for topic_filter in client.granted_at:
                    self._promised.setdefault((client, topic_filter), self.world.now)

    def come(self, host: Host, name: str, topic_filter: str) -> DurableClient:
        """A new subscriber, whose session is promised what is published after its SUBACK."""
        station = self.stations[host]
        client = station.new_subscriber(name, topic_filter, self.rng)
        station.subscribers.append(client)
        self._connect(host, client)
        host.settle()
        self.world.run_until(lambda: topic_filter in client.granted_at, GRANT_LIMIT, f"SUBACK for {client.client_id}")
        self._promised[(client, topic_filter)] = client.granted_at[topic_filter]
        return client

    # --- what lives and what happens

    def nodes(self) -> Iterator[NodeProcess]:
        """Those that run."""
        for host in self.federation.running:
            yield self.federation.node(host)

    @property
    def awake(self) -> list[Host]:
        """Hosts that run and do not stand still."""
        return [host for host in self.federation.running if not host.is_still]

    def kill(self, host: Host) -> None:
        """kill -9; a node that is down stays so."""
        if host.process is None:
            return
        self.drops += counted_drops(self.federation.node(host))
        self.deaths += 1
        host.crash()
        for client in self.stations[host].clients:
            client.lose()
            if self.stations[host].disk is None:
                client.forget_session()

    def start(self, host: Host) -> None:
        if host.process is None:
            host.start()

    def replace_disk(self, host: Host) -> None:
        """The node, which is down, has an empty disk from here on."""
        assert host.process is None
        station = self.stations[host]
        assert station.disk is not None
        station.disk.records.clear()
        self._lost_disk_at[station.name] = self.world.now
        for client in station.clients:
            client.forget_session()
            client.received.clear()  # of another session
        # A message for the group may have been with a member there.
        lost = [key for key in self._promised if key[0] in station.clients or key[1] == GROUP_FILTER]
        for key in lost:
            del self._promised[key]

    def publish(self) -> None:
        """One message of any publisher; it goes out when the publisher is connected."""
        station = self.stations[self.rng.choice(self.awake)]
        publisher = self.rng.choice(station.publishers)
        topic = f"m/{station.name}/{self.rng.randrange(GROUP_NUMBER + 1)}".encode()
        padding = LARGE_BYTES if self.rng.random() < 0.01 else 0
        serial = self._serials[publisher.client_id]
        self._serials[publisher.client_id] += 1
        sent = Sent(publisher.client_id, serial, station.name, topic, self.rng.choice((0, 1, 1, 2)), padding)
        if sent.qos:
            self.sent.append(sent)
        publisher.publish(sent, self.world.now)

    def run(self, seconds: float, rate: float) -> None:
        """Time passes; `rate` messages a second are published, clients come, go, and answer."""
        end = self.world.now + seconds
        while self.world.now < end:
            step = min(0.02 + self.rng.random() * 0.3, end - self.world.now)
            self.federation.run(step)
            if not self.awake:
                continue
            for _ in range(int(rate * step + self.rng.random())):
                self.publish()
            for host in self.awake:
                self._clients_act(host)
                host.settle()

    def _clients_act(self, host: Host) -> None:
        for client in self.stations[host].clients:
            self._client_acts(host, client)

    def _client_acts(self, host: Host, client: DurableClient) -> None:
        """A client of the node, in one step."""
        station = self.stations[host]
        now = self.world.now
        if not client.is_open:
            if station.away.get(client, 0.0) <= now and self.rng.random() < 0.5:
                self._connect(host, client)
            return
        chance = self.rng.random()
        if chance < 0.005:
            client.disconnect(chance < 0.002, now)
            station.away[client] = now + self.rng.choice((0.0, 1.0, 30.0)) * self.rng.random()
        else:
            client.answer(self.rng.randrange(ANSWERS_MAX), now)

    def _connect(self, host: Host, client: DurableClient) -> None:
        node = self.federation.node(host)
        if client not in node.clients:
            node.clients.append(client)
        client.connect(node.broker, self.world.now)

    def until_online(self) -> None:
        """All clients are connected and answer at once until nothing is due."""

        def is_done() -> bool:
            done = True
            for host in self.awake:
                for client in self.stations[host].clients:
                    if not client.is_open:
                        self._connect(host, client)
                    client.answer(1000, self.world.now)
                    done = done and client.is_done
                host.settle()
            return done

        self.world.run_until(is_done, ONLINE_LIMIT, "all clients are online and done")

    def heal(self) -> None:
        """All faults end, all nodes run, and all clients answer at once."""
        self.world.heal()
        for host, station in self.stations.items():
            for client in station.clients:
                client.is_late = False
            if station.disk is not None:
                station.disk.is_full = False
                station.disk.write_seconds_max = WRITE_SECONDS_MAX
            self.start(host)
        still = max(host.still_until for host in self.stations)
        if still > self.world.now:
            self.world.run(still - self.world.now)

    # --- what was promised

    def promised_since(self, client: DurableClient, topic_filter: str) -> float:
        """NEVER for nothing."""
        return self._promised.get((client, topic_filter), NEVER)

    def disk_of(self, name: str) -> Disk | None:
        return next(station.disk for station in self.stations.values() if station.name == name)

    def keeps(self, station: DurableStation) -> bool:
        """Return whether something is promised at the station: without a store only until a process dies."""
        return station.is_promised or not self.deaths

    def is_promised(self, sent: Sent) -> bool:
        """Whether it was acknowledged by a node with a store, which has its disk still, or no process has died."""
        station = next(station for station in self.stations.values() if station.name == sent.node)
        if not self.keeps(station) or sent.acknowledged_at == NEVER:
            return False
        return sent.acknowledged_at > self._lost_disk_at.get(sent.node, -1.0)


def as_workers(machines: Sequence[int]) -> list[dict[str, Any]]:
    """The options of nodes that are the workers of machines with so many of them each."""
    found: list[dict[str, Any]] = []
    for workers in machines:
        first = len(found) + 1
        every = range(first, first + workers)
        for number in every if workers > 1 else ():
            one = {
                "siblings": {f"n{each}": address(each)[0] for each in every if each != number},
                "worker_of": "" if number == first else f"n{first}",
                "retry_interval": JOIN_SECONDS,
            }
            found.append(one)
        if workers == 1:
            found.append({})
    return found


def counted_drops(node: NodeProcess) -> Counter[str]:
    """The drops that the node's process has counted, by reason; those in its broker of QoS 1 and 2."""
    found: Counter[str] = Counter()
    for counters in node.node.counters.values():
        for reason in DropReason:
            found[reason] += counters.dropped[reason]
    for name, (_, *counts) in node.broker.counters.drops.items():
        found[name] += sum(counts)
    return +found
