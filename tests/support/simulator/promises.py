"""Nodes with stores, clients with durable sessions, and what was promised to these: the oracle of P1, P5 and P6.

P1  every message whose PUBACK or PUBREC left is delivered to each durable session whose SUBACK had left before the PUBLISH
    was sent; QoS 2 once. A node keeps every session that it has confirmed.
P5  what comes from one publisher in one topic and QoS comes in its order, repetitions aside.
P6  nothing is lost without a count, and in the end nothing waits anywhere: in no outbox, in no store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from broker.broker import Broker
from broker.codec.packets import MQTT_5, MQTT_311
from broker.counters import COPY_DROP_REASONS
from broker.message import NEVER
from broker.store.kinds import INTEREST, POSITION, RETAINED, SESSION, STORE, SUBSCRIPTION
from federation.stream.counters import DropReason
from simulator.durable_client import DurableClient, Sent
from simulator.federation import RETURN_LIMIT, ROUGH, Federation
from simulator.node_store import WRITE_SECONDS_MAX, Disk
from simulator.world import Host

GROUP_NUMBER: Final = 2  # the topics NODE/2 are for the members of a group only
GROUP_FILTER: Final = f"$share/g/m/+/{GROUP_NUMBER}"
GROUP_NODES: Final = 3  # on so many nodes are members of the group
PUBLISHERS: Final = 2  # of each node
SUBSCRIBERS: Final = 3  # of each node, the member of the group aside
LARGE_BYTES: Final = 60_000
ONLINE_LIMIT: Final = 60.0
"""Seconds until all clients are connected and have said what they had to, after the last fault."""
REST_SECONDS: Final = 3.0
LASTING_KINDS: Final = frozenset((SESSION, SUBSCRIPTION, RETAINED, STORE, POSITION, INTEREST))
"""Records that do not wait for somebody."""


class DurableStation:
    """The clients of one node.

    disk      None for a node without a store, which promises nothing
    away      clients that stay offline: until when
    """

    def __init__(self, number: int, disk: Disk | None, rng: Random) -> None:
        self.name = f"n{number}"
        self.disk = disk
        self.away: dict[DurableClient, float] = {}
        self.publishers = [
            DurableClient(f"publisher {at} of {self.name}", MQTT_5 if at % 2 else MQTT_311, {}, 0, rng.random() < 0.3)
            for at in range(PUBLISHERS)
        ]
        self.subscribers = [self._subscriber(f"{at}", _a_filter(rng), rng) for at in range(SUBSCRIBERS)]
        if number <= GROUP_NODES:
            self.subscribers.append(self._subscriber("of the group", GROUP_FILTER, rng))

    def _subscriber(self, name: str, topic_filter: str, rng: Random) -> DurableClient:
        return DurableClient(
            f"subscriber {name} of {self.name}",
            rng.choice((MQTT_5, MQTT_311)),
            {topic_filter: rng.choice((1, 2))},
            rng.choice((0, 1, 5)),
            rng.random() < 0.3,
        )

    @property
    def clients(self) -> list[DurableClient]:
        return self.publishers + self.subscribers


class Promises:
    """A federation whose nodes have stores, except those of the numbers `plain`.

    sent     all messages that were published
    drops    of all processes that have ended, by reason
    promised (client, filter) of durable sessions: from which moment on messages count
    """

    def __init__(
        self,
        seed: int,
        count: int,
        plain: frozenset[int] = frozenset(),
        each: tuple[dict[str, Any], ...] = (),
        **options: Any,
    ) -> None:
        rng = Random(f"stations {seed}")
        disks = [None if number in plain else Disk() for number in range(1, count + 1)]
        own = [{"disk": disk} | (each[at] if at < len(each) else {}) for at, disk in enumerate(disks)]
        self.federation = Federation(seed, count, [1, 2], ROUGH, each=own, **options)
        self.world = self.federation.world
        self.rng = self.federation.rng
        self.sent: list[Sent] = []
        self.drops: Counter[str] = Counter()
        self.stations = {
            host: DurableStation(number, disks[number - 1], rng) for number, host in enumerate(self.federation.hosts, 1)
        }
        self._promised: dict[tuple[DurableClient, str], float] = {}
        self._lost_disk_at: dict[str, float] = {}  # by node: when its newest disk was new
        self._serials: Counter[str] = Counter()
        self._until_online()
        self.begin()

    def begin(self) -> None:
        """What is granted now is known everywhere: it counts from here on."""
        self.federation.until_agreement(RETURN_LIMIT, "the subscriptions")
        for host, station in self.stations.items():
            if station.disk is None or host.process is None:
                continue
            for client in station.subscribers:
                for topic_filter in client.granted_at:
                    self._promised.setdefault((client, topic_filter), self.world.now)

    # --- what lives and what happens

    @property
    def awake(self) -> list[Host]:
        """Hosts that run and do not stand still."""
        return [host for host in self.federation.running if not host.is_still]

    def kill(self, host: Host) -> None:
        """kill -9; a node that is down stays so."""
        if host.process is None:
            return
        self._count_drops(host, self.drops)
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
            for topic_filter in client.filters:
                self._promised.pop((client, topic_filter), None)

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
        station = self.stations[host]
        now = self.world.now
        for client in station.clients:
            if not client.is_open:
                if station.away.get(client, 0.0) <= now and self.rng.random() < 0.5:
                    self._connect(host, client)
                continue
            chance = self.rng.random()
            if chance < 0.005:
                client.disconnect(chance < 0.002, now)
                station.away[client] = now + self.rng.choice((0.0, 1.0, 30.0)) * self.rng.random()
            else:
                client.answer(self.rng.randrange(4), now)

    def _connect(self, host: Host, client: DurableClient) -> None:
        node = self.federation.node(host)
        if client not in node.clients:
            node.clients.append(client)
        client.connect(node.broker, self.world.now)

    def _until_online(self) -> None:
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

    # --- the oracle

    def check(self, allowed: frozenset[DropReason] = frozenset()) -> None:
        """Everything works again: the promises have been kept, but for messages that were counted for a reason of `allowed`."""
        self.heal()
        self._until_online()
        self.federation.until_agreement(RETURN_LIMIT, "the faults")
        self.federation.until_nothing_differs(lambda: self.difference(allowed), RETURN_LIMIT, REST_SECONDS)

    def difference(self, allowed: frozenset[DropReason]) -> str:
        """The first promise that is not kept (yet), "" for none."""
        self._until_online()
        drops = self.drops.copy()
        for host in self.federation.running:
            self._count_drops(host, drops)
        for reason, count in drops.items():
            if reason not in allowed:
                return f"P6: {count} messages were dropped: {reason}"
        for found in (self._broken(), self._not_delivered(sum(drops.values())), self._waiting(), self._not_counted()):
            if found:
                return found
        return ""

    def _sessions(self) -> Iterator[tuple[DurableClient, DurableStation]]:
        """The subscribers on nodes with stores."""
        for station in self.stations.values():
            if station.disk is not None:
                for client in station.subscribers:
                    yield client, station

    def _broken(self) -> str:
        """Of sessions: what no passing of time mends."""
        by_payload = {sent.payload: sent for sent in self.sent}
        for host, station in self.stations.items():
            for client in station.clients:
                if client.faults and station.disk is not None:
                    return f"{host.name}, {client.client_id}: {client.faults[0]}"
        for client, _ in self._sessions():
            (qos,) = client.filters.values()
            seen: set[bytes] = set()
            newest: dict[tuple[str, bytes, int], int] = {}
            for payload, _ in client.received:
                sent = by_payload.get(payload)
                if sent is None:  # QoS 0
                    continue
                if payload in seen:
                    if min(qos, sent.qos) == 2 and self.stations[self._host(sent.node)].disk is not None:
                        return f"P1: {client.client_id} got {payload[:30]!r} twice with QoS 2"
                    continue
                seen.add(payload)
                key = (sent.publisher, sent.topic, sent.qos)
                if sent.serial < newest.get(key, -1):
                    return f"P5: {client.client_id} got {payload[:30]!r} behind number {newest[key]}"
                newest[key] = sent.serial
        return ""

    def _host(self, name: str) -> Host:
        return next(host for host, station in self.stations.items() if station.name == name)

    def _is_promised(self, sent: Sent) -> bool:
        """Whether it was acknowledged by a node with a store, which has its disk still."""
        if self.stations[self._host(sent.node)].disk is None or sent.acknowledged_at == NEVER:
            return False
        return sent.acknowledged_at > self._lost_disk_at.get(sent.node, -1.0)

    def _not_delivered(self, dropped: int) -> str:
        """A message that was dropped on its way to a node is missing in all sessions there, and counted once."""
        missing: dict[tuple[bytes, str], str] = {}
        promised = [sent for sent in self.sent if self._is_promised(sent)]
        group: set[bytes] = set()
        group_since = NEVER
        for client, station in self._sessions():
            got = {payload for payload, _ in client.received}
            for topic_filter in client.filters:
                since = self._promised.get((client, topic_filter), NEVER)
                if topic_filter == GROUP_FILTER:
                    group |= got
                    group_since = min(group_since, since)
                    continue
                for sent in promised:
                    if sent.sent_at > since and _matches(topic_filter, sent.topic) and sent.payload not in got:
                        missing.setdefault((sent.payload, station.name), _of(sent, client.client_id))
        without = {payload for payload, _ in missing}
        for sent in promised:
            if sent.sent_at > group_since and _matches(GROUP_FILTER, sent.topic):
                if sent.payload not in group and sent.payload not in without:
                    missing[(sent.payload, "")] = _of(sent, "the group")
        if len(missing) > dropped:
            first = next(iter(missing.values()))
            return f"P1: {len(missing)} messages are missing, {dropped} were dropped and counted: {first}"
        return ""

    def _waiting(self) -> str:
        for host in self.federation.running:
            for name, sender in self.federation.node(host).node.senders.items():
                if sender.outbox.size or sender.outbox.on_way:
                    return f"P6: {host.name} keeps {sender.outbox.size} bytes for {name}"
            disk = self.stations[host].disk
            kinds = Counter(record[0] for record in disk.records.values()) if disk is not None else Counter()
            left = {kind: count for kind, count in kinds.items() if kind not in LASTING_KINDS}
            if left:
                return f"P6: {host.name} has records on its disk for nobody, by kind: {left}"
        return ""

    def _not_counted(self) -> str:
        """Each copy of a message for a session has come to an end that is counted, or waits."""
        for host in self.federation.running:
            broker: Broker = self.federation.node(host).broker
            counters = broker.counters
            sessions = broker.sessions.values()
            waiting = sum(session.queue_length() + session.inflight_length() for session in sessions)
            dropped = sum(counters.messages_dropped[reason] for reason in COPY_DROP_REASONS)
            ended = counters.qos0_sent + counters.acknowledged + counters.handed_over
            if counters.copies != ended + dropped + waiting:
                return (
                    f"P6: {host.name} counts {counters.copies} copies, {ended} + {dropped} dropped + {waiting} waiting"
                )
        return ""

    def _count_drops(self, host: Host, drops: Counter[str]) -> None:
        """Add the drops of messages with QoS 1 and 2 that the node's process has counted."""
        node = self.federation.node(host)
        for counters in node.node.counters.values():
            for reason in DropReason:
                if counters.dropped[reason]:
                    drops[reason] += counters.dropped[reason]
        for name, (_, *counts) in node.broker.counters.drops.items():
            if sum(counts):
                drops[name] += sum(counts)


def _of(sent: Sent, receiver: str) -> str:
    at = f"sent at {sent.sent_at:.3f} s, acknowledged at {sent.acknowledged_at:.3f} s"
    return f"{receiver} lacks {sent.payload[:30]!r} of QoS {sent.qos}, {at}"


def _a_filter(rng: Random) -> str:
    node = rng.choice(("+", "+", "n1", "n2", "n3"))
    number = rng.choice(("0", "1", "+", "#"))
    return f"m/{node}/{number}"


def _matches(topic_filter: str, topic: bytes) -> bool:
    """Of the filters and topics here, which have three levels."""
    levels = topic_filter.removeprefix("$share/g/").split("/")
    return all(level in ("+", "#", own) for level, own in zip(levels, topic.decode().split("/"), strict=True))
