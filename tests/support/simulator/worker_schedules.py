"""Schedules for nodes of several workers: they die one by one, or with their machine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from federation.settings import ReplicationSettings
from simulator.copy_schedules import ADOPT_SECONDS, BACK_SECONDS, CUT_SECONDS, SLOW_SECONDS, Copied
from simulator.durable_client import DurableClient
from simulator.roaming import Roaming, check_roaming
from simulator.world import Host

STOP_SECONDS: Final = 1.0
HANGS_SECONDS: Final = 8.0  # the supervisor ends a worker that has not told for so long that it lives


class Workers(Copied):
    """Machines of so many workers each. The supervisor starts a worker again at once."""

    def __init__(self, seed: int, workers: tuple[int, ...], **options: Any) -> None:
        super().__init__(seed, sum(workers), machines=workers, **options)
        hosts = iter(self.federation.hosts)
        self.machines = [list(islice(hosts, count)) for count in workers]

    def check_keepers(self) -> None:
        """All stores have their copies, none on the same machine, and none twice on another one while there is a third."""
        self.until_whole()
        for machine in self.machines:
            for host in machine:
                keepers = [other for other in self.machines for keeper in self.keepers_of(host) if keeper in other]
                self.world.check(machine not in keepers, f"{host.name} has a copy on its own machine")
                places = len({id(keeper) for keeper in keepers})
                self.world.check(
                    places == min(len(keepers), len(self.machines) - 1), f"{host.name}: {places} machines have copies"
                )


class Shattered(Workers):
    """While some are cut off, each worker may be on a side of its own: what a client has got at one of them, it may get at
    another one, too."""

    def __init__(self, seed: int, workers: tuple[int, ...]) -> None:
        super().__init__(seed, workers, adopt_after=ADOPT_SECONDS / 2, joins=(1, 1 + workers[0]))
        self.moves_are_ordered = False
        self.publishers_are_cut = True

    def _connect(self, host: Host, client: DurableClient) -> None:
        before = self.where.get(client)
        super()._connect(host, client)
        if self.cut_off and before is not None and before is not host:
            client.has_begun_anew = True


class AtMachines(Roaming):
    """Clients stay at their machine, and connect to any worker of it, with their sessions."""

    def __init__(self, seed: int, machines: int, workers: int) -> None:
        self._workers = workers
        replication = ReplicationSettings(adopt_after=ADOPT_SECONDS)
        super().__init__(seed, machines * workers, workers=workers, replication=replication)
        self.moves_are_ordered = False

    def machine(self, number: int) -> list[Host]:
        return self.federation.hosts[number * self._workers : (number + 1) * self._workers]

    def stop(self, machine: list[Host]) -> None:
        """Its clients are away while it is still sent messages. It stops when it has done what has come."""
        for host in machine:
            station = self.stations[host]
            for client in station.clients:
                client.lose()
                station.away[client] = self.world.now + 2 * STOP_SECONDS
        self.run(STOP_SECONDS, 30.0)
        self.run(STOP_SECONDS, 0.0)
        for host in machine:
            self.kill(host)

    def _connect(self, host: Host, client: DurableClient) -> None:
        numbers = [number for number, station in enumerate(self.stations.values()) if client in station.clients]
        awake = self.awake
        workers = [worker for worker in self.machine(numbers[0] // self._workers) if worker in awake]
        super()._connect(self.rng.choice(workers), client)


def end_worker(roaming: Roaming, host: Host) -> None:
    """It dies, or hangs until the supervisor kills it, and is started again."""
    if roaming.rng.random() < 0.3:
        host.stand_still(HANGS_SECONDS + 1.0)
        roaming.run(HANGS_SECONDS, 10.0)
    roaming.kill(host)
    roaming.run(roaming.rng.random(), 30.0)
    roaming.start(host)


def workers_of_one_node_die(seed: int) -> None:
    """A node by itself: its clients wait for a worker that is started again, so none begins anew, nothing is repeated with
    QoS 2, and the order holds but for publishers that move."""
    count = 2 + seed % 3
    roaming = Roaming(seed, count, workers=count)
    roaming.moves_are_ordered = False
    for _ in range(4):
        roaming.run(roaming.rng.random() * 4.0, 30.0)
        end_worker(roaming, roaming.rng.choice(roaming.federation.hosts))
    roaming.run(roaming.rng.random() * 4.0, 30.0)
    check_roaming(roaming)


def one_node_with_workers_dies(seed: int) -> None:
    """With all of its workers, which come back in any order, some of them late."""
    count = 2 + seed % 3
    roaming = Roaming(seed, count, True, workers=count)
    hosts = roaming.federation.hosts
    for _ in range(3):
        roaming.run(roaming.rng.random() * 4.0, 30.0)
        for host in hosts:
            roaming.kill(host)
        for host in roaming.rng.sample(hosts, count):
            roaming.run(roaming.rng.choice((0.0, 0.5, 6.0)) * roaming.rng.random(), 10.0)
            roaming.start(host)
        end_worker(roaming, roaming.rng.choice(hosts))
    roaming.run(roaming.rng.random() * 4.0, 30.0)
    check_roaming(roaming)


def workers_of_machines_die(seed: int) -> None:
    """One by one, some for so long that another machine adopts their sessions."""
    workers = Workers(seed, (2 + (seed // 2) % 2,) * (2 + seed % 2))
    for _ in range(3):
        workers.run(workers.rng.random() * 4.0, 30.0)
        workers.check_keepers()
        victim = workers.rng.choice(workers.federation.hosts)
        if workers.rng.random() < 0.5:
            end_worker(workers, victim)
        else:
            workers.kill(victim)
            workers.run(workers.pause(), 10.0)
            workers.start(victim)
    workers.run(workers.rng.random() * 4.0, 30.0)
    check_roaming(workers)


def workers_are_lost(seed: int) -> None:
    """One worker loses its store while all have their copies, and comes back with an empty one."""
    workers = Workers(seed, (2,) * (2 + seed % 2))
    for _ in range(2):
        workers.run(workers.rng.random() * 4.0, 30.0)
        workers.check_keepers()
        victim = workers.rng.choice(workers.federation.hosts)
        workers.lose(victim)
        workers.run(workers.pause(), 10.0)
        workers.start(victim)
    workers.run(workers.rng.random() * 4.0, 30.0)
    check_roaming(workers)


def machines_are_lost(seed: int) -> None:
    """All workers of a machine die at once, with their disks or without, and come back one after the other."""
    count = 2 + (seed // 2) % 2
    # One of each machine: a machine that was lost with all nodes that others join would be a cluster of its own for a while.
    workers = Workers(seed, (count,) * (2 + seed % 2), joins=(1, 1 + count))
    for _ in range(2):
        workers.run(workers.rng.random() * 4.0, 30.0)
        workers.check_keepers()
        machine = workers.rng.choice(workers.machines)
        is_lost = workers.rng.random() < 0.5
        for host in machine:
            if is_lost:
                workers.lose(host)
            else:
                workers.kill(host)
        workers.run(workers.pause(), 10.0)
        for host in workers.rng.sample(machine, len(machine)):
            workers.start(host)
            workers.run(workers.rng.random(), 10.0)
    workers.run(workers.rng.random() * 4.0, 30.0)
    check_roaming(workers)


def machines_come_back_to_their_clients(seed: int) -> None:
    """All workers of a machine stop until its sessions may be adopted, and start again at once. Its clients have waited, and
    come to any of its workers, which hear each other sooner than other machines: nothing is repeated with QoS 2."""
    machines = 2 + seed % 2
    roaming = AtMachines(seed, machines, 2 + (seed // 2) % 2)
    for _ in range(2):
        roaming.run(roaming.rng.random() * 4.0, 30.0)
        machine = roaming.machine(roaming.rng.randrange(1, machines))
        roaming.stop(machine)
        roaming.run(roaming.rng.choice((3.0, 25.0, 45.0)) * (0.5 + roaming.rng.random() / 2), 10.0)
        for host in roaming.rng.sample(machine, len(machine)):
            roaming.start(host)
        for host in roaming.federation.hosts:
            if host not in machine:
                host.hold_messages(SLOW_SECONDS * (0.5 + roaming.rng.random() / 2))
        roaming.run(BACK_SECONDS, 10.0)
    roaming.run(roaming.rng.random() * 4.0, 30.0)
    check_roaming(roaming)


def machines_are_cut_off(seed: int) -> None:
    """The workers of a machine reach each other, and no other machine; one of them dies meanwhile."""
    workers = Workers(seed, (2,) * (2 + seed % 2))
    for _ in range(2):
        workers.run(workers.rng.random() * 4.0, 30.0)
        machine = workers.rng.choice(workers.machines[1:])
        workers.cut_off = machine
        workers.world.partition(machine)
        workers.run(1.0 + workers.pause() / 2, 10.0)
        if workers.rng.random() < 0.5:
            end_worker(workers, workers.rng.choice(machine))
        workers.run(1.0 + workers.pause() / 2, 10.0)
        workers.world.heal()
        workers.run(CUT_SECONDS, 10.0)
        workers.cut_off = []
    workers.run(workers.rng.random() * 4.0, 30.0)
    check_roaming(workers)


def machines_of_all_sizes_fail(seed: int) -> None:
    """Some have workers, some none. All die at once, or one of them; one is lost with its disks while all stores have their
    copies, or hangs. The next fault comes when everybody has what was promised before."""
    sizes = ((2, 1, 2), (1, 3, 1), (2, 1, 1, 2), (3, 1, 3))[seed % 4]
    workers = Workers(seed, sizes, adopt_after=ADOPT_SECONDS / 2, joins=(1, 1 + sizes[0]))
    hosts = workers.federation.hosts
    for _ in range(3):
        workers.run(workers.rng.random() * 4.0, 30.0)
        workers.until_whole()
        victims = workers.rng.choice([hosts, *workers.machines])
        fault = workers.rng.choice(("die", "are lost", "hang"))
        if fault == "hang":
            for host in victims:
                host.stand_still(HANGS_SECONDS)
            workers.run(HANGS_SECONDS, 10.0)
        for host in victims:
            if fault == "are lost" and victims is not hosts:
                workers.lose(host)
            else:
                workers.kill(host)
        workers.run(workers.rng.random() * 10.0, 10.0)
        for host in workers.rng.sample(victims, len(victims)):
            workers.start(host)
            workers.run(workers.rng.choice((0.0, 0.5)) * workers.rng.random(), 10.0)
        workers.run(workers.rng.choice((0.0, 1.0, 10.0)), 30.0)
        check_roaming(workers)


def machines_are_cut_off_while_clients_move(seed: int) -> None:
    """Every second machine has several workers. One or two machines are cut off for half a minute; then, half of the time,
    nothing passes between any two workers, which adopt each other's sessions. One of them dies, and clients change sides."""
    sizes = ((2, 1, 2), (1, 3, 1), (2, 1, 1, 2), (3, 1, 2))[seed % 4]
    workers = Shattered(seed, sizes)
    rng = workers.rng
    hosts = workers.federation.hosts
    workers.run(rng.random() * 4.0, 30.0)
    side = [host for machine in rng.sample(workers.machines, rng.choice((1, 2))) for host in machine]
    keeps_streams = rng.random() < 0.7
    workers.cut_off = side
    workers.world.partition(side, keeps_streams=keeps_streams)
    workers.run(10.0 + rng.random() * 25.0, 10.0)
    if rng.random() < 0.5:
        end_worker(workers, rng.choice(hosts))
    if rng.random() < 0.5:
        workers.world.partition(*([host] for host in hosts), keeps_streams=keeps_streams)
        workers.run(10.0 + rng.random() * 50.0, 10.0)
    workers.world.heal()
    workers.run(CUT_SECONDS, 10.0)
    workers.cut_off = []
    workers.run(rng.random() * 4.0, 30.0)
    check_roaming(workers)


WORKER_SCHEDULES: Final[tuple[Callable[[int], None], ...]] = (
    workers_of_one_node_die,
    one_node_with_workers_dies,
    workers_of_machines_die,
    workers_are_lost,
    machines_are_lost,
    machines_come_back_to_their_clients,
    machines_are_cut_off,
    machines_are_cut_off_while_clients_move,
    machines_of_all_sizes_fail,
)
