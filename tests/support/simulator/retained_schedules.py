"""Retained messages that all nodes write, while they are cut off, die, and have clocks that differ: the last writer of each
topic wins everywhere, a deletion stays one, and nobody is sent anything twice.

The last writer is the one with the greatest stamp, which the oracle reads at the node of the writer. Each node sees its own
writes at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from broker.broker import Broker
from broker.codec.packets import Packet, SubAck
from simulator.client import Client
from simulator.federation import RETURN_LIMIT, ROUGH, Federation
from simulator.node_store import Disk
from simulator.world import Host

TOPICS: Final = tuple(f"r/{letter}" for letter in "abcdefghijklmnop")  # the later ones are written seldom
STATUS_LIMIT: Final = 70.0
"""Seconds until two digests were compared after the last change."""
NEAR: Final = 25.0  # seconds that clocks differ, which nobody corrects
FAR: Final = (-86_400.0, -7_200.0, -300.0, -90.0, 0.0, 10.0, 90.0, 300.0, 7_200.0, 86_400.0)
DELETION: Final = b""


@dataclass(frozen=True, slots=True)
class Write:
    """packet_id  of the client of one life of the node; stamp 0 where a newer change was known"""

    topic: bytes
    payload: bytes
    stamp: int
    life: Life
    packet_id: int


class Reader(Client):
    """held  what was retained when its SUBSCRIBE was handled: after its CONNECT, which asks the other nodes"""

    def __init__(self, broker: Broker, client_id: str, now: float) -> None:
        self.held: Counter[bytes] = Counter()
        self._retained = broker.retained
        super().__init__(broker, client_id, now)

    def handle_packet(self, packet: Packet, now: float) -> None:
        if isinstance(packet, SubAck):
            self.held = Counter(message.payload for message in self._retained.messages())
        super().handle_packet(packet, now)


class Life:
    """One life of a node, with a client that writes and one that reads."""

    def __init__(self, federation: Federation, host: Host) -> None:
        self.host = host
        self.node = federation.node(host)
        now = federation.world.now
        self.publisher = self.node.add_client("publisher", now)
        self.reader = Reader(self.node.broker, f"reader of {self.node.name}", now)
        self.node.clients.append(self.reader)
        self.reader.subscribe("r/#", now)
        host.settle()

    @property
    def lives(self) -> bool:
        return self.host.process is self.node

    def retained(self) -> dict[bytes, bytes]:
        return {message.topic: message.payload for message in self.node.broker.retained.messages()}


class RetainedWorld:
    """disks  of the nodes, None for one without a store"""

    def __init__(self, seed: int, count: int, disks: list[Disk | None], clocks: list[float], **options: Any) -> None:
        each = [{"disk": disk, "clock_error": clock} for disk, clock in zip(disks, clocks, strict=True)]
        self.federation = Federation(seed, count, [1, 2], ROUGH, each=each, **options)
        self.world = self.federation.world
        self.rng = self.federation.rng
        self.disks = dict(zip(self.federation.hosts, disks, strict=True))
        self.lives: list[Life] = []
        self.writes: list[Write] = []
        self.lost_disk_at: dict[Host, int] = {}  # number of writes before
        for host in self.federation.hosts:
            self.come(host)
        self.federation.until_agreement(RETURN_LIMIT, "the subscriptions")

    def come(self, host: Host) -> None:
        self.lives.append(Life(self.federation, host))

    @property
    def living(self) -> list[Life]:
        return [life for life in self.lives if life.lives]

    def write(self, life: Life, topic: str = "") -> Write:
        topic = topic or TOPICS[int(self.rng.random() ** 3 * len(TOPICS))]
        payload = DELETION if self.rng.random() < 0.3 else b"%d of %s" % (len(self.writes), life.node.name.encode())
        name = topic.encode()
        before = life.node.node.versions.stamp_of(name)
        packet_id = life.publisher.publish(topic, payload, self.world.now, 1, True)
        held = life.node.broker.retained.get(name)
        # A node with a store that has just started takes nothing before it has heard the others.
        is_taken = (DELETION if held is None else held.payload) == payload and not life.publisher.is_held
        stamp = life.node.node.versions.stamp_of(name) if is_taken else 0
        self.world.check(
            stamp > before or life.publisher.is_held, f"{life.node.name} does not see its write of {topic}"
        )
        write = Write(name, payload, stamp, life, packet_id)
        self.writes.append(write)
        life.host.settle()
        return write

    def run(self, seconds: float, rate: float) -> None:
        """Time passes while nodes write."""
        end = self.world.now + seconds
        while self.world.now < end:
            self.federation.run(min(self.rng.random() * 0.4, end - self.world.now))
            awake = [life for life in self.living if not life.host.is_still]
            for _ in range(int(rate * 0.2 + self.rng.random()) if awake else 0):
                self.write(self.rng.choice(awake))

    def trouble(self) -> None:
        """Some nodes do not reach some others, or one way only."""
        hosts = self.federation.hosts
        first, second = self.rng.sample(hosts, 2)
        kind = self.rng.random()
        if kind < 0.4:
            self.world.partition(self.rng.sample(hosts, self.rng.randrange(1, len(hosts))))
        elif kind < 0.6:
            self.world.cut([first], [second])
        elif kind < 0.8:
            self.world.cut_one_way([first], [second])
        else:
            self.world.break_streams(first, second, self.rng.choice(([first, second], [first], [second], [])))

    def kill(self, host: Host, with_disk: bool) -> None:
        host.crash()
        disk = self.disks[host]
        if disk is not None and with_disk:
            disk.records.clear()
            self.lost_disk_at[host] = len(self.writes)

    def start(self, host: Host) -> None:
        if host.process is None:
            host.start()
            self.come(host)

    # --- the oracle

    def heal(self) -> None:
        self.world.heal()
        for host in self.federation.hosts:
            self.start(host)
        still = max(host.still_until for host in self.federation.hosts)
        if still > self.world.now:
            self.world.run(still - self.world.now)

    def check(self, difference: Callable[[], str] | None = None) -> None:
        self.heal()
        # A small outbox may drop the messages with which `until_agreement` looks.
        self.world.run_until(lambda: not self.federation.disagreement(), RETURN_LIMIT, "all know each other again")
        self.federation.until_nothing_differs(difference or self.difference, RETURN_LIMIT, 5.0)
        self.world.run_until(self._says_equal, STATUS_LIMIT, "every node says that the digests are equal")
        self._check_readers()

    def difference(self) -> str:
        """ "" when all nodes are equal, and hold what was written last."""
        first, *others = self.living
        for other in others:
            if other.retained() != first.retained():
                return f"{other.node.name} holds {other.retained()}, {first.node.name} {first.retained()}"
            if other.node.node.versions.digests() != first.node.node.versions.digests():
                return f"the digests of {other.node.name} and {first.node.name} differ"
        return self.lost_write()

    def lost_write(self) -> str:
        """ "" when each topic has the value of its last writer."""
        life = self.living[0]
        for name in TOPICS:
            topic = name.encode()
            held = life.node.broker.retained.get(topic)
            payload = DELETION if held is None else held.payload
            stamp = life.node.node.versions.stamp_of(topic)
            if not stamp:
                continue  # all nodes that knew of it have died
            writes = [write for write in self.writes if write.topic == topic]
            promised = max((write.stamp for write in writes if self._is_promised(write)), default=0)
            if stamp < promised:
                return f"{name} is {payload!r} with an older stamp than that of a write that was promised"
            if payload not in [write.payload for write in writes if write.stamp in (0, stamp)]:
                return f"{name} is {payload!r}, which is not what was written last"
        return ""

    def _is_promised(self, write: Write) -> bool:
        """Its node lives, or has acknowledged it and has its disk."""
        if write.life.lives:
            return True
        host = write.life.host
        is_kept = self.disks[host] is not None and self.lost_disk_at.get(host, 0) <= self.writes.index(write)
        return is_kept and write.packet_id in write.life.publisher.acknowledged

    def _says_equal(self) -> bool:
        return all(
            counters.retained_differing == 0
            for life in self.living
            for name, counters in life.node.node.counters.items()
            if name in life.node.node.senders
        )

    def _check_readers(self) -> None:
        for life in self.lives:
            got = Counter(payload for _, payload in life.reader.received if payload)
            got -= life.reader.held  # a new subscriber gets what is retained, and then what others' outboxes still have
            twice = [payload for payload, count in got.items() if count > 1]
            self.world.check(not twice, f"a subscriber at {life.node.name} got {twice} twice")


def _near(world_seed: int, count: int) -> list[float]:
    return [(world_seed * 7 + number * 13) % (2 * NEAR) - NEAR for number in range(count)]


def retained_on_both_sides(seed: int) -> None:
    """Nodes that live write on both sides of cuts, with outboxes of any size."""
    small = {"outbox_bytes_max": 2_000} if seed % 3 == 0 else {}
    world = RetainedWorld(seed, 4, [None] * 4, _near(seed, 4), outbox_age_max=20.0 if seed % 4 == 1 else 300.0, **small)
    for _ in range(4):
        world.run(world.rng.random() * 5.0, 10.0)
        world.trouble()
        world.run(world.rng.choice((2.0, 10.0, 60.0)) * world.rng.random(), 8.0)
        if world.rng.random() < 0.6:
            world.world.heal()
        world.run(world.rng.random() * 10.0, world.rng.choice((0.0, 5.0)))
    world.check()


def retained_by_wrong_clocks(seed: int) -> None:
    """Clocks are minutes to a day apart, and jump. Wherever it is written afterwards, the write counts."""
    rng = _near(seed, 4)
    clocks = [FAR[(seed * 3 + number * 7) % len(FAR)] if number < 1 + seed % 2 else rng[number] for number in range(4)]
    world = RetainedWorld(seed, 4, [None] * 4, clocks)
    for _ in range(3):
        world.run(world.rng.random() * 5.0, 8.0)
        if world.rng.random() < 0.5:
            world.trouble()
        jumping = world.rng.choice(world.living)
        jumping.node.broker.wall_offset += world.rng.choice(FAR)
        world.run(world.rng.random() * 40.0, 5.0)
        world.world.heal()

    def difference() -> str:
        return world.difference() if world.difference().startswith(("n", "the")) else ""

    world.check(difference)
    for life in world.rng.sample(world.living, len(world.living)):
        world.run(world.rng.random() * 5.0, 0.0)
        last = world.write(life, TOPICS[0])
        world.world.run_until(
            lambda last=last: all(  # type: ignore[misc]
                other.retained().get(last.topic, DELETION) == last.payload for other in world.living
            ),
            RETURN_LIMIT,
            f"the write of {life.node.name} is everywhere",
        )
    world.check(difference)


def retained_writers_die(seed: int) -> None:
    """Nodes with and without stores die, some with their disks, on both sides of cuts."""
    count = 4
    disks = [None if (seed + number) % 3 == 0 else Disk() for number in range(count)]
    world = RetainedWorld(seed, count, disks, _near(seed, count))
    for _ in range(4):
        world.run(world.rng.random() * 4.0, 10.0)
        if world.rng.random() < 0.5:
            world.trouble()
            world.run(world.rng.random() * 20.0, 8.0)
        for host in world.rng.sample(world.federation.hosts, world.rng.choice((1, 1, 2, count))):
            if host.process is not None:
                world.kill(host, world.rng.random() < 0.2)
                world.run(world.rng.choice((0.0, 1.0, 30.0)) * world.rng.random(), 8.0)
        if world.rng.random() < 0.5:
            world.world.heal()
        for host in world.federation.hosts:
            world.start(host)
            world.run(world.rng.random() * 2.0, world.rng.choice((0.0, 8.0)))
        world.world.heal()
    world.check()


def retained_at_nodes_that_stand_still(seed: int) -> None:
    """For up to two minutes, so that others give them up; and one is new at the end."""
    world = RetainedWorld(seed, 3, [None, Disk(), Disk()], _near(seed, 3), outbox_age_max=15.0)
    for _ in range(3):
        host = world.rng.choice(world.federation.hosts)
        if not host.is_still:
            host.stand_still(world.rng.choice((1.0, 30.0, 120.0)) * world.rng.random())
        world.run(world.rng.random() * 60.0, 8.0)
    newcomer = world.federation.add(9, seeds=[1, 2])
    world.federation.hosts.append(newcomer)
    world.disks[newcomer] = None
    world.heal()
    world.run(2.0, 8.0 * (seed % 2))
    world.check()


RETAINED_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    retained_on_both_sides,
    retained_by_wrong_clocks,
    retained_writers_die,
    retained_at_nodes_that_stand_still,
)
