"""Steps that schedules of promises have in common, and their end: the check."""

from __future__ import annotations

from typing import Final

from simulator.federation import RETURN_LIMIT
from simulator.groups import Groups
from simulator.promise_oracle import difference
from simulator.promises import Promises
from simulator.world import Host

REST_SECONDS: Final = 3.0


def some(promises: Promises, hosts: list[Host]) -> list[Host]:
    return promises.rng.sample(hosts, promises.rng.randint(1, len(hosts)))


def check(promises: Promises, allowed: frozenset[str] = frozenset()) -> None:
    """Everything works again: the promises have been kept, but for messages that were counted for a reason of `allowed`."""
    promises.heal()
    promises.until_online()
    promises.federation.until_agreement(RETURN_LIMIT, "the faults")

    def found() -> str:
        promises.until_online()
        return difference(promises, allowed)

    promises.federation.until_nothing_differs(found, RETURN_LIMIT, REST_SECONDS)


def pair(promises: Promises) -> tuple[Host, Host]:
    first, second = promises.rng.sample(promises.federation.hosts, 2)
    return first, second


def some_die(promises: Promises, times: int) -> None:
    """They come back after at most half a minute."""
    for _ in range(times):
        promises.run(promises.rng.random() * 3.0, 30.0)
        victims = some(promises, promises.federation.hosts)
        for victim in victims:
            promises.kill(victim)
        promises.run(short_or_long(promises) / 2, 10.0)
        for victim in victims:
            promises.start(victim)
    promises.run(promises.rng.random() * 2.0, 30.0)


def short_or_long(promises: Promises | Groups) -> float:
    return promises.rng.choice((0.1, 2.0, 20.0, 60.0)) * promises.rng.random()
