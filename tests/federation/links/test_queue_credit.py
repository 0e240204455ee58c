"""Credit of queue links: the ends by themselves, and three domains with consumers that come and go, on virtual time."""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from federation.errors import QueueLinkFault
from federation.links.queue_credit import VISITS_MAX, Borrower, Demand, Lender, may_move


def test_a_downstream_asks_for_its_room_and_no_more_than_is_offered() -> None:
    demand = Demand()
    demand.borrowers = {"a": Borrower(100), "b": Borrower(2)}
    assert demand.plan(0, 10) == []
    demand.borrowers["a"].offer(4)
    demand.borrowers["b"].offer(50)
    assert sorted(demand.plan(0, 10)) == ["a", "b"]
    assert {name: borrower.asked() for name, borrower in demand.borrowers.items()} == {"a": 4, "b": 2}
    assert demand.plan(0, 10) == []
    demand.plan(0, 3)
    assert sum(borrower.asked() for borrower in demand.borrowers.values()) == 3


def test_jobs_of_the_domain_come_first() -> None:
    demand = Demand()
    borrower = demand.borrowers["a"] = Borrower(10)
    borrower.offer(5)
    demand.plan(0, 5)
    assert demand.plan(1, 5) == ["a"]
    assert borrower.asked() == 0
    for _ in range(5):
        borrower.receive()  # they were on the way
    with pytest.raises(QueueLinkFault, match="sent 6 jobs, was asked for 5"):
        borrower.receive()
    borrower.begin()
    with pytest.raises(QueueLinkFault):
        borrower.receive()


def test_an_upstream_sends_as_many_jobs_as_were_asked_for() -> None:
    lender = Lender[str]()
    assert lender.offer(3)
    assert not lender.offer(3)
    assert lender.credit() == 0
    lender.grant(2)
    assert (lender.send("x"), lender.send("y")) == (1, 2)
    assert lender.credit() == 0
    lender.grant(1)
    assert lender.credit() == 0
    assert lender.acknowledge(1)
    assert not lender.acknowledge(1)
    assert lender.end() == ["y"]
    assert lender.end() == []


def test_a_job_that_came_far_stays() -> None:
    assert may_move(VISITS_MAX - 1)
    assert not may_move(VISITS_MAX)


@dataclass
class Job:
    """`free_at_home`: a consumer of its domain had room when it was published."""

    number: int
    home: str
    free_at_home: bool
    visits: int = 0


class Consumer:
    """Works on one job at a time. A consumer that leaves finishes its job first."""

    def __init__(self) -> None:
        self.is_busy = False
        self.is_leaving = False


class Domain:
    """One domain of the simulation: a queue, consumers, the ends of its links."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.queue: deque[Job] = deque()
        self.consumers: list[Consumer] = []
        self.demand = Demand()
        self.lenders: dict[str, Lender[Job]] = {}
        self.done: list[Job] = []

    def room(self) -> int:
        return sum(not consumer.is_busy and not consumer.is_leaving for consumer in self.consumers)

    def publish(self, job: Job) -> None:
        job.free_at_home = self.room() > 0
        self.queue.append(job)
        self.work()

    def work(self) -> None:
        """Give jobs to consumers here, then to downstreams; then offer and ask anew."""
        for consumer in self.consumers:
            if self.queue and not consumer.is_busy and not consumer.is_leaving:
                consumer.is_busy = True
                job = self.queue.popleft()
                self.world.after(self.world.rng.uniform(0.05, 0.3), partial(self.finish, consumer, job))
        self.consumers = [each for each in self.consumers if each.is_busy or not each.is_leaving]
        for name, lender in self.lenders.items():
            while self.queue and lender.credit() and may_move(self.queue[0].visits):
                job = self.queue.popleft()
                job.visits += 1
                number = lender.send(job)
                self.world.tell(self.name, name, partial(self.world.domains[name].receive, self.name, number, job))
        for name, lender in self.lenders.items():
            if lender.offer(len(self.queue)):
                self.world.tell(self.name, name, partial(self.world.domains[name].offered, self.name, lender.told))
        for name in self.demand.plan(len(self.queue), self.room()):
            limit = self.demand.borrowers[name].limit
            self.world.tell(self.name, name, partial(self.world.domains[name].granted, self.name, limit))

    def finish(self, consumer: Consumer, job: Job) -> None:
        consumer.is_busy = False
        self.done.append(job)
        self.work()

    def offered(self, upstream: str, count: int) -> None:
        self.demand.borrowers[upstream].offer(count)
        self.work()

    def granted(self, downstream: str, limit: int) -> None:
        self.lenders[downstream].grant(limit)
        self.work()

    def receive(self, upstream: str, number: int, job: Job) -> None:
        self.demand.borrowers[upstream].receive()
        self.queue.append(job)
        self.world.tell(self.name, upstream, partial(self.world.domains[upstream].acknowledged, self.name, number))
        self.work()

    def acknowledged(self, downstream: str, number: int) -> None:
        assert self.lenders[downstream].acknowledge(number)
        self.work()


class World:
    """Three domains, each linked with both others. A link is in order; while it is cut what is said on it waits."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self._count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._free_at: dict[tuple[str, str], float] = {}
        names = ["east", "west", "north"]
        self.domains = {name: Domain(self, name) for name in names}
        for name, domain in self.domains.items():
            for other in names:
                if other != name:
                    domain.demand.borrowers[other] = Borrower(1_000)
                    domain.lenders[other] = Lender()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, call))

    def tell(self, one: str, other: str, call: Callable[[], None]) -> None:
        at = max(self.now + self.rng.uniform(0.01, 0.05), self._free_at.get((one, other), 0.0))
        self._free_at[(one, other)] = at
        self.after(at - self.now, call)

    def cut(self, one: str, other: str, seconds: float) -> None:
        for key in ((one, other), (other, one)):
            self._free_at[key] = max(self._free_at.get(key, 0.0), self.now + seconds)

    def run(self) -> None:
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()


@pytest.mark.parametrize("seed", range(20))
def test_jobs_of_three_domains_are_done_once_and_at_home_while_consumers_there_are_free(seed: int) -> None:
    world = World(seed)
    rng = world.rng
    jobs: list[Job] = []

    def publish(domain: Domain) -> None:
        job = Job(len(jobs), domain.name, False)
        jobs.append(job)
        domain.publish(job)

    def come_and_go(domain: Domain) -> None:
        staying = [consumer for consumer in domain.consumers if not consumer.is_leaving]
        if staying and rng.random() < 0.5:
            rng.choice(staying).is_leaving = True
        else:
            domain.consumers.append(Consumer())
        domain.work()

    for domain in world.domains.values():
        for _ in range(300):
            world.after(rng.uniform(0, 60), partial(publish, domain))
        for _ in range(40):
            world.after(rng.uniform(0, 60), partial(come_and_go, domain))
        domain.consumers = [Consumer() for _ in range(rng.randint(0, 3))]
    for _ in range(10):
        one, other = rng.sample(sorted(world.domains), 2)
        world.after(rng.uniform(0, 60), partial(world.cut, one, other, rng.uniform(0.5, 5)))
    last = world.domains[rng.choice(sorted(world.domains))]  # in the end one domain alone has a consumer

    def leave(domain: Domain) -> None:
        for consumer in domain.consumers:
            consumer.is_leaving = True
        if domain is last:
            domain.consumers.append(Consumer())
        domain.work()

    for domain in world.domains.values():
        world.after(70, partial(leave, domain))
    world.run()
    done = [(job.number, domain.name) for domain in world.domains.values() for job in domain.done]
    assert Counter(number for number, _ in done) == Counter(job.number for job in jobs), "each once"
    places = dict(done)
    at_home = [places[job.number] == job.home for job in jobs if job.free_at_home]
    assert sum(at_home) >= 0.95 * len(at_home) > 0
    assert any(places[job.number] != job.home for job in jobs), "jobs move to where consumers are"
    for domain in world.domains.values():
        assert all(not lender.unacknowledged for lender in domain.lenders.values())
    assert max(job.visits for job in jobs) < 10
