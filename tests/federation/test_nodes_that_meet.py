"""Nodes that have clients before they know of each other: what a node alone keeps of each, and who has a client of both."""

from __future__ import annotations

import gc
from typing import Any, Final

import pytest

from broker.broker import Broker
from broker.codec.packets import Connect
from broker.session.authentication import SessionClaim
from federation.sessions.home import Home
from simulator.client import Client
from simulator.federation import Federation, address
from simulator.node_process import NodeProcess
from simulator.node_store import Disk

AWAY: Final = 3600  # seconds that a session outlives its connection


class Beginning(Client):
    """Begins anew, also where its session outlives the connection."""

    def connect(self, broker: Broker, now: float) -> None:
        connect = Connect(self._client_id, self.version, True, 0, properties=self._properties)
        self.open(broker, connect, now)


class Meeting:
    """Two nodes that do not know each other yet."""

    def __init__(self, has_stores: bool) -> None:
        each: list[dict[str, Any]] = [{"disk": Disk() if has_stores else None} for _ in range(2)]
        self.federation = Federation(2, 1, seeds=[], each=each)
        self.federation.hosts.append(self.federation.add(2, seeds=[]))
        self.federation.hosts[1].start()
        self.federation.run(1.0)

    def node(self, number: int) -> NodeProcess:
        return self.federation.node(self.federation.hosts[number])

    def connect(self, number: int, client_id: str, expiry: int = 0, kind: type[Client] = Client) -> Client:
        node = self.node(number)
        client = kind(node.broker, client_id, self.federation.world.now, expiry=expiry)
        node.clients.append(client)
        self.settle(number)
        return client

    def settle(self, number: int) -> None:
        self.federation.hosts[number].settle()
        self.federation.run(1.0)

    def disconnect(self, number: int, client: Client) -> None:
        client.disconnect(self.federation.world.now)
        self.settle(number)

    def homes(self, number: int) -> dict[str, Home]:
        sessions = self.node(number).node.sessions
        assert sessions is not None
        return sessions.homes.by_client

    def meet(self) -> None:
        self.node(1).join([address(1)], self.federation.world.now)
        self.federation.hosts[1].settle()
        self.federation.until_agreement(30.0, "the meeting")
        self.federation.run(5.0)

    def nodes_with(self, client_id: str) -> list[int]:
        return [number for number in (0, 1) if client_id in self.node(number).broker.sessions]


@pytest.mark.parametrize("has_stores", [False, True])
def test_a_node_alone_keeps_nothing_of_a_client_that_begins_anew_but_for_its_store(has_stores: bool) -> None:
    meeting = Meeting(has_stores)
    short = meeting.connect(0, "short")
    meeting.connect(0, "lasting", AWAY, Beginning)
    meeting.connect(0, "going on", AWAY)
    assert ("short" in meeting.homes(0), "going on" in meeting.homes(0)) == (False, True)
    assert ("lasting" in meeting.homes(0)) == has_stores
    counters = {name: home.counter for name, home in meeting.homes(0).items()}
    meeting.meet()
    homes = meeting.homes(0)
    assert set(homes) >= {"short", "lasting", "going on"}
    assert {name: homes[name].counter for name in counters} == counters
    assert sorted(home.number for home in homes.values()) == [home.number for home in homes.values()]
    meeting.connect(1, "short")
    assert short.is_closed
    assert meeting.nodes_with("short") == [1]


@pytest.mark.parametrize("meets", [False, True])
def test_nothing_of_a_claim_waits_for_the_garbage_collection(meets: bool) -> None:
    meeting = Meeting(False)
    if meets:
        meeting.meet()
    gc.collect()
    gc.disable()
    try:
        for number in range(3):
            assert not meeting.connect(0, f"c{number}").is_closed
        assert [one for one in gc.get_objects() if isinstance(one, SessionClaim)] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("has_stores", [False, True])
@pytest.mark.parametrize("expiry", [0, AWAY])
@pytest.mark.parametrize("newest", [0, 1])
def test_a_client_that_was_let_in_by_both_stays_where_it_was_last(newest: int, expiry: int, has_stores: bool) -> None:
    meeting = Meeting(has_stores)
    older = meeting.connect(1 - newest, "c", expiry, Beginning)
    newer = meeting.connect(newest, "c", expiry, Beginning)
    meeting.meet()
    assert (older.is_closed, newer.is_closed) == (True, False)
    assert meeting.nodes_with("c") == [newest]


def test_what_another_node_has_of_a_client_that_has_begun_anew_ends_also_where_it_has_gone_on_since() -> None:
    meeting = Meeting(False)
    older = meeting.connect(0, "c", AWAY)
    older.subscribe("old/#", meeting.federation.world.now)
    meeting.settle(0)
    meeting.disconnect(0, older)
    meeting.disconnect(1, meeting.connect(1, "c", AWAY, Beginning))
    meeting.connect(1, "c", AWAY)
    assert "c" not in meeting.homes(1)
    meeting.meet()
    assert meeting.nodes_with("c") == [1]
    assert not meeting.node(1).broker.sessions["c"].subscriptions
