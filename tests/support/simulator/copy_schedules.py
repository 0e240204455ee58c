"""Schedules for stores with copies: homes are lost with their disks, or are away for longer than their keepers wait."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from federation.settings import ReplicationSettings
from simulator.durable_client import UNACKNOWLEDGED_MAX, DurableClient
from simulator.promise_steps import check, some
from simulator.promises import Promises
from simulator.roaming import Roaming, check_roaming
from simulator.world import Host

ADOPT_SECONDS: Final = 10.0
CUT_SECONDS: Final = 10.0  # until all have noticed the end of a cut
WHOLE_LIMIT: Final = 60.0
FAILED_LIMIT: Final = 60.0
BACK_SECONDS: Final = 5.0
SLOW_SECONDS: Final = 3.0


class Copied(Roaming):
    """Clients move, and sessions are adopted."""

    def __init__(
        self,
        seed: int,
        count: int,
        copies: int = 2,
        when_short: str = "serve",
        adopt_after: float = ADOPT_SECONDS,
        **options: Any,
    ) -> None:
        replication = ReplicationSettings(copies, when_short, adopt_after)
        self.cut_off: list[Host] = []
        super().__init__(seed, count, is_rough=True, replication=replication, **options)
        for station in self.stations.values():
            for client in station.clients:
                client.may_be_refused = when_short == "hold"

    def _connect(self, host: Host, client: DurableClient) -> None:
        """What a client has got on one side of a cut, it may get on the other one, too."""
        before = self.where.get(client)
        super()._connect(host, client)
        if before is not None and (before in self.cut_off) != (host in self.cut_off):
            client.has_begun_anew = True

    def keepers_of(self, host: Host) -> list[Host]:
        copies = self.federation.node(host).node.copies
        assert copies is not None
        names = copies.replication.listed.names
        return [other for other, station in self.stations.items() if station.name in names]

    def until_whole(self) -> None:
        def is_whole() -> bool:
            for node in self.nodes():
                copies = node.node.copies
                if copies is not None and copies.replication.whole() < copies.replication.wanted:
                    return False
            return True

        self.world.run_until(is_whole, WHOLE_LIMIT, "all stores have their copies")

    def lose(self, host: Host) -> None:
        """The node dies with its disk. Promises stay."""
        self.kill(host)
        disk = self.stations[host].disk
        assert disk is not None
        disk.records.clear()

    def pause(self) -> float:
        """Seconds: shorter than a node is taken for failed, or until its sessions are adopted, or longer."""
        return self.rng.choice((0.5, 8.0, 25.0, 45.0)) * (0.5 + self.rng.random() / 2)


def homes_are_lost(seed: int, copies: int = 2) -> None:
    """A node dies with its disk while all stores are whole, and comes back with an empty one."""
    copied = Copied(seed, copies + 1 + seed % 3, copies)
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        copied.until_whole()
        victim = copied.rng.choice(copied.federation.hosts)
        copied.lose(victim)
        copied.run(copied.pause(), 10.0)
        copied.start(victim)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def two_homes_are_lost(seed: int) -> None:
    """Each store has two copies on other nodes."""
    copied = Copied(seed, 5, 3)
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        copied.until_whole()
        seed_host, *others = (
            copied.federation.hosts
        )  # two that have nobody else to join would be a cluster of their own
        victims = copied.rng.sample(others, 2)
        if copied.rng.random() < 0.3:
            victims = [seed_host, victims[1]] if victims[1] is not others[0] else [seed_host, victims[0]]
        for victim in victims:
            copied.lose(victim)
            copied.run(copied.rng.choice((0.0, 0.2, 15.0)), 10.0)
        copied.run(copied.pause(), 10.0)
        for victim in victims:
            copied.start(victim)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def _with_keepers(copied: Copied, joined: int) -> list[tuple[Host, list[Host]]]:
    """Each node with its keepers, where one of the first `joined` nodes, which others join, stays: else there would be two
    clusters."""
    hosts = copied.federation.hosts
    found = [(host, copied.keepers_of(host)) for host in hosts]
    return [(host, keepers) for host, keepers in found if not set(hosts[:joined]) <= {host, *keepers}]


def homes_are_lost_that_hold(seed: int, copies: int = 2) -> None:
    """A node dies with its disk while its keepers are down: it has acknowledged nothing since that they do not have."""
    copied = Copied(seed, copies + 2 + seed % 2, copies, "hold", joins=tuple(range(1, copies + 1)))
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        copied.until_whole()
        victim, keepers = copied.rng.choice(_with_keepers(copied, copies))
        for keeper in keepers:
            copied.kill(keeper)
        copied.run(copied.rng.choice((0.1, 1.0, 5.0)) * (0.5 + copied.rng.random()), 30.0)
        copied.lose(victim)
        copied.run(copied.pause(), 10.0)
        for host in copied.rng.sample([*keepers, victim], len(keepers) + 1):
            copied.start(host)
            copied.run(copied.rng.random() * 5.0, 10.0)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def homes_are_away(seed: int, copies: int = 2) -> None:
    """Nodes die, and come back with their disks when others may have adopted their sessions."""
    copied = Copied(seed, copies + 1 + seed % 3, copies)
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        victims = some(copied, copied.federation.hosts[1:])
        for victim in victims:
            copied.kill(victim)
        copied.run(copied.pause(), 10.0)
        for victim in victims:
            copied.start(victim)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def homes_stand_still(seed: int, copies: int = 2) -> None:
    """Homes stand still, or are cut off, for longer than their keepers wait."""
    copied = Copied(seed, copies + 1 + seed % 3, copies)
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        victim = copied.rng.choice(copied.federation.hosts[1:])
        seconds = copied.pause()
        copied.cut_off = [victim]
        if copied.rng.random() < 0.5:
            victim.stand_still(seconds)
            copied.run(seconds + copied.rng.random(), 10.0)
        else:
            copied.world.partition([victim])
            copied.run(seconds, 10.0)
            copied.world.heal()
        copied.run(CUT_SECONDS, 10.0)
        copied.cut_off = []
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def homes_come_back_to_their_clients(seed: int) -> None:
    """Homes die or stand still until their sessions are adopted; their clients wait for them, and are there before the other
    nodes hear of the return. Nothing is repeated with QoS 2, and the order holds."""
    promises = Promises(seed, 3 + seed % 3, replication=ReplicationSettings(adopt_after=ADOPT_SECONDS))
    for _ in range(2):
        promises.run(promises.rng.random() * 4.0, 30.0)
        victim = promises.rng.choice(promises.federation.hosts[1:])
        seconds = promises.rng.choice((3.0, 25.0, 45.0)) * (0.5 + promises.rng.random() / 2)
        if promises.rng.random() < 0.5:
            promises.kill(victim)
            promises.run(seconds, 10.0)
            promises.start(victim)
        else:
            victim.stand_still(seconds)
            promises.run(seconds, 10.0)
        victim.held_until = promises.world.now + promises.rng.choice((0.0, 0.5, 2.0))
        promises.run(BACK_SECONDS, 10.0)
    promises.run(promises.rng.random() * 4.0, 30.0)
    check(promises)


def slow_homes_come_back(seed: int) -> None:
    """As above, where homes may be cut off, too, and nodes take seconds for what they get and send when one is back: the home
    lets its clients in, and hears of what others have sent elsewhere, before the adopter has handed over anything."""
    promises = Promises(seed, 3 + seed % 3, replication=ReplicationSettings(adopt_after=ADOPT_SECONDS))
    hosts = promises.federation.hosts
    for _ in range(2):
        promises.run(promises.rng.random() * 4.0, 30.0)
        victim = promises.rng.choice(hosts[1:])
        seconds = promises.rng.choice((25.0, 45.0)) * (0.5 + promises.rng.random() / 2)
        how = promises.rng.choice(("dies", "stands still", "is cut off"))
        if how == "dies":
            promises.kill(victim)
        elif how == "stands still":
            victim.stand_still(seconds)
        else:
            promises.world.partition([victim])
        promises.run(seconds, 10.0)
        promises.start(victim)
        promises.world.heal()
        for _ in range(5):
            for host in some(promises, hosts):
                if host.receives_at <= promises.world.now:  # else what waits would come behind what is later
                    host.hold_messages(SLOW_SECONDS * promises.rng.random())
            promises.run(1.0, 20.0)
        promises.run(CUT_SECONDS, 10.0)
    promises.run(promises.rng.random() * 4.0, 30.0)
    check(promises)


def homes_come_back_while_they_are_adopted(seed: int) -> None:
    """A node dies, and is back at about the moment when its keeper adopts its sessions; nodes take seconds for what they get
    and send meanwhile."""
    promises = Promises(seed, 3 + seed % 3, replication=ReplicationSettings(adopt_after=ADOPT_SECONDS))
    hosts = promises.federation.hosts
    for _ in range(2):
        promises.run(promises.rng.random() * 4.0, 30.0)
        victim = promises.rng.choice(hosts[1:])
        name = promises.stations[victim].name
        promises.kill(victim)

        def has_failed(name: str = name) -> bool:
            return not any(node.node.senders[name].is_living for node in promises.nodes())

        promises.world.run_until(has_failed, FAILED_LIMIT, f"{name} has failed")
        promises.run(ADOPT_SECONDS + promises.rng.uniform(-1.5, 2.0), 10.0)
        promises.start(victim)
        for _ in range(4):
            for host in some(promises, hosts):
                if host.receives_at <= promises.world.now:
                    host.hold_messages(SLOW_SECONDS * promises.rng.random() ** 2)
            promises.run(promises.rng.random(), 20.0)
        promises.run(CUT_SECONDS, 10.0)
    promises.run(promises.rng.random() * 4.0, 30.0)
    check(promises)


def power_fails_while_clients_move(seed: int, copies: int = 2) -> None:
    """All nodes die at once; they come back in any order, some when others have adopted their sessions."""
    copied = Copied(seed, copies + 1 + seed % 3, copies)
    hosts = copied.federation.hosts
    for _ in range(2):
        copied.run(copied.rng.random() * 4.0, 30.0)
        for host in hosts:
            copied.kill(host)
        for host in copied.rng.sample(hosts, len(hosts)):
            copied.run(copied.rng.choice((0.0, 0.5, 5.0, 25.0)) * copied.rng.random(), 10.0)
            copied.start(host)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def clocks_jump_while_clients_move(seed: int) -> None:
    """Clocks go back and forth by up to half an hour, while epochs are the time of their claims; nodes die and are away, and
    have the right time when they are back."""
    copied = Copied(seed, 3 + seed % 3, outbox_age_max=7200.0)
    copied.clocks_jump = True
    for _ in range(3):
        copied.run(copied.rng.random() * 3.0, 30.0)
        for host in some(copied, copied.federation.running):
            copied.federation.node(host).broker.wall_offset += copied.rng.choice((-1800.0, -5.0, 5.0, 1800.0))
        copied.run(copied.rng.random() * 3.0, 30.0)
        victim = copied.rng.choice(copied.federation.hosts)
        copied.kill(victim)
        copied.run(copied.pause(), 10.0)
        copied.start(victim)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def nodes_of_two_builds(seed: int) -> None:
    """Clients move between nodes of this build and of one before the newest extension, between which its records are not on the
    wire (earlier_frames). They die, are lost with their disks while all stores are whole, or are cut off."""
    count = 3 + seed % 3
    rng = Random(f"builds {seed}")
    copied = Copied(seed, count, before=frozenset(rng.sample(range(1, count + 1), rng.randint(1, count - 1))))
    for _ in range(3):
        copied.run(copied.rng.random() * 4.0, 30.0)
        victim = copied.rng.choice(copied.federation.hosts[1:])
        fault = copied.rng.choice(("dies", "is lost", "is cut off"))
        if fault == "is cut off":
            copied.cut_off = [victim]
            copied.world.partition([victim])
        elif fault == "is lost":
            copied.until_whole()
            copied.lose(victim)
        else:
            copied.kill(victim)
        copied.run(copied.pause(), 10.0)
        copied.world.heal()
        copied.start(victim)
        copied.run(CUT_SECONDS, 10.0)
        copied.cut_off = []
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def first_flights_are_lost(seed: int) -> None:
    """Nodes die or are cut off, so that clients are let in without their sessions; connections end when CONNACK has come, and
    nothing of what the client has said to it."""
    copied = Copied(seed, 3 + seed % 3)
    copied.loses_flights = True
    for station in copied.stations.values():
        for client in station.clients:
            client.packet_ids_max = UNACKNOWLEDGED_MAX + 1
    for _ in range(3):
        copied.run(copied.rng.random() * 4.0, 30.0)
        victims = some(copied, copied.federation.hosts[1:])
        if copied.rng.random() < 0.5:
            copied.world.partition(victims)
        else:
            for victim in victims:
                copied.kill(victim)
        copied.run(copied.pause(), 10.0)
        copied.world.heal()
        for victim in victims:
            copied.start(victim)
    copied.run(copied.rng.random() * 4.0, 30.0)
    check_roaming(copied)


def with_three_copies(schedule: Callable[[int, int], None]) -> Callable[[int], None]:
    """The schedule where each store has two copies on other nodes."""

    def run(seed: int) -> None:
        schedule(seed, 3)

    run.__name__ = f"{schedule.__name__}_with_three_copies"
    return run


WITH_THREE_COPIES: Final = tuple(
    with_three_copies(schedule)
    for schedule in (
        homes_are_lost,
        homes_are_lost_that_hold,
        homes_are_away,
        homes_stand_still,
        power_fails_while_clients_move,
    )
)
COPY_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    homes_are_lost,
    two_homes_are_lost,
    homes_are_lost_that_hold,
    homes_are_away,
    homes_stand_still,
    homes_come_back_to_their_clients,
    slow_homes_come_back,
    homes_come_back_while_they_are_adopted,
    power_fails_while_clients_move,
    clocks_jump_while_clients_move,
    first_flights_are_lost,
    nodes_of_two_builds,
    *WITH_THREE_COPIES,
)
