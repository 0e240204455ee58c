"""A member that sends session frames as nobody would: forged, old, in any order, of wrong values. The others go on to serve."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pytest

from broker.codec.packets import ConnAck
from broker.codec.writer import encode_publish
from federation.sessions.content import head_records
from federation.sessions.wire import (
    ADOPTED,
    ANSWER,
    CLAIM,
    COUNTER_MAX,
    HAND,
    HANDED,
    HEAD_END,
    KEEPERS,
    MOVE,
    RELAY,
    RELAYED,
    REST_OF,
    SWITCH,
)
from federation.stream.frames import FrameError, encode_block_header
from simulator.client import Client
from simulator.federation import Federation
from simulator.node_process import NodeProcess
from simulator.node_store import Disk

AWAY: Final = 3600
FRAMES: Final = 300
ODD: Final = (
    None,
    True,
    -1,
    0,
    2**62,
    2**64 - 1,
    0.5,
    "",
    "n2",
    "c0",
    b"",
    b"\xff\0",
    (),
    ((),),
    ("n2", "n3"),
    (1, 2, 3),
)


class Forger:
    """Makes frames from what nodes of the cluster know. About one value in twelve is an odd one."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = cluster
        self.earlier: list[bytes] = []

    def frame(self) -> bytes:
        rng = self.rng
        if self.earlier and rng.random() < 0.2:
            return rng.choice(self.earlier)
        operation = rng.choice((CLAIM, ANSWER, MOVE, SWITCH, HAND, HAND, ADOPTED, RELAY, RELAYED, REST_OF, KEEPERS, 77))
        epoch = rng.choice((0, 1, 1000, self.greatest() - 1000, self.greatest(), COUNTER_MAX)), self.store_id()
        values = (operation, self.client_id(), *epoch, self.more(operation))
        data: bytes = msgpack.packb(self.odd(values))
        self.earlier.append(data)
        return data

    def odd(self, value: Any) -> Any:
        if self.rng.random() < 1 / 12:
            return self.rng.choice(ODD)
        return tuple([self.odd(each) for each in value]) if isinstance(value, tuple) else value

    def client_id(self) -> str:
        return self.rng.choice([*self.cluster.names, "nobody", "$group/g/a"])

    def store_id(self) -> str:
        return self.rng.choice([*self.cluster.store_ids, "0" * 32])

    def greatest(self) -> int:
        sessions = self.cluster.node(0).node.sessions
        assert sessions is not None
        return sessions.homes.counter_max()

    def node(self) -> str:
        return self.rng.choice(["n1", "n2", "n3", "n9"])

    def nodes(self) -> tuple[str, ...]:
        return tuple([self.node() for _ in range(self.rng.randrange(3))])

    def block(self) -> bytes:
        packets = b"".join(encode_publish(5, b"a", b"relayed", 1, False, False, 1, b"") for _ in range(2))
        return encode_block_header(5, 2, len(packets)) + packets

    def records(self) -> tuple[object, ...]:
        process = self.cluster.node(1)
        sessions = [session for session in process.broker.sessions.values() if session.records is not None]
        head = head_records(self.rng.choice(sessions), process.broker.wall_offset, (0, 0)) if sessions else []
        return (*head, (HEAD_END,), (HANDED,))[self.rng.randrange(2) :]

    def more(self, operation: int) -> tuple[object, ...]:
        rng = self.rng
        number = rng.choice((0, 1, 5, 2**40))
        if operation == CLAIM:
            flags = rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.2
            return flags if rng.random() < 0.7 else (*flags, self.store_id(), number)
        if operation == ANSWER:
            return rng.randrange(5), rng.choice((0, 1001, self.greatest(), COUNTER_MAX)), self.store_id()
        if operation in (MOVE, KEEPERS):
            return self.nodes()
        if operation == HAND:
            return self.nodes(), self.records(), number
        if operation == ADOPTED:
            positions = tuple([(self.store_id(), number, 1, self.node()) for _ in range(rng.randrange(2))])
            return self.node(), positions, number
        if operation == RELAY:
            return self.node(), rng.randrange(4), self.block(), number
        if operation == REST_OF:
            return self.node(), rng.randrange(6), 0, 2, self.block()
        return ()


class Cluster:
    """Three nodes with stores and a copy each. The first two have durable clients, connected and away."""

    def __init__(self) -> None:
        self.federation = Federation(2, 3, each=[{"disk": Disk()} for _ in range(3)])
        self.federation.until_agreement(30.0, "the start")
        self.names = [f"c{number}" for number in range(6)]
        for number, name in enumerate(self.names):
            client = self.connect(name, number % 2)
            self.do(number % 2, partial(client.subscribe, "a"))
            if number >= 3:
                self.do(number % 2, client.disconnect)
        self.federation.run(2.0)
        self.store_ids = [self.node(number).broker.identity.store_id for number in range(3)]

    def do(self, number: int, action: Callable[[float], object]) -> None:
        self.federation.do(self.federation.hosts[number], lambda _, now: action(now))

    def node(self, number: int) -> NodeProcess:
        return self.federation.node(self.federation.hosts[number])

    def connect(self, client_id: str, number: int) -> Witness:
        world = self.federation.world
        client = Witness(self.node(number).broker, client_id, world.now, expiry=AWAY)
        self.node(number).clients.append(client)
        self.federation.hosts[number].settle()
        world.run_until(lambda: bool(client.answers), 10.0, f"CONNACK for {client_id}")
        return client


class Witness(Client):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.answers: list[ConnAck] = []
        super().__init__(*arguments, **options)

    def handle_packet(self, packet: Any, now: float) -> None:
        if isinstance(packet, ConnAck):
            self.answers.append(packet)
        super().handle_packet(packet, now)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(16))
def test_a_node_serves_whatever_a_member_says_of_sessions(seed: int) -> None:
    cluster = Cluster()
    federation = cluster.federation
    forger = Forger(cluster, seed)
    host = federation.hosts[0]
    refused = 0
    for _ in range(FRAMES):
        process = cluster.node(0)
        sessions = process.node.sessions
        assert sessions is not None
        try:
            sessions.receive(forger.rng.choice(("n2", "n3")), forger.frame(), federation.world.now)
        except FrameError:
            refused += 1
        host.settle()
        if forger.rng.random() < 0.1:
            federation.run(0.3)
    assert 0 < refused < FRAMES
    federation.run(60.0)
    for name in cluster.names:
        client = cluster.connect(name, 0)
        assert client.answers[0].reason_code == 0
        cluster.do(0, partial(client.subscribe, "b"))
        federation.run(1.0)
        cluster.node(1).publish("b", name.encode(), federation.world.now)
        federation.hosts[1].settle()
        federation.world.run_until(partial(has_come, client, name.encode()), 10.0, f"{name} gets it")


def has_come(client: Client, payload: bytes) -> bool:
    return (b"b", payload) in client.received
