"""The oracle of promises sees each kind of damage; `test_schedules.py` runs the schedules."""

from __future__ import annotations

import re

import pytest

from broker.store.kinds import MESSAGE
from federation.settings import ReplicationSettings
from federation.stream.counters import DropReason
from simulator.durable_client import DurableClient
from simulator.durable_station import GROUP_FILTER
from simulator.federation import RETURN_LIMIT
from simulator.promise_oracle import difference
from simulator.promise_steps import check
from simulator.promises import Promises

NOTHING_ALLOWED: frozenset[str] = frozenset()


def qos2_position(promises: Promises, client: DurableClient) -> int:
    """Where the client got the first message that was published and delivered with QoS 2; -1 for nowhere."""
    exact = {sent.payload for sent in promises.sent if sent.qos == 2}
    if 2 in client.filters.values():
        for at, (payload, _) in enumerate(client.received):
            if payload in exact:
                return at
    return -1


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("none", ""),
        ("lost", "P1: 1 messages are missing, 0 were dropped and counted"),
        ("lost by the group", "P1: 1 messages are missing, 0 were dropped and counted: the group"),
        ("repeated", ""),
        ("twice", "P1: .* twice with QoS 2"),
        ("out of order", "P5: "),
        ("session lost", "no session at"),
        ("dropped", "P6: 1 messages were dropped: refused_by_peer"),
        ("left in an outbox", "P6: n1 keeps"),
        ("left on a disk", "P6: n1 has records on its disk for nobody"),
        ("not counted", "P6: n1 counts"),
    ],
)
def test_the_oracle_of_promises_sees_damage(damage: str, found: str) -> None:
    promises = Promises(3, 3, replication=ReplicationSettings(copies=1))  # with copies no session is lost with a disk
    promises.run(4.0, 60.0)
    check(promises)
    host = promises.federation.hosts[0]
    node = promises.federation.node(host)
    disk = promises.stations[host].disk
    assert disk is not None
    clients = [client for station in promises.stations.values() for client in station.subscribers]
    single = next(client for client in clients if 1 in client.filters.values() and len(client.received) > 10)
    if damage == "lost":
        acknowledged = {sent.payload for sent in promises.sent}
        at = next(at for at, (payload, _) in enumerate(single.received) if payload in acknowledged)
        del single.received[at]
    elif damage == "lost by the group":
        del next(client.received for client in clients if GROUP_FILTER in client.filters and client.received)[0]
    elif damage == "repeated":
        single.received.append(single.received[0])
    elif damage == "twice":
        at, client = next((at, client) for client in clients if (at := qos2_position(promises, client)) >= 0)
        client.received.append(client.received[at])
    elif damage == "out of order":
        single.received.reverse()
    elif damage == "session lost":
        promises.kill(host)
        disk.records.clear()
        promises.start(host)
    elif damage == "dropped":
        node.node.counters["n2"].drop(DropReason.REFUSED, 1)
    elif damage == "left in an outbox":
        node.node.senders["n2"].outbox.size += 1
    elif damage == "left on a disk":
        disk.records[1_000_000] = (MESSAGE,)
    elif damage == "not counted":
        node.broker.counters.copies += 1
    promises.until_online()
    told = difference(promises, NOTHING_ALLOWED)
    assert re.search(found, told) if found else not told, told


def test_agreement_waits_until_a_store_that_was_full_takes_something_again() -> None:
    """Its node refuses messages until then, and may. `everything_fails` 3000064 took one for lost."""
    promises = Promises(3, 3)
    host = promises.federation.hosts[0]
    disk = promises.stations[host].disk
    assert disk is not None
    disk.is_full = True
    promises.run(1.0, 60.0)
    process = promises.federation.node(host)
    assert process.refuses
    disk.is_full = False
    assert process.refuses
    promises.federation.until_agreement(RETURN_LIMIT, "a full disk")
    assert not process.refuses
